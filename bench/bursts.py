#!/usr/bin/env python3
"""Holds burst mode against exact mode and against the native program, program by program.

    bench/bursts.py [--memlens FILE] [--repetitions N] [--check] [--markdown] [NAME...]

Each program of bench/accuracy.py is recorded once by exact mode and N times by burst mode, alternating with native
runs. Shown are the miss ratios of both, in percent of the accesses; how burst mode ranks the objects that make 95 %
of either wait (`memlens compare`); and its wall time over the native one, the median of the pairs.

--check takes some of the programs, once each, and fails where there is no burst or a first-level miss
ratio is more than CHECKED_POINTS off. The last lines are the correlation and the mean absolute error of the miss ratios
over all programs, and `N passed, N failed, N skipped`.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import accuracy

LEVELS = [("L1", "l1_misses"), ("L2", "l2_misses"), ("LLC", "llc_misses"), ("TLB", "dtlb_misses")]
CHECKED = ("bfs", "spmv", "matmul")
CHECKED_POINTS = 8
# Programs that are over before there are many bursts take larger inputs here.
LONGER = {
    "bfs": ["18", "16", "1", "20"],
    "spmv": ["400000", "16", "40"],
    "matmul": ["700"],
    "tree": ["1000000"],
    "gups": ["24"],
    "particles": ["1000000", "10"],
    "join": ["4194304", "6"],
    "stencil": ["2500", "20"],
    "dijkstra": ["600000", "2"],
    "lists": ["2097152", "4"],
}


def ratios(memlens, profile):
    """Miss ratios of the whole program by level, in percent."""
    words = [memlens, "report", str(profile), "--format", "json"]
    report = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    totals = report["totals"]
    accesses = totals["loads"] + totals["stores"] - totals.get("modifies", 0)
    return [100 * totals[name] / max(1, accesses) for _, name in LEVELS], report


def seconds(command):
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.monotonic() - began


def correlation(pairs):
    if len(pairs) < 3:
        return None
    return statistics.correlation([x for x, _ in pairs], [y for _, y in pairs])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(accuracy.ROOT / "target/release/memlens"), metavar="FILE")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--sqlite", type=Path, metavar="FILE",
                        default=accuracy.ROOT / "target/examples/sqlite/release/sqlite-example")
    parser.add_argument("--python", default=shutil.which("python3"), metavar="FILE")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    options.memlens = str(Path(options.memlens).resolve())
    chosen = [(name, source, LONGER.get(name, arguments)) for name, source, arguments in accuracy.PROGRAMS]
    chosen = [program for program in chosen
              if (not options.names or program[0] in options.names) and (not options.check or program[0] in CHECKED)]
    repetitions = 1 if options.check else options.repetitions
    heads = ["program", *(f"{level} %" for level, _ in LEVELS), "Spearman", "top 3", "bursts", "over native"]
    line = (lambda cells: "| " + " | ".join(cells) + " |") if options.markdown else (
        lambda cells: f"{cells[0]:<11}" + "".join(f"{cell:>15}" for cell in cells[1:5])
        + "".join(f"{cell:>12}" for cell in cells[5:]))
    print(line(heads))
    if options.markdown:
        print(line(["---"] + ["---:"] * (len(heads) - 1)))
    pairs = {level: [] for level, _ in LEVELS}
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="memlens-bursts.") as temporary:
        folder = Path(temporary)
        for name, source, arguments in chosen:
            command, why = accuracy.prepared(name, source, arguments, folder, options)
            if why:
                skipped += 1
                print(f"{name:<11}skipped: {why}")
                continue
            command = [str(word) for word in command]
            exact, burst = folder / f"{name}.exact", folder / f"{name}.burst"
            record = [options.memlens, "record", "--quiet", "--force"]
            subprocess.run([*record, "--mode", "exact", "--out", str(exact), "--", *command],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            over = []
            for _ in range(repetitions):
                native = seconds(command)
                over.append(seconds([*record, "--mode", "burst", "--out", str(burst), "--", *command]) / native)
            true, _ = ratios(options.memlens, exact)
            estimated, report = ratios(options.memlens, burst)
            for (level, _), x, y in zip(LEVELS, true, estimated):
                pairs[level].append((x, y))
            bursts = next((note.split()[0] for note in report["run"].get("notes", []) if "bursts with" in note), "0")
            spearman, top = None, {"common": 0, "of": 3}
            if bursts != "0":
                compared = accuracy.compared(options, exact, burst)
                spearman, top = compared["spearman"], compared["top3"]
            cells = [name, *(f"{x:.2f} → {y:.2f}" for x, y in zip(true, estimated)),
                     "–" if spearman is None else f"{spearman:.2f}", f"{top['common']} of {top['of']}", bursts,
                     f"{statistics.median(over):.3f}"]
            print(line(cells), flush=True)
            is_good = bursts != "0" and (not options.check or abs(true[0] - estimated[0]) <= CHECKED_POINTS)
            passed, failed = passed + is_good, failed + (not is_good)
    for level, _ in LEVELS:
        if pairs[level]:
            found = correlation(pairs[level])
            error = statistics.mean(abs(x - y) for x, y in pairs[level])
            print(f"{level}: correlation {'–' if found is None else f'{found:.3f}'}, "
                  f"mean absolute error {error:.2f} points")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

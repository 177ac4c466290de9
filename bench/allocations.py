#!/usr/bin/env python3
"""What watching allocations of 4 KiB and more costs programs (Chen et al., section IV.C): a Markdown table.

    bench/allocations.py [--quick] [--repetitions N] [--programs A,B] [--json FILE]

Three runs of each program in turn, in an order that changes from repetition to repetition: alone, sampled with
`--allocations off`, and with `--allocations large --allocation-threshold 4096`. What counts is the program's own
processor time, user and system, as the kernel tells its parent: unlike the time on the clock it hardly depends on
what else the machine does. memlens works in a process of its own, whose time is a column of its own.

Runs are short and many, so that those of a repetition meet the same conditions. A ratio is the median over the
repetitions of the ratio within each; behind it stands the interval in which the median of such ratios lies with at
least 95 % probability, by order statistics (the sign test's). With fewer than six repetitions there is none. The mean
is the same of the geometric mean over the programs in each repetition.

--quick: small inputs, one repetition: it shows that everything runs, and changes no program's output.
--one-processor: the program and memlens share one logical processor, so that memlens's work does not slow the program
down from the other half of a core (simultaneous multithreading).
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import geometric_mean, print_conditions
from programs import ROOT

KERNELS = ROOT / "examples/kernels"
# Name, source, arguments, arguments of --quick. The last two have the 1.24 million blocks of the paper's dedup, the one in
# all repetitions together, the other in each. "Used" is of its kind: 20 passes over a block of 10 KiB take 40 microseconds.
# dedup takes the SHA-1 of each (7 microseconds on the same machine) and compresses those that are new (185, by zlib at its
# fastest).
PROGRAMS = [
    ("BFS", ROOT / "examples/bfs/bfs.c", ["17", "16", "1", "3"], ["10"]),
    ("RandomAccess", KERNELS / "gups.c", ["22"], ["12"]),
    ("SpMV", KERNELS / "spmv.c", ["400000", "16", "20"], ["1000"]),
    ("annealing", KERNELS / "anneal.c", ["200000", "1000000", "1"], ["1000"]),
    ("used blocks", KERNELS / "bigblocks.c", ["50000", "1024", "20"], ["2000", "1024", "2"]),
    ("replaced blocks", KERNELS / "bigblocks.c", ["1250000"], ["2000"]),
]
# Does nothing but replace blocks, which no program of the paper does: not in the mean.
EXTREME = "replaced blocks"
# The paper's, and ours to meet: mean and largest.
LIMITS = (1.016, 1.05)
LARGE = ["--allocations", "large", "--allocation-threshold", "4096"]


def tools(memlens, one_processor):
    pin = ["taskset", "--cpu-list", "0"] if one_processor else []
    record = [*pin, memlens, "record", "--mode", "sample", "--quiet", "--force", "--out", "profile"]
    return {"alone": pin, "off": [*record, "--allocations", "off", "--"], "large": [*record, *LARGE, "--"]}


# Becomes the program's parent, and tells what the kernel says of it when it has ended.
PARENT = """
import os, resource, sys
child = os.spawnvp(os.P_WAIT, sys.argv[2], sys.argv[2:])
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
open(sys.argv[1], "w").write(f"{usage.ru_utime + usage.ru_stime}")
sys.exit(child if child >= 0 else 1)
"""


def run(prefix, command, folder):
    """Processor seconds of the program, and of everything; what it printed."""
    place = folder / "seconds"
    place.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*prefix, sys.executable, "-c", PARENT, place, *command], cwd=folder, capture_output=True,
                          text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}: {done.stderr[-500:]}")
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(place.read_text()), whole, done.stdout


def interval(values):
    """The smallest interval of order statistics around the median that misses it with at most 5 % probability."""
    ordered, count = sorted(values), len(values)
    tail, best = 0.0, None
    for rank in range(count // 2):
        tail += math.comb(count, rank) / 2**count
        if 2 * tail > 0.05:
            break
        best = (ordered[rank], ordered[count - 1 - rank])
    return best


def ratio_text(values):
    bounds = interval(values)
    behind = f" ({bounds[0]:.3f}–{bounds[1]:.3f})" if bounds else ""
    return f"{statistics.median(values):.3f}{behind}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memlens", default=ROOT / "target/release/memlens", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--one-processor", action="store_true")
    parser.add_argument("--programs", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = [row for row in PROGRAMS if not options.programs or row[0] in options.programs.split(",")]
    repetitions = 1 if options.quick else options.repetitions
    found = {name: [] for name, *_ in chosen}
    prefixes = tools(str(options.memlens.resolve()), options.one_processor)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for _, source, *_ in chosen:
            subprocess.run(["cc", "-std=gnu11", "-O2", "-g", "-pthread", "-o", folder / source.stem, source], check=True)
        for repetition in range(repetitions):
            for name, source, arguments, quick in chosen:
                command = [folder / source.stem, *(quick if options.quick else arguments)]
                names = list(prefixes)
                turn = repetition % len(names)
                seconds, printed = {}, {}
                for tool in names[turn:] + names[:turn]:
                    *seconds[tool], printed[tool] = run(prefixes[tool], command, folder)
                if len(set(printed.values())) != 1:
                    sys.exit(f"{name}: its output changed: {printed}")
                found[name].append(seconds)
                print(f"{repetition + 1}/{repetitions} {name}: {seconds}", file=sys.stderr)
    where = print_conditions(repetitions=repetitions, processors="one" if options.one_processor else "all")
    print("| program | alone, s | watched ÷ alone | watched ÷ sampled only | sampled only ÷ alone | memlens itself, s |")
    print("|---|---|---|---|---|---|")
    pairs = (("large", "alone"), ("large", "off"), ("off", "alone"))
    in_mean = {pair: [] for pair in pairs}
    for name, rows in found.items():
        ratios = {pair: [row[pair[0]][0] / row[pair[1]][0] for row in rows] for pair in pairs}
        if name != EXTREME:
            for pair in pairs:
                in_mean[pair].append(ratios[pair])
        alone = statistics.median(row["alone"][0] for row in rows)
        itself = statistics.median(row["large"][1] - row["alone"][1] for row in rows)
        cells = " | ".join(ratio_text(values) for values in ratios.values())
        print(f"| {name} | {alone:.2f} | {cells} | {itself:.2f} |")
    watched = in_mean["large", "alone"]
    if watched:
        # Repetition by repetition: what disturbs one program does not disturb the others, and evens out.
        means = [[geometric_mean(ratios) for ratios in zip(*of_pair)] for of_pair in in_mean.values()]
        print(f"| mean of all but the last | | {' | '.join(map(ratio_text, means))} | |")
        largest = max(map(statistics.median, watched))
        print(f"\nMean {statistics.median(means[0]):.3f}, largest {largest:.3f} (without the program that only replaces "
              f"blocks); to meet: {LIMITS[0]} and {LIMITS[1]}.")
    if options.json:
        options.json.write_text(json.dumps({"conditions": where, "runs": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

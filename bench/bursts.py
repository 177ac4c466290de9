#!/usr/bin/env python3
"""Holds burst mode against exact mode and against the native program, program by program.

    bench/bursts.py [--memlens FILE] [--machine NAME] [--repetitions N] [--keep FOLDER] [--longer] [--check] [--phases]
                    [--filter-operations] [--options "WORDS"] [--markdown] [NAME...]

Each program is recorded once by exact mode and N times by burst mode, each time beside a native run. Shown are the
miss ratios of both, in percent of the accesses (of burst mode the first repetition's); all accesses as burst mode has them,
over the exact ones; how burst mode ranks the objects that make 95 % of either wait (`memlens compare`); and the wall time
in burst mode over the native one, memlens's own analysis included, the median of the pairs.

Below: the correlation and the mean absolute error of the miss ratios over all programs and repetitions, and what comes of
them if each instruction had its exact miss ratio and the accesses that burst mode gives it (*weights*: which bursts there were, and
what they stand for), and of the estimates held against these (*misses*); the same of all
accesses, as the geometric mean, the spread and how many lie within 0.8 and 1.25; in how many cases the exact share of an object,
of the wait and of the stalls, lies in the interval that burst mode states for it, of objects with 1 % of either. Data that only burst mode has under its name
(`heap used by f`: the allocation was not watched, and exact mode knows the site) stand beside: no interval could hold them, and
their share is told. Last the delinquent loads (the smallest set that has 90 % of the last-level load misses) in the measures
of table 6 of Zhao et al., of the programs with a last-level miss ratio of 1 % or more: C is the exact set (of several, where loads miss
about as often, the one with most of P), P that of the estimate and of the paper's mini-simulation (`--model umi`, a run of its own).

--keep keeps programs and exact profiles, and takes those that are there. --longer takes more data in LONGER: their phases at the
begin last a few ms, as long as the interval of the timer that begins bursts. --phases takes none of the programs, but one whose phases
have known numbers of accesses (workloads/phases.c), and shows what burst mode has of each over the true number: what bursts stand for
by itself. --filter-operations lets burst mode leave out what that option leaves out: ratios and totals are then of other accesses
than exact mode's, shares and delinquent loads can be compared. --check takes some of the programs, once each,
and fails where there is no burst or a first-level miss ratio is more than CHECKED_POINTS off. The last line is
`N passed, N failed, N skipped`.
"""

import argparse
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import accuracy
import locality
from programs import c_source

LEVELS = [("L1", "l1_misses"), ("L2", "l2_misses"), ("LLC", "llc_misses"), ("TLB", "dtlb_misses")]
# For --check: arguments.
CHECKED = {"bfs": ["16", "16", "1", "10"], "spmv": ["200000", "16", "20"]}
# Wide: the machine may be busy with other things, which moves what a burst is taken to stand for.
CHECKED_POINTS = 15
# For --longer: arguments.
LONGER = {"gups": ["24"], "lists": ["4194304", "4"], "known": ["1600000"]}
COVERED = 0.9
LEAST_RATIO = 0.01
LEAST_SHARE = 0.01
MOST_OFF = 1.25
KERNELS, WORKLOADS = accuracy.KERNELS, accuracy.WORKLOADS
# Of half a second to three seconds: long enough for some bursts, short enough for exact mode.
PROGRAMS = [
    ("bfs", accuracy.ROOT / "examples/bfs/bfs.c", ["17", "16", "1", "20"]),
    ("spmv", KERNELS / "spmv.c", ["400000", "16", "40"]),
    ("matmul", KERNELS / "matmul.c", ["800"]),
    ("tree", KERNELS / "tree.c", ["250000"]),
    ("gups", KERNELS / "gups.c", ["22"]),
    ("anneal", KERNELS / "anneal.c", ["131072"]),
    ("particles", WORKLOADS / "particles.cpp", ["600000", "10"]),
    ("join", WORKLOADS / "join.rs", ["2097152", "6"]),
    ("stencil", WORKLOADS / "stencil.f90", ["2000", "20"]),
    ("dijkstra", WORKLOADS / "dijkstra.cpp", ["300000", "2"]),
    ("lists", WORKLOADS / "lists.rs", ["1048576", "4"]),
    ("known", WORKLOADS / "known.c", ["400000"]),
    ("rounds", WORKLOADS / "rounds.c", ["2", "300"]),
    ("sqlite", None, ["sqlite3", ":memory:", ".read {folder}/q.sql"]),
    ("python", None, [sys.executable, "-S", "{folder}/p.py"]),
    ("perl", None, ["perl", "{folder}/p.pl"]),
    ("lua", None, ["lua", "{folder}/l.lua"]),
    ("cc1", None, ["{cc1}", "-quiet", "-O2", "{folder}/c.i", "-o", "{folder}/c.s"]),
    ("xz", None, ["xz", "-k", "-c", "-1", "{folder}/text"]),
    ("gzip", None, ["gzip", "-k", "-c", "{folder}/text"]),
    ("bzip2", None, ["bzip2", "-k", "-c", "{folder}/text"]),
    ("zstd", None, ["zstd", "-c", "-T1", "-9", "{folder}/text"]),
    ("sort", None, ["sort", "--parallel=1", "-n", "{folder}/text"]),
    ("awk", None, ["awk", "{{n[$1 % 50000] += $2}} END {{for (k in n) s += n[k]; print s}}", "{folder}/text"]),
    ("bc", None, ["bc", "-lq", "{folder}/b.bc"]),
]


INPUTS = {
    "q.sql": locality.SQL.replace("20000", "150000"),
    "p.py": locality.PYTHON.replace("40000", "400000"),
    "p.pl": locality.PERL.replace("60000", "600000"),
    "l.lua": locality.LUA.replace("150000", "400000"),
    "b.bc": "scale=1300\n4*a(1)\nquit\n",
    "c.i": c_source(120),
}


def prepared(name, source, arguments, folder):
    """The command to record, or why there is none."""
    if source is not None:
        if (folder / name).exists():
            return [str(folder / name), *arguments], None
        return locality.prepared(name, source, arguments, folder)
    cc1 = subprocess.run(["cc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
    program = shutil.which(arguments[0].format(cc1=cc1))
    if program is None:
        return None, f"no {arguments[0]}"
    return [os.path.realpath(program), *(word.format(folder=folder, cc1=cc1) for word in arguments[1:])], None


def report_of(memlens, profile):
    words = [memlens, "report", str(profile), "--format", "json"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def accesses_of(report):
    totals = report["totals"]
    return totals["loads"] + totals["stores"] - totals.get("modifies", 0)


def ratios(report):
    """Miss ratios of the whole program by level, in percent."""
    return [100 * report["totals"][name] / max(1, accesses_of(report)) for _, name in LEVELS]


def by_instruction(report):
    """Accesses, and misses by level, of each instruction, by (module, offset)."""
    found = {}
    for row in report["instructions"]:
        sums = found.setdefault((row["module"], row["offset"]), [0] * (1 + len(LEVELS)))
        sums[0] += row["loads"] + row["stores"] - row["modifies"]
        for level, (_, name) in enumerate(LEVELS):
            sums[1 + level] += row[name] or 0
    return found


def ratios_at_weights(exact, burst):
    """Miss ratios in percent, if each instruction had its exact ones and the accesses that burst mode gives it."""
    true, misses, whole = by_instruction(exact), [0.0] * len(LEVELS), 0
    for at, (accesses, *_) in by_instruction(burst).items():
        of, *counts = true.get(at, [0])
        if of > 0:
            whole += accesses
            misses = [sum_ + accesses * count / of for sum_, count in zip(misses, counts)]
    return [100 * sum_ / max(1, whole) for sum_ in misses]


def wall_seconds(command):
    began = os.times().elapsed
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return os.times().elapsed - began


# Of a run that has no last-level load misses at all.
NOTHING_FOUND = {"a": 0, "b": 0, "common": 0, "covered": 0.0, "recall": 0.0, "false_positives": 0.0}


def print_delinquent(loads, ratio_of):
    """Both models beside each other, as table 6 of Zhao et al. has its one; the means are of programs, each the mean of its runs."""
    print("\n| program | LLC % | C | P | P ∩ C | coverage of P | recall | false positives | UMI: P | P ∩ C | coverage | recall "
          "| false positives |\n|---|" + "---:|" * 12)
    keys = ("b", "common", "covered", "recall", "false_positives")
    sums = {model: [] for model in ("ours", "umi")}
    for name, models in loads.items():
        cells = [name, f"{ratio_of[name]:.2f}", str(max(run["a"] for run in models["ours"]))]
        for model, runs in models.items():
            means = {key: mean([run[key] or 0 for run in runs]) for key in keys}
            sums[model].append(means)
            cells += [f"{means[key]:.3g}" if key in keys[:2] else f"{means[key]:.2f}" for key in keys]
        print("| " + " | ".join(cells) + " |")
    for model, programs in sums.items():
        whole = {key: mean([program[key] for program in programs]) for key in keys}
        print(f"delinquent loads of {len(programs)} programs, {model}: recall {whole['recall']:.2f}, false positives "
              f"{whole['false_positives']:.2f}, coverage {whole['covered']:.2f}")


def covered_shares(compared, exact, burst, key):
    """How many objects' exact shares (`share`, of the wait; `stall_share`) lie in the stated intervals, of how many; and the
    share of what only burst mode has under its name. An object that burst mode did not see has the interval of none in so
    many bursts."""
    bursts = burst["run"]["effective_bursts"] or 0
    # Clopper and Pearson's upper end for none, with what is taken for the model: memlens-report's interval.rs.
    model = 50 if key == "share" else 25
    unseen = (0.0, 1 - 0.025 ** (1 / bursts + 1 / model) if bursts else 1.0)
    shares = [{entry["id"]: entry[key] or 0 for entry in report["objects"]} for report in (exact, burst)]
    intervals = {entry["id"]: entry.get(f"{key}_ci95") for entry in burst["objects"]}
    inside, of, otherwise = 0, 0, 0.0
    for entry in compared["objects"]:
        numbers = entry["ids_a"] or [], entry["ids_b"] or []
        true, found = (sum(known.get(number, 0) for number in ids) for known, ids in zip(shares, numbers))
        if max(true, found) < LEAST_SHARE:
            continue
        if true == 0:
            otherwise += found
            continue
        stated = [intervals[number] for number in numbers[1] if intervals.get(number)]
        low, high = (sum(ends) for ends in zip(*stated)) if stated else unseen
        of += 1
        inside += low <= true <= high
    return inside, of, otherwise


def print_phases(options, folder, repetitions):
    """How many accesses burst mode gives to each phase of a program, over the true number."""
    command, why = locality.prepared("phases", WORKLOADS / "phases.c", [], folder)
    if why:
        print(f"phases skipped: {why}\n0 passed, 0 failed, 1 skipped")
        return 0
    found = {}
    for _ in range(repetitions):
        profile = folder / "phases.burst"
        words = [options.memlens, "record", "--quiet", "--force", "--mode", "burst", "--machine", options.machine, "--out",
                 str(profile), "--", *command]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        estimated = {}
        for row in report_of(options.memlens, profile)["instructions"]:
            accesses = row["loads"] + row["stores"] - row["modifies"]
            estimated[row["function"]] = estimated.get(row["function"], 0) + accesses
        for name, true in (line.split() for line in told.splitlines() if not line.startswith("sum")):
            found.setdefault(name, []).append(estimated.get(name, 0) / int(true))
    for name, parts in found.items():
        # None is a thousandth, so that there is a mean.
        logarithms = [math.log(max(part, 0.001)) for part in parts]
        print(f"{name:<8} estimated over true accesses, {len(parts)} runs: geometric mean {math.exp(mean(logarithms)):.2f}, from "
              f"{min(parts):.2f} to {max(parts):.2f}; spread of the logarithm {statistics.pstdev(logarithms):.2f}")
    print("1 passed, 0 failed, 0 skipped")
    return 0


def correlation(pairs):
    # Ratios that are all the same have none.
    if len(pairs) < 3 or any(len(set(column)) == 1 for column in zip(*pairs)):
        return None
    return statistics.correlation([x for x, _ in pairs], [y for _, y in pairs])


def mean(values):
    return statistics.fmean(values) if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", accuracy.ROOT / "target")).resolve()
    parser.add_argument("--memlens", default=str(target / "release/memlens"), metavar="FILE")
    parser.add_argument("--machine", default="e5504", metavar="NAME")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--keep", type=Path, help="folder for programs and exact profiles")
    parser.add_argument("--longer", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--filter-operations", action="store_true")
    parser.add_argument("--options", default="", metavar="WORDS", help="options of burst mode")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    options.memlens = str(Path(options.memlens).resolve())
    if options.phases:
        with tempfile.TemporaryDirectory(prefix="memlens-bursts.") as folder:
            return print_phases(options, Path(folder), options.repetitions)
    other = CHECKED if options.check else LONGER if options.longer else {}
    programs = [(name, source, other.get(name, words)) for name, source, words in PROGRAMS]
    chosen = [program for program in programs
              if (not options.names or program[0] in options.names) and (not options.check or program[0] in CHECKED)]
    repetitions = 1 if options.check else options.repetitions
    heads = ["program", *(f"{level} %" for level, _ in LEVELS), "accesses", "Spearman", "top 3", "in interval", "bursts",
             "over native"]
    line = (lambda cells: "| " + " | ".join(cells) + " |") if options.markdown else (
        lambda cells: f"{cells[0]:<11}" + "".join(f"{cell:>16}" for cell in cells[1:5])
        + "".join(f"{cell:>12}" for cell in cells[5:]))
    print(line(heads))
    if options.markdown:
        print(line(["---"] + ["---:"] * (len(heads) - 1)))
    pairs = {level: [] for level, _ in LEVELS}
    weighed = {level: [] for level, _ in LEVELS}
    ratio_of = {}
    loads, totals, inside, of, otherwise, stalls = {}, [], 0, 0, [], [0, 0]
    passed = failed = skipped = 0
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="memlens-bursts."))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in INPUTS.items():
        (folder / name).write_text(text)
    (folder / "text").write_bytes(b"".join(b"%d %d\n" % (i * 7919 % 100_007, i * i) for i in range(500_000)))
    try:
        for name, source, arguments in chosen:
            command, why = prepared(name, source, arguments, folder)
            if why:
                skipped += 1
                print(f"{name:<11}skipped: {why}")
                continue
            command = [str(word) for word in command]
            size = "longer." if options.longer and name in LONGER else ""
            exact, burst = folder / f"{name}.{size}{options.machine}.exact", folder / f"{name}.burst"
            record = [options.memlens, "record", "--quiet", "--force", "--machine", options.machine]
            as_bursts = [*record, "--mode", "burst", *(["--filter-operations"] if options.filter_operations else []),
                         *shlex.split(options.options)]
            if not exact.exists():
                subprocess.run([*record, "--mode", "exact", "--out", str(exact), "--", *command],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            exact_report = report_of(options.memlens, exact)
            true, over, shown = ratios(exact_report), [], None
            for repetition in range(repetitions):
                native = wall_seconds(command)
                taken = wall_seconds([*as_bursts, "--out", str(burst), "--", *command])
                over.append(taken / native)
                burst_report = report_of(options.memlens, burst)
                estimated = ratios(burst_report)
                bursts = str((burst_report["run"]["bursts"] or {}).get("bursts", 0))
                if bursts == "0":
                    shown = shown or (estimated, 0, None, None, (0, 0, 0), bursts)
                    continue
                for (level, _), x, y, z in zip(LEVELS, true, estimated, ratios_at_weights(exact_report, burst_report)):
                    pairs[level].append((x, y))
                    weighed[level].append((x, z, y))
                compared = accuracy.compared(options, exact, burst)
                covered = covered_shares(compared, exact_report, burst_report, "share")
                inside, of = inside + covered[0], of + covered[1]
                otherwise.append(covered[2])
                if exact_report["run"]["core_cycles"] and burst_report["run"]["core_cycles"]:
                    of_stalls = covered_shares(compared, exact_report, burst_report, "stall_share")
                    stalls = [stalls[0] + of_stalls[0], stalls[1] + of_stalls[1]]
                if true[2] >= 100 * LEAST_RATIO:
                    subprocess.run([*as_bursts, "--model", "umi", "--out", str(burst), "--", *command],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False)
                    ratio_of[name] = true[2]
                    models = loads.setdefault(name, {"ours": [], "umi": []})
                    models["ours"].append(compared["delinquent_loads"] or NOTHING_FOUND)
                    models["umi"].append(accuracy.compared(options, exact, burst)["delinquent_loads"]
                                         or NOTHING_FOUND)
                whole = accesses_of(burst_report) / accesses_of(exact_report)
                totals.append(whole)
                shown = shown or (estimated, whole, compared["spearman"], compared["top3"], covered, bursts)
            estimated, whole, spearman, top, covered, bursts = shown
            cells = [name, *(f"{x:.2f} → {y:.2f}" for x, y in zip(true, estimated)), f"{whole:.2f}",
                     "–" if spearman is None else f"{spearman:.2f}", f"{top['common']} of {top['of']}" if top else "–",
                     f"{covered[0]} of {covered[1]}", bursts, f"{statistics.median(over):.3f}"]
            print(line(cells), flush=True)
            is_good = bursts != "0" and (not options.check or abs(true[0] - estimated[0]) <= CHECKED_POINTS)
            passed, failed = passed + is_good, failed + (not is_good)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    for level, _ in LEVELS:
        if pairs[level]:
            found = correlation(pairs[level])
            error = mean([abs(x - y) for x, y in pairs[level]])
            by_weights = mean([abs(x - z) for x, z, _ in weighed[level]])
            by_misses = mean([abs(z - y) for _, z, y in weighed[level]])
            print(f"{level}: correlation {'–' if found is None else f'{found:.3f}'}, "
                  f"mean absolute error {error:.2f} points; of weights {by_weights:.2f}, of misses {by_misses:.2f}")
    if totals:
        logarithms = [math.log(whole) for whole in totals]
        within = sum(1 / MOST_OFF <= whole <= MOST_OFF for whole in totals)
        print(f"all accesses over the exact ones: geometric mean {math.exp(mean(logarithms)):.2f}, from {min(totals):.2f} to "
              f"{max(totals):.2f}; typically off by a factor of {math.exp(math.sqrt(mean([x * x for x in logarithms]))):.2f}; "
              f"{within} of {len(totals)} within {1 / MOST_OFF:.2f} and {MOST_OFF:.2f}")
    print(f"objects whose exact share lies in the stated interval: {inside} of {of}; named otherwise than by exact mode: "
          f"{100 * mean(otherwise):.1f} % of the wait, the mean over the runs")
    print(f"objects whose exact share of the stalls lies in the stated interval: {stalls[0]} of {stalls[1]}")
    if loads:
        print_delinquent(loads, ratio_of)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

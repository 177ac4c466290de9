#!/usr/bin/env python3
"""memlens beside the tools it is measured against, in one run: a Markdown table.

    bench/run.py [--quick] [--repetitions N] [--programs A,B] [--tools A,B] [--json FILE]

Every program runs natively, under DynamoRIO with memlens's client doing nothing, under memlens's exact
mode, under cachegrind and callgrind with cache simulation. The repetitions are interleaved (each one runs
every program with every tool) so that a slow minute of the machine hits all tools; the table shows
medians. Output and exit code must be those of the native run. Peak memory is measured in runs of its own
that are not timed: the sum over all processes of their share (PSS), sampled every 2 ms.

--quick: small inputs, one repetition. It shows that everything runs; its ratios are mostly start-up, so it
does not judge them.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from harness import cell, geometric_mean, print_conditions, run_once
from programs import FULL, QUICK, ROOT, choose, prepare, workloads

# What memlens promises against the others: time ratios, and memory.
LIMITS = {
    "geometric mean of memlens / cachegrind": 0.5,
    "largest memlens / cachegrind": 0.9,
    "geometric mean of memlens / callgrind": 0.25,
    "largest (memory under memlens - 200 MB) / native memory": 1.5,
}


def tools(memlens):
    exact = [memlens, "run", "--mode", "exact", "--quiet", "--out", "profile", "--"]
    valgrind = ["valgrind", "-q", "--cache-sim=yes"]
    return {
        "native": ([], {}),
        "DynamoRIO": (exact, {"MEMLENS_EXACT_NULL": "1"}),
        "memlens": (exact, {}),
        "cachegrind": ([*valgrind, "--tool=cachegrind", "--cachegrind-out-file=/dev/null"], {}),
        "callgrind": ([*valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"], {}),
    }


def descendants(pid):
    """The process and all below it."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        try:
            for task in os.listdir(f"/proc/{current}/task"):
                queue += map(int, Path(f"/proc/{current}/task/{task}/children").read_text().split())
        except OSError:
            pass
    return found


def pss_bytes(pid):
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def peak_memory(workload, folder, prefix, environment):
    peak = 0

    def watch(pid):
        nonlocal peak
        while True:
            now = sum(map(pss_bytes, descendants(pid)))
            if now == 0:
                return
            peak = max(peak, now)
            time.sleep(0.002)

    run_once(workload, folder, prefix, environment, watch)
    return peak


def measure(chosen, chosen_tools, repetitions, base):
    seconds = {w.name: {tool: [] for tool in chosen_tools} for w in chosen}
    memory = {w.name: {} for w in chosen}
    expected, failures = {}, []
    for repetition in range(repetitions):
        for workload in chosen:
            folder = workload.folder(base)
            for tool, (prefix, environment) in chosen_tools.items():
                if (workload.name, tool) in failures:
                    continue
                took, outcome, errors = run_once(workload, folder, prefix, environment)
                if expected.setdefault(workload.name, outcome) != outcome:
                    failures.append((workload.name, tool))
                    print(f"{workload.name}: {tool} changed output or exit code ({outcome[1]}): {errors[-300:]}",
                          file=sys.stderr)
                    continue
                seconds[workload.name][tool].append(took)
                print(f"{repetition + 1}/{repetitions} {workload.name:<16} {tool:<11} {took:8.3f} s", file=sys.stderr)
    for workload in chosen:
        folder = workload.folder(base)
        for tool in ("native", "memlens"):
            if tool in chosen_tools and (workload.name, tool) not in failures:
                memory[workload.name][tool] = peak_memory(workload, folder, *chosen_tools[tool])
    medians = {name: {tool: statistics.median(runs) for tool, runs in by_tool.items() if runs}
               for name, by_tool in seconds.items()}
    return medians, memory, failures


def print_table(medians, memory, names, judge):
    """Markdown. Seconds for native, times native for the others."""
    others = [name for name in names if name != "native"]
    print("| program | native, s | " + " | ".join(f"{tool}, × native" for tool in others)
          + " | memlens / cachegrind | memlens / callgrind | memory, MB: native | with memlens |")
    print("|---|" + "---:|" * (len(others) + 5))

    def ratio(row, above, below):
        return row[above] / row[below] if above in row and below in row else None

    for name, row in medians.items():
        cells = [name, cell(row.get("native"), 3), *(cell(ratio(row, tool, "native")) for tool in others)]
        cells += [cell(ratio(row, "memlens", "cachegrind")), cell(ratio(row, "memlens", "callgrind"))]
        for tool in ("native", "memlens"):
            used = memory[name].get(tool)
            cells.append(cell(used / 1e6 if used else None, 0))
        print("| " + " | ".join(cells) + " |")

    def ratios(above, below):
        return [value for row in medians.values() if (value := ratio(row, above, below)) is not None]

    means = [cell(geometric_mean(ratios(tool, "native"))) for tool in others]
    against = [cell(geometric_mean(ratios("memlens", peer))) for peer in ("cachegrind", "callgrind")]
    print("| **geometric mean** | | " + " | ".join([*means, *against]) + " | | |")

    if not judge:
        return
    over = [max(0, (used["memlens"] - 200e6) / used["native"]) for used in memory.values()
            if used.get("memlens") and used.get("native")]
    found = {
        "geometric mean of memlens / cachegrind": geometric_mean(ratios("memlens", "cachegrind")),
        "largest memlens / cachegrind": max(ratios("memlens", "cachegrind"), default=math.nan),
        "geometric mean of memlens / callgrind": geometric_mean(ratios("memlens", "callgrind")),
        "largest (memory under memlens - 200 MB) / native memory": max(over, default=math.nan),
    }
    print("\n| promise | limit | found |\n|---|---:|---:|")
    for what, limit in LIMITS.items():
        value = found[what]
        mark = "" if math.isnan(value) or value <= limit else " **missed**"
        print(f"| {what} | {limit} | {cell(value)}{mark} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=os.environ.get("MEMLENS", str(ROOT / "target/release/memlens")),
                        metavar="FILE", help="default: $MEMLENS, else target/release/memlens")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, metavar="N", help="default 3, with --quick 1")
    parser.add_argument("--programs", metavar="A,B", help="only those whose name begins so")
    parser.add_argument("--tools", metavar="A,B", help="only these; native always runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()

    available = tools(str(Path(options.memlens).resolve()))
    if options.tools:
        wanted = options.tools.split(",")
        if unknown := set(wanted) - set(available):
            sys.exit(f"run.py: no such tool: {', '.join(sorted(unknown))}; there are {', '.join(available)}")
        available = {name: tool for name, tool in available.items() if name in wanted or name == "native"}
    if {"memlens", "DynamoRIO"} & set(available) and not shutil.which(options.memlens):
        sys.exit(f"run.py: no memlens at {options.memlens}: build it (cargo build --release), or leave it out: "
                 "--tools native,cachegrind,callgrind")
    if {"cachegrind", "callgrind"} & set(available) and not shutil.which("valgrind"):
        sys.exit("run.py: no valgrind: scripts/setup.sh bench installs it")
    chosen = choose(workloads(QUICK if options.quick else FULL), options.programs)
    repetitions = options.repetitions or (1 if options.quick else 3)

    with tempfile.TemporaryDirectory(prefix="memlens-bench.") as temporary:
        base = Path(temporary)
        prepare(chosen, base)
        medians, memory, failures = measure(chosen, available, repetitions, base)
    where = print_conditions(repetitions=f"{repetitions} interleaved, medians")
    print_table(medians, memory, available, judge=not options.quick)
    if options.json:
        options.json.write_text(json.dumps({"conditions": where, "repetitions": repetitions, "seconds": medians,
                                            "peak_bytes": memory}, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

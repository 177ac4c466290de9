#!/usr/bin/env python3
"""What `memlens advise` says could be gained, held against what its remedies gain.

    bench/advice.py [--memlens FILE] [--mode burst|exact] [--runs N] [--calibration FILE] [CASE ...]
    bench/advice.py --check         in exact mode, of one machine, that each remedy is told; nothing is timed

Each case of bench/workloads/remedies.c is recorded as it is, and timed as it is and with each remedy in turn, N times. Prints a table
for docs/advise.md: the finding's place, what it is told to gain at most of the modelled time, and the change of time, median and range.
A remedy that is not told has no place. Findings that no remedy here follows are named behind. Exact mode records fewer rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import ROOT, print_conditions

# What is done about each case, by the word that `advise --format json` has for it; and rounds, where exact mode would take too long.
CASES = {
    "gather": (["huge-pages"], 3),
    "walk": (["huge-pages"], 1),
    "columns": (["layout", "pad", "huge-pages"], 1),
    "padding": (["layout", "pad", "huge-pages"], 6),
    "blocks": (["layout", "pad", "huge-pages"], 2),
    "fields": (["split", "huge-pages"], 12),
    "list": (["pack", "huge-pages"], 3),
    "hash": (["shorten", "split", "huge-pages"], 3),
    "false-sharing": (["separate"], 3),
    "competition": (["per-thread"], 3),
    "coordinates": (["sort", "prefetch", "huge-pages"], 3),
    "prefetch": (["prefetch", "huge-pages"], 1),
}
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def compile_case(folder):
    program = folder / "remedies"
    command = ["cc", "-std=gnu11", "-O2", "-g", f"-I{ROOT}/examples/kernels", "-o", program]
    subprocess.run([*command, ROOT / "bench/workloads/remedies.c", "-lpthread"], check=True)
    return program


def seconds(command, remedy):
    huge = remedy == "huge-pages"
    began = time.monotonic()
    result = subprocess.run([*command, "none" if huge else remedy], check=True, capture_output=True,
                            env={**os.environ, **(HUGE_PAGES if huge else {})})
    return time.monotonic() - began, result.stdout


def changes(command, remedies, runs):
    """Remedy -> change of time of each pair of runs. What a remedy prints must be what is printed without."""
    found = {remedy: [] for remedy in remedies}
    for _ in range(runs):
        before, output = seconds(command, "none")
        for remedy in remedies:
            after, same = seconds(command, remedy)
            if same != output:
                sys.exit(f"{command[-1]}: {remedy} prints {same!r}, not {output!r}")
            found[remedy].append(after / before - 1)
    return found


def findings(memlens, mode, folder, command, extra):
    profile = folder / "profile"
    record = [memlens, "run", "-q", "--mode", mode, *extra, "--force", "--out", profile, "--", *command]
    subprocess.run(record, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    advice = subprocess.run([memlens, "advise", "--format", "json", "--top", "20", profile], check=True, capture_output=True)
    found = json.loads(advice.stdout)
    return found["findings"], found["hidden"]


def check(memlens, cases):
    untold = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compile_case(folder)
        for case, (remedies, rounds) in cases.items():
            command = [program, case, "none", str(rounds)]
            told, hidden = findings(memlens, "exact", folder, command, ["--machine", "amd-zen4"])
            words = {it["remedy"] for it in told + hidden}
            untold += [f"{case}: {remedy}" for remedy in remedies if remedy not in words]
            print(f"{case}: {', '.join(it['remedy'] for it in told)}", flush=True)
    if untold:
        sys.exit(f"not told: {'; '.join(untold)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"))
    parser.add_argument("--mode", default="burst", choices=["burst", "exact"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--calibration")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="; ".join(CASES))
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    extra = ["--calibration", arguments.calibration] if arguments.calibration else []
    cases = {case: of for case, of in CASES.items() if not arguments.cases or case in arguments.cases}
    if arguments.check:
        return check(arguments.memlens, cases)
    print_conditions(mode=arguments.mode, pairs=arguments.runs)
    print("| case | remedy | finding | told, of the time | change of time |\n|---|---|---:|---:|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compile_case(folder)
        for case, (remedies, rounds) in cases.items():
            sized = [str(rounds)] if arguments.mode == "exact" else []
            told, hidden = findings(arguments.memlens, arguments.mode, folder, [program, case, "none", *sized], extra)
            measured = changes([program, case], remedies, arguments.runs)
            for remedy in remedies:
                places = [at for at, it in enumerate(told, 1) if it["remedy"] == remedy]
                gains = [told[at - 1]["time_gain_at_most"] for at in places]
                place = " + ".join(map(str, places)) or ("hidden" if any(it["remedy"] == remedy for it in hidden) else "–")
                gain = " + ".join("–" if it is None else f"{100 * it:.0f} %" for it in gains) or "–"
                middle, least, most = (100 * of(measured[remedy]) for of in (statistics.median, min, max))
                change = f"{middle:+.0f} % ({least:+.0f} to {most:+.0f} %)"
                print(f"| `{case}` | {remedy} | {place} | {gain} | {change} |", flush=True)
            others = {it["remedy"] for it in told} - set(remedies)
            if others:
                print(f"| `{case}` | {', '.join(sorted(others))} | told, too | | not tried |", flush=True)


if __name__ == "__main__":
    main()

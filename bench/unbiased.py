#!/usr/bin/env python3
"""How often the known share of an array lies in the interval that sample mode states.

    bench/unbiased.py [--memlens FILE] [--runs N] [--seconds S] [--frequency HZ] [--block N...] [--least PART]

bench/workloads/known.c walks two arrays, three steps of one for each step of the other; every step waits
for memory alike. memlens attaches to it for S seconds; of the time at the two arrays, three quarters
belong to the first. BLOCK says how many steps are walked at a time: 1 (a round takes a microsecond), as
many as take about the interval between samples (where samples and program might march in step), and many
(phases that neighbouring samples share). Fails if fewer than PART of the runs' intervals hold the truth.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST, SECOND = 3, 1


def one_run(options, program, folder, block):
    """The first array's share, its interval and the known share; None if the program could not be seen."""
    rounds = 1 << 40
    target = subprocess.Popen([program, str(rounds), str(FIRST), str(SECOND), str(block)], stdout=subprocess.PIPE)
    try:
        # The arrays are linked.
        target.stdout.readline()
        out = folder / "known.memlens"
        words = ["record", "--force", "--quiet", "--pid", str(target.pid), "--event", "time", "--out", out]
        words += ["--duration", str(options.seconds), "--frequency", str(options.frequency)]
        subprocess.run([str(word) for word in [options.memlens, *words]], check=True)
    finally:
        target.kill()
        target.communicate()
    done = subprocess.run([options.memlens, "report", out, "--format", "json"], check=True, capture_output=True)
    report = json.loads(done.stdout)
    arrays = {}
    for thing in report["objects"]:
        name = thing["name"].removeprefix("heap through ")
        if name in ("first", "second"):
            arrays[name] = thing
    if len(arrays) < 2:
        return None
    first, second = arrays["first"], arrays["second"]
    both = first["share"] + second["share"]
    return first["share"], first["share_ci95"], both * FIRST / (FIRST + SECOND), both, first["samples"]


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--memlens", type=Path, default=ROOT / "target/release/memlens")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--frequency", type=int, default=2000)
    parser.add_argument("--block", type=int, nargs="+", default=[1, 1000, 100000])
    parser.add_argument("--least", type=float, default=0.95)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="memlens-unbiased-") as name:
        folder = Path(name)
        program = folder / "known"
        source = ROOT / "bench/workloads/known.c"
        subprocess.run(["cc", "-O2", "-g", "-o", program, source], check=True)
        for block in options.block:
            runs = [one_run(options, program, folder, block) for _ in range(options.runs)]
            seen = [run for run in runs if run is not None]
            held = sum(low <= truth <= high for _, (low, high), truth, _, _ in seen)
            mean = lambda values: sum(values) / max(len(values), 1)
            error = mean([share - truth for share, _, truth, _, _ in seen])
            width = mean([(high - low) / 2 for _, (low, high), _, _, _ in seen])
            off = mean([(share - truth) ** 2 for share, _, truth, _, _ in seen]) ** 0.5
            print(
                f"block {block}: {held} of {len(seen)} intervals hold the known share "
                f"({options.runs - len(seen)} runs saw too little); mean error "
                f"{100 * error:+.2f} points, root mean square {100 * off:.2f}, half an interval {100 * width:.2f}, "
                f"{100 * mean([both for *_, both, _ in seen]):.1f} % of the time at the arrays",
                flush=True,
            )
            failed += held < options.least * len(seen) or 2 * len(seen) < options.runs
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

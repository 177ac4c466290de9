#!/usr/bin/env python3
"""Runs random instructions natively and in exact mode: all that are defined end in the same state.

    tests/random_code.py [--memlens FILE] [--files N]

A file has 100 pieces of 1 to 80 instructions, of the generator that the bursts are tested with
(crates/memlens-burst/tests/random_code.rs). Pieces with instructions that leave flags undefined are run, too, but not
compared: DynamoRIO may use such flags for itself. The last line is `N passed, N failed`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 5


def generator():
    """The test's program, built."""
    command = ["cargo", "test", "--release", "-p", "memlens", "-p", "memlens-burst", "--test", "random_code", "--no-run",
               "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "random_code":
            return message["executable"]
    sys.exit("cargo built no random_code")


def states(prefix, program, files, folder):
    out = folder / "states"
    out.unlink(missing_ok=True)
    environment = os.environ | {"MEMLENS_STATES": str(files), "MEMLENS_STATES_OUT": str(out)}
    command = [*prefix, program, "states_of_random_code", "--test-threads=1"]
    run = subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         timeout=600)
    if run.returncode or not out.exists():
        print(f"{prefix[0] if prefix else 'natively'}: ended with {run.returncode}: {run.stderr.strip()[-500:]}")
        print("0 passed, 1 failed")
        sys.exit(1)
    return out.read_text().splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"))
    parser.add_argument("--files", type=int, default=80)
    arguments = parser.parse_args()
    program = generator()
    with tempfile.TemporaryDirectory(prefix="memlens-random-code.") as name:
        folder = Path(name)
        exact = [Path(arguments.memlens).resolve(), "run", "--mode", "exact", "-q", "--out", folder / "profile", "--"]
        native, ours = states([], program, arguments.files, folder), states(exact, program, arguments.files, folder)
    passed = failed = 0
    for alone, recorded in zip(native, ours, strict=True):
        if alone.split()[2] != "defined":
            continue
        passed += alone == recorded
        failed += alone != recorded
        if alone != recorded and failed <= SHOWN:
            print(f"natively  {alone}\nin exact mode {recorded}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks of what memlens does, one function each: how they fail, and how what they found is told."""

import subprocess


class Failure(Exception):
    """What was found is not what was to be."""


class Skipped(Exception):
    """It cannot be checked here, and why."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


def run_each(checks):
    """Runs checks, pairs of a name and a function without arguments. Prints how each ended, and last how many did so; returns the exit code."""
    passed, failed = 0, 0
    for name, check in checks:
        try:
            check()
            passed += 1
            print(f"ok      {name}")
        except (Failure, subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAILED  {name}: {error}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0

#!/usr/bin/env python3
"""Holds memlens's exact mode against cachegrind, each with a run of its own: the same references.

    tests/live_cachegrind.py [--memlens FILE] [--raw] [NAME...]

tests/cachegrind.py shows that the two *simulators* agree on one and the same trace, to the unit. This test
shows that two *recorders* agree on a program: every program runs once under memlens with
`--machine cachegrind`, and once under cachegrind. The two runs are made as alike as they can be:

- the environment is the one that valgrind gives its programs (its wrapper and its preloaded library change
  what the dynamic linker does);
- GLIBC_TUNABLES takes out of glibc's choice of string functions what valgrind's processor lacks;
- no address space randomisation.

What stays different is start-up code that asks the processor or the kernel what they are (valgrind answers
for another processor and hides the vDSO), and lazy binding, whose xsave valgrind cuts into pieces. So data reads (Dr) and data writes (Dw) must agree within
0.5 % or within STARTUP references, whichever is more. Misses are shown beside it. See docs/accuracy.md.

--raw leaves environment and tunables as they are, which shows what the equalising does.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import ROOT, cachegrind_counts, cachegrind_summary, check_names, compiled

GEOMETRY = {"I1": "32768,8,64", "D1": "32768,8,64", "LL": "8388608,16,64"}
# The two names of a cache.
MEMLENS_NAME = {"I1": "l1i", "D1": "l1d", "LL": "llc"}
COLUMNS = ("Dr", "Dw", "D1mr", "D1mw", "DLmr", "DLmw")

TOLERANCE = 0.005
# References of start-up that may differ: cpuid-dependent set-up in ld.so and the kernel's auxiliary vector.
STARTUP = 1500

# Names of the features that glibc 2.36 knows and valgrind 3.19's processor lacks.
TUNABLES = "glibc.cpu.hwcaps=" + ",".join(
    "-" + feature for feature in ("AVX512F", "AVX512VL", "AVX512BW", "AVX512CD", "AVX512DQ", "RTM", "XSAVEC", "FSRM"))


def packed(folder):
    (folder / "lines").write_text("".join(f"{i * 7919 % 1009} line {i}\n" for i in range(4000)))
    return ["gzip", "-c", "lines"]


PROGRAMS = {
    "true": lambda folder: ["/bin/true"],
    "ls": lambda folder: ["ls", "-l", "/usr/include"],
    "gzip": packed,
    "bfs": compiled("examples/bfs/bfs.c", "10"),
    "matmul": compiled("examples/kernels/matmul.c", "48"),
    "string_instructions": compiled("tests/programs/string_instructions.c"),
}


def run(command, folder, environment):
    result = subprocess.run(["setarch", "-R", *command], cwd=folder, env=environment, capture_output=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.decode(errors='replace')[-400:]}")
    return result.stdout.decode(errors="replace")


def valgrinds_environment(folder, environment):
    """What a program sees under valgrind."""
    seen = run(["valgrind", "-q", "--tool=none", "env"], folder, environment)
    return dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)


def by_cachegrind(command, folder, environment):
    out = folder / "cachegrind.out"
    levels = [f"--{name}={size}" for name, size in GEOMETRY.items()]
    run(["valgrind", "-q", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}", *levels, *command],
        folder, environment)
    return cachegrind_summary(out)


def by_memlens(memlens, command, folder, environment):
    profile = folder / "profile"
    caches = [f"--cache={MEMLENS_NAME[name]}={size}" for name, size in GEOMETRY.items()]
    run([memlens, "record", "--mode", "exact", "--quiet", "--force", "--machine", "cachegrind", *caches,
         "--out", str(profile), "--", *command], folder, environment)
    return cachegrind_counts(run([memlens, "report", str(profile), "--format", "json"], folder, os.environ))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"), metavar="FILE")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    for need in ("valgrind", "setarch"):
        if not shutil.which(need):
            sys.exit(f"live_cachegrind.py: no {need}: scripts/setup.sh test installs it")
    memlens = shutil.which(options.memlens)
    if not memlens:
        sys.exit(f"live_cachegrind.py: no memlens at {options.memlens}: build it (cargo build --release)")
    memlens = str(Path(memlens).resolve())
    check_names(parser, options.names, PROGRAMS)
    base = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C"}
    passed = failed = 0
    for name in options.names or PROGRAMS:
        with tempfile.TemporaryDirectory(prefix="memlens-live.") as temporary:
            folder = Path(temporary)
            try:
                command = PROGRAMS[name](folder)
                if options.raw:
                    ours_environment = theirs_environment = base
                else:
                    theirs_environment = {**base, "GLIBC_TUNABLES": TUNABLES}
                    ours_environment = valgrinds_environment(folder, theirs_environment)
                theirs = by_cachegrind(command, folder, theirs_environment)
                ours = by_memlens(memlens, command, folder, ours_environment)
                wrong = [column for column in ("Dr", "Dw")
                         if abs(ours[column] - theirs[column]) > max(STARTUP, TOLERANCE * theirs[column])]
                failed += bool(wrong)
                passed += not wrong
                shown = "  ".join(f"{c} {ours[c]} / {theirs[c]} ({100 * (ours[c] / max(1, theirs[c]) - 1):+.2f} %)"
                                  for c in COLUMNS)
                print(f"{name:<20} {'FAILED ' + ', '.join(wrong) + ': ' if wrong else ''}{shown}", flush=True)
            except (RuntimeError, OSError, KeyError, StopIteration, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"{name:<20} FAILED: {error!r}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

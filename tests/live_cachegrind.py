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
for another processor and hides the vDSO), and lazy binding, whose xsave valgrind cuts into pieces. So instructions (Ir), data
reads (Dr) and data writes (Dw) must agree within 0.5 % or within STARTUP references, and misses of instruction fetches (I1mr,
ILmr) within 0.5 % or STARTUP_LINES, whichever is more. Misses of data are shown beside it.
See docs/accuracy.md.

--raw leaves environment and tunables as they are, which shows what the equalising does.
"""

import os
import sys

from peers import by_cachegrind, cachegrind_machine, compare_each, compiled, counts_of, memlens_at, parsed, run

# bytes, ways, line of I1, D1, LL.
GEOMETRY = ((32768, 8, 64), (32768, 8, 64), (8388608, 16, 64))
COLUMNS = ("Ir", "I1mr", "ILmr", "Dr", "Dw", "D1mr", "D1mw", "DLmr", "DLmw")

TOLERANCE = 0.005
# References of start-up that may differ: cpuid-dependent set-up in ld.so, the kernel's auxiliary vector, the vDSO. Instructions differ by
# up to 3,100 on a core with AVX-512 and AMX, where `_dl_tunable_set_hwcaps` alone has 2,400 more than under valgrind.
STARTUP = 4000
# Lines of code of that start-up: some 1,100 lines are executed there in all.
STARTUP_LINES = 60

# Names of the features that glibc 2.36 knows and valgrind 3.19's processor lacks; and what it prefers where there is RTM, before it
# reads here that there is none.
TUNABLES = "glibc.cpu.hwcaps=" + ",".join(
    "-" + feature for feature in ("AVX512F", "AVX512VL", "AVX512BW", "AVX512CD", "AVX512DQ", "RTM", "XSAVEC", "FSRM",
    "Prefer_No_VZEROUPPER"))


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


def valgrinds_environment(folder, environment):
    """What a program sees under valgrind."""
    seen = run(["valgrind", "-q", "--tool=none", "env"], folder, environment)
    return dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)


def recorded(memlens, command, folder, environment):
    profile = folder / "profile"
    run([memlens, "record", "--mode", "exact", "--fetches", "--quiet", "--force", *cachegrind_machine(GEOMETRY),
         "--out", str(profile), "--", *command], folder, environment)
    return counts_of(memlens, profile)


def main():
    options = parsed(__doc__, PROGRAMS, "--raw")
    memlens = memlens_at(options.memlens)
    base = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C"}

    def compare(command, folder):
        if options.raw:
            ours_environment = theirs_environment = base
        else:
            theirs_environment = {**base, "GLIBC_TUNABLES": TUNABLES}
            ours_environment = valgrinds_environment(folder, theirs_environment)
        theirs = by_cachegrind(command, GEOMETRY, folder, theirs_environment)
        ours = recorded(memlens, command, folder, ours_environment)
        allowed = {"Ir": STARTUP, "Dr": STARTUP, "Dw": STARTUP, "I1mr": STARTUP_LINES, "ILmr": STARTUP_LINES}
        wrong = [column for column, startup in allowed.items()
                 if abs(ours[column] - theirs[column]) > max(startup, TOLERANCE * theirs[column])]
        shown = "  ".join(f"{c} {ours[c]} / {theirs[c]} ({100 * (ours[c] / max(1, theirs[c]) - 1):+.2f} %)"
                          for c in COLUMNS)
        yield f"{'FAILED ' + ', '.join(wrong) + ': ' if wrong else ''}{shown}", bool(wrong)

    return compare_each(options.names, PROGRAMS, compare)


if __name__ == "__main__":
    sys.exit(main())

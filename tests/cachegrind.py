#!/usr/bin/env python3
"""Holds memlens's `cachegrind` machine against cachegrind itself: the same program, the same misses.

    tests/cachegrind.py [--memlens FILE | --twin] [NAME...]

Each program runs twice under valgrind without address space randomisation: once with cachegrind, once with
lackey, whose trace goes through `memlens import lackey --machine cachegrind` with the same geometry. Data
misses of both levels, of reads and of writes, must be equal to the unit. References are shown beside it:
lackey itself executes a few dozen instructions more at exit, so they may differ by those.

--twin takes, in memlens's place, a simulator of thirty lines in this file, which shows that the
comparison is sound.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import ROOT, cachegrind_counts, cachegrind_summary, check_names, compiled

# bytes, ways, line of I1, D1, LL. The second has a last level whose size is no power of two (3 MiB, 4096 sets
# of 12), the third is small enough that everything misses.
GEOMETRIES = [
    ((32768, 8, 64), (32768, 8, 64), (8388608, 16, 64)),
    ((32768, 8, 64), (49152, 12, 64), (3145728, 12, 64)),
    ((4096, 1, 32), (2048, 2, 32), (16384, 4, 32)),
]


def sorted_lines(folder):
    (folder / "lines").write_text("".join(f"{i * 7919 % 1009}\n" for i in range(500)))
    return ["sort", "-n", "lines"]


PROGRAMS = {
    "bfs": compiled("examples/bfs/bfs.c", "8"),
    "matmul": compiled("examples/kernels/matmul.c", "24"),
    "tree": compiled("examples/kernels/tree.c", "300"),
    "gups": compiled("examples/kernels/gups.c", "13", "4000"),
    "string_instructions": compiled("tests/programs/string_instructions.c"),
    "sort": sorted_lines,
    "ls": lambda folder: ["ls", "-l", "/usr/include"],
}
COLUMNS = ("D1mr", "D1mw", "DLmr", "DLmw")


def valgrind(tool, options, command, folder):
    run = subprocess.run(["setarch", "-R", "valgrind", "-q", f"--tool={tool}", *options, *command], cwd=folder,
                         capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
    if run.returncode:
        raise RuntimeError(f"valgrind --tool={tool} {' '.join(command)}: {run.stderr[-400:]}")


def by_cachegrind(command, geometry, folder):
    out = folder / "cachegrind.out"
    levels = [f"--{name}={size},{ways},{line}" for name, (size, ways, line) in zip(("I1", "D1", "LL"), geometry)]
    valgrind("cachegrind", ["--cache-sim=yes", f"--cachegrind-out-file={out}", *levels], command, folder)
    return cachegrind_summary(out)


def by_memlens(memlens, trace, geometry, folder):
    caches = [f"--cache={name}={size},{ways},{line}"
              for name, (size, ways, line) in zip(("l1i", "l1d", "llc"), geometry)]
    profile = folder / "profile"
    for command in ([memlens, "import", "lackey", str(trace), "--machine", "cachegrind", *caches, "--force",
                     "--out", str(profile)],
                    [memlens, "report", str(profile), "--format", "json"]):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{' '.join(command)}: {run.stderr[-400:]}")
    return cachegrind_counts(run.stdout)


class Level:
    """A set-associative LRU cache by cachegrind's rules (cg_sim.c, valgrind 3.19): an access that straddles
    two lines touches both and counts once."""

    def __init__(self, size, ways, line):
        self.line, self.ways = line, ways
        self.sets = [[] for _ in range(size // line // ways)]

    def misses(self, address, size):
        first, last = address // self.line, (address + size - 1) // self.line
        missed = False
        for block in range(first, last + 1):
            lines = self.sets[block % len(self.sets)]
            if block in lines:
                lines.remove(block)
            else:
                missed = True
                if len(lines) == self.ways:
                    lines.pop()
            lines.insert(0, block)
        return missed


def by_twin(_, trace, geometry, __):
    i1, d1, ll = (Level(*level) for level in geometry)
    counts = dict.fromkeys(("Dr", "Dw", *COLUMNS), 0)
    with open(trace) as lines:
        for line in lines:
            if line[:3] not in ("I  ", " L ", " S ", " M "):
                continue
            address, size = line[3:].split(",")
            address, size = int(address, 16), int(size)
            if line[0] == "I":
                if i1.misses(address, size):
                    ll.misses(address, size)
                continue
            # cachegrind counts a modify as a read.
            kind = "w" if line[1] == "S" else "r"
            counts["D" + kind] += 1
            if d1.misses(address, size):
                counts["D1m" + kind] += 1
                if ll.misses(address, size):
                    counts["DLm" + kind] += 1
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"), metavar="FILE")
    parser.add_argument("--twin", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    for need in ("valgrind", "setarch"):
        if not shutil.which(need):
            sys.exit(f"cachegrind.py: no {need}: scripts/setup.sh test installs it")
    if not options.twin and not shutil.which(options.memlens):
        sys.exit(f"cachegrind.py: no memlens at {options.memlens}: build it (cargo build --release), or give --twin")
    check_names(parser, options.names, PROGRAMS)
    other = by_twin if options.twin else by_memlens
    passed = failed = 0
    for name in options.names or PROGRAMS:
        with tempfile.TemporaryDirectory(prefix="memlens-cachegrind.") as temporary:
            folder = Path(temporary)
            try:
                command = PROGRAMS[name](folder)
                trace = folder / "lackey.trace"
                valgrind("lackey", ["--trace-mem=yes", f"--log-file={trace}"], command, folder)
                for number, geometry in enumerate(GEOMETRIES, 1):
                    theirs = by_cachegrind(command, geometry, folder)
                    ours = other(options.memlens, trace, geometry, folder)
                    wrong = [f"{c} {ours[c]}, not {theirs[c]}" for c in COLUMNS if ours[c] != theirs[c]]
                    passed, failed = passed + (not wrong), failed + bool(wrong)
                    shown = " ".join(f"{c} {theirs[c]}" for c in COLUMNS)
                    print(f"{name:<20} geometry {number}: {'FAILED: ' + ', '.join(wrong) if wrong else shown}"
                          f"  (references {ours['Dr'] + ours['Dw'] - theirs['Dr'] - theirs['Dw']:+d})", flush=True)
            except (RuntimeError, OSError, KeyError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"{name:<20} FAILED: {error!r}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

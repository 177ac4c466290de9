#!/usr/bin/env python3
"""Holds memlens's `cachegrind` machine against cachegrind itself: the same program, the same misses.

    tests/cachegrind.py [--memlens FILE | --twin] [NAME...]

Each program runs twice under valgrind without address space randomisation: once with cachegrind, once with
lackey, whose trace goes through `memlens import lackey --machine cachegrind` with the same geometry. Misses of
instruction fetches, reads and writes in both levels must be equal to the unit. References are shown beside it:
lackey itself may execute a few dozen instructions more at exit.

--twin takes, in memlens's place, a simulator of thirty lines in this file, which shows that the
comparison is sound.
"""

import sys
from functools import partial

from peers import by_cachegrind, cachegrind_machine, compare_each, compiled, counts_of, memlens_at, parsed, run

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
COLUMNS = ("I1mr", "ILmr", "D1mr", "D1mw", "DLmr", "DLmw")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


def imported(memlens, trace, geometry):
    profile = trace.parent / "profile"
    run([memlens, "import", "lackey", str(trace), *cachegrind_machine(geometry), "--force", "--out", str(profile)],
        trace.parent)
    return counts_of(memlens, profile)


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


def by_twin(trace, geometry):
    i1, d1, ll = (Level(*level) for level in geometry)
    counts = dict.fromkeys(("Ir", "Dr", "Dw", *COLUMNS), 0)
    with open(trace) as lines:
        for line in lines:
            if line[:3] not in ("I  ", " L ", " S ", " M "):
                continue
            address, size = line[3:].split(",")
            address, size = int(address, 16), int(size)
            if line[0] == "I":
                counts["Ir"] += 1
                if i1.misses(address, size):
                    counts["I1mr"] += 1
                    counts["ILmr"] += ll.misses(address, size)
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
    options = parsed(__doc__, PROGRAMS, "--twin")
    if options.twin:
        other = by_twin
    else:
        other = partial(imported, memlens_at(options.memlens))

    def compare(command, folder):
        trace = folder / "lackey.trace"
        lackey = ["valgrind", "-q", "--tool=lackey", "--trace-mem=yes", f"--log-file={trace}"]
        run([*lackey, *command], folder, ENVIRONMENT)
        for number, geometry in enumerate(GEOMETRIES, 1):
            theirs = by_cachegrind(command, geometry, folder, ENVIRONMENT)
            ours = other(trace, geometry)
            wrong = [f"{c} {ours[c]}, not {theirs[c]}" for c in COLUMNS if ours[c] != theirs[c]]
            shown = f"FAILED: {', '.join(wrong)}" if wrong else " ".join(f"{c} {theirs[c]}" for c in COLUMNS)
            references = ours["Dr"] + ours["Dw"] - theirs["Dr"] - theirs["Dw"]
            fetches = ours["Ir"] - theirs["Ir"]
            yield f"geometry {number}: {shown}  (references {references:+d}, fetches {fetches:+d})", bool(wrong)

    return compare_each(options.names, PROGRAMS, compare)


if __name__ == "__main__":
    sys.exit(main())

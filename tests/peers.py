"""What the scripts that hold memlens against cachegrind share: their options, programs, how they are run and
compared, cachegrind's output, memlens's totals."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import side_by_side

ROOT = Path(__file__).resolve().parent.parent


def parsed(description, programs, switch):
    """The script's options: `memlens`, the switch `switch`, and the `names` of programs, all if none is given.
    Ends the script when valgrind is missing, or a program is asked for that it does not have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"), metavar="FILE")
    parser.add_argument(switch, action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    for need in ("valgrind", "setarch"):
        if not shutil.which(need):
            sys.exit(f"{parser.prog}: no {need}: scripts/setup.sh test installs it")
    if unknown := set(options.names) - set(programs):
        parser.error(f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(programs)}")
    options.names = options.names or list(programs)
    return options


def memlens_at(name):
    """The file of memlens, wherever it is run from. Ends the script when there is none."""
    found = shutil.which(name)
    if not found:
        sys.exit(f"{Path(sys.argv[0]).name}: no memlens at {name}: build it (cargo build --release)")
    return str(Path(found).resolve())


def compare_each(names, programs, compare):
    """Makes each program in a folder of its own and prints what `compare(command, folder)` yields of it: pairs of
    a line and whether it is wrong. Returns the script's exit code."""
    def compared(name):
        """Its lines."""
        lines = []
        with tempfile.TemporaryDirectory(prefix="memlens-peers.") as temporary:
            folder = Path(temporary)
            try:
                for pair in compare(programs[name](folder), folder):
                    lines.append(pair)
            except (RuntimeError, OSError, KeyError, subprocess.CalledProcessError) as error:
                lines.append((f"FAILED: {error!r}", True))
        return lines

    passed = failed = 0

    def tell(name, lines):
        nonlocal passed, failed
        for line, is_wrong in lines:
            passed, failed = passed + (not is_wrong), failed + is_wrong
            print(f"{name:<20} {line}", flush=True)

    # valgrind has one thread: a program a processor.
    side_by_side(compared, names, os.cpu_count(), tell)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def compiled(source, *arguments):
    """A function that compiles a C file of the repository into a folder and returns the command to run it."""
    def command(folder):
        output = folder / Path(source).stem
        subprocess.run(["cc", "-std=gnu11", "-O2", "-g", "-pthread", "-o", output, ROOT / source], check=True)
        return [str(output), *arguments]
    return command


def run(command, folder, environment=os.environ):
    """What a command prints, run without address space randomisation."""
    result = subprocess.run(["setarch", "-R", *command], cwd=folder, env=environment, capture_output=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.decode(errors='replace')[-400:]}")
    return result.stdout.decode(errors="replace")


def by_cachegrind(command, geometry, folder, environment):
    """cachegrind's totals of a program, by event. `geometry` has bytes, ways and line of I1, D1 and LL."""
    out = folder / "cachegrind.out"
    levels = [f"--{name}={size},{ways},{line}" for name, (size, ways, line) in zip(("I1", "D1", "LL"), geometry)]
    run(["valgrind", "-q", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}", *levels, *command],
        folder, environment)
    lines = out.read_text().splitlines()
    events = next(line for line in lines if line.startswith("events:")).split()[1:]
    summary = next(line for line in lines if line.startswith("summary:")).split()[1:]
    return dict(zip(events, map(int, summary)))


def cachegrind_machine(geometry):
    """Options that make memlens simulate the same caches."""
    caches = [f"--cache={name}={size},{ways},{line}"
              for name, (size, ways, line) in zip(("l1i", "l1d", "llc"), geometry)]
    return ["--machine", "cachegrind", *caches]


def counts_of(memlens, profile):
    """The totals of a profile, by cachegrind's events. To cachegrind a modify is a read; memlens counts it as a
    load and as a store."""
    totals = json.loads(run([memlens, "report", str(profile), "--format", "json"], profile.parent))["totals"]
    return {"Dr": totals["loads"], "Dw": totals["stores"] - totals["modifies"],
            "D1mr": totals["l1_load_misses"], "D1mw": totals["l1_store_misses"],
            "DLmr": totals["llc_load_misses"], "DLmw": totals["llc_store_misses"],
            "Ir": totals["fetches"], "I1mr": totals["l1i_misses"], "ILmr": totals["llci_misses"]}

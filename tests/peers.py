"""What the scripts that hold memlens against cachegrind share: programs, cachegrind's output, memlens's totals."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def compiled(source, *arguments):
    """A function that compiles a C file of the repository into a folder and returns the command to run it."""
    def command(folder):
        output = folder / Path(source).stem
        subprocess.run(["cc", "-std=gnu11", "-O2", "-g", "-pthread", "-o", output, ROOT / source], check=True)
        return [str(output), *arguments]
    return command


def cachegrind_summary(path):
    """The totals of a cachegrind.out file, by event."""
    lines = path.read_text().splitlines()
    events = next(line for line in lines if line.startswith("events:")).split()[1:]
    summary = next(line for line in lines if line.startswith("summary:")).split()[1:]
    return dict(zip(events, map(int, summary)))


def cachegrind_counts(report):
    """The totals of a JSON report, by cachegrind's events. To cachegrind a modify is a read; memlens counts it as
    a load and as a store."""
    totals = json.loads(report)["totals"]
    return {"Dr": totals["loads"], "Dw": totals["stores"] - totals["modifies"],
            "D1mr": totals["l1_load_misses"], "D1mw": totals["l1_store_misses"],
            "DLmr": totals["llc_load_misses"], "DLmw": totals["llc_store_misses"]}


def check_names(parser, names, programs):
    """Ends the script when a program is asked for that it does not have."""
    if unknown := set(names) - set(programs):
        parser.error(f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(programs)}")

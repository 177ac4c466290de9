#!/usr/bin/env python3
"""What sampling and bursts cost programs, beside other profilers, in one run: a Markdown table.

    bench/sample.py [--quick] [--threads] [--repetitions N] [--programs A,B] [--tools A,B] [--options "WORDS"]
                    [--json FILE]

Every program runs natively, under memlens's sample and burst modes at their defaults, under perf record with copied
stacks, heaptrack, DynamoRIO alone (exact mode with a client that does nothing) and valgrind's dhat, as far as they are
installed. The repetitions are interleaved. A ratio is that of the
fastest runs, because all else that the machine does only adds time; behind it stands the range of the ratios within
each repetition, which says how quiet the machine was.

What counts is how long the *program* takes. It is started by a shell that opens a pipe and then becomes the program:
the pipe's end is the program's end, whatever the tool does before and after. What memlens needs in all beyond that, in sample mode, is
a column of its own. heaptrack, DynamoRIO and dhat do their work inside the program, so their whole time counts. A server's
time is that of its client's requests.

--quick: small inputs, one repetition, not judged: it shows that everything runs.
"""

import argparse
import json
import math
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness import cell, command_output, geometric_mean, print_conditions, run_once
from programs import LONG, QUICK, ROOT, Workload, allocators, choose, languages, prepare, servers, threaded, workloads

# What memlens promises: program time under a mode, times native, in the geometric mean and at most.
LIMITS = {"sample": (1.02, 1.05), "burst": (1.03, 1.06)}


class Tool:
    """A prefix to the program's command. `is_inside`: it works in the program, so its whole time counts. What
    takes twenty times as long needs no repetitions."""

    def __init__(self, prefix, is_inside=False, is_slow=False, environment=None):
        self.prefix, self.is_inside, self.is_slow = prefix, is_inside, is_slow
        self.environment = environment or {}


def tools(memlens, options):
    """Those that are installed, and the names of the others."""
    def mode(name, *more, **how):
        return Tool([memlens, "record", "--mode", name, "--quiet", *more, "--out", "profile", "--"], **how)
    all_tools = {
        "native": Tool([]),
        "sample": mode("sample", *options),
        "burst": mode("burst", *options),
        "perf, dwarf": Tool(["perf", "record", "--quiet", "--event", "cpu-clock:u", "--call-graph", "dwarf", "--output",
                             "profile", "--"]),
        "heaptrack": Tool(["heaptrack", "--output", "profile"], is_inside=True),
        "DynamoRIO": mode("exact", is_inside=True, is_slow=True, environment={"MEMLENS_EXACT_NULL": "1"}),
        "dhat": Tool(["valgrind", "-q", "--tool=dhat", "--dhat-out-file=/dev/null"], is_inside=True,
                     is_slow=True),
    }
    missing = [name for name, tool in all_tools.items() if tool.prefix and not shutil.which(tool.prefix[0])]
    return {name: tool for name, tool in all_tools.items() if name not in missing}, missing


class Stopwatch:
    """Times a program from its first moment to its last, through whatever starts it."""

    def __init__(self, folder):
        self.path = folder / "stopwatch"
        self.path.unlink(missing_ok=True)
        os.mkfifo(self.path)
        self.seconds = None
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def command(self, command):
        # The shell opens the pipe and becomes the program; nobody else has it open.
        return ["sh", "-c", 'exec 9>"$0"; exec "$@"', str(self.path), *command]

    def watch(self):
        with open(self.path, "rb", buffering=0) as pipe:
            began = time.monotonic()
            while pipe.read(1):
                pass
            self.seconds = time.monotonic() - began

    def stop(self):
        # If the program never started, somebody else has to open the pipe.
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass
        self.thread.join()
        return self.seconds


def run_timed(workload, folder, tool):
    """Seconds of the program, seconds in all, what came out, and messages."""
    driven = {}
    watch = None
    if workload.drive:
        def watch(_):
            try:
                driven["seconds"] = workload.drive(folder)
            except (OSError, ValueError) as error:
                driven["error"] = error
    stopwatch = None if tool.is_inside else Stopwatch(folder)
    command = workload.command if tool.is_inside else stopwatch.command(workload.command)
    started = Workload(workload.name, command, workload.stdin)
    seconds, outcome, errors = run_once(started, folder, tool.prefix, tool.environment, watch)
    own = stopwatch.stop() if stopwatch else seconds
    if workload.drive:
        own = driven.get("seconds", math.nan)
    # heaptrack prints to the program's output; what a server prints has times and numbers of processes.
    is_comparable = not tool.is_inside and not workload.drive
    return own, seconds, outcome if is_comparable else outcome[1:], errors


def measure(chosen, chosen_tools, repetitions, base):
    """For each program and tool the program's seconds, and the tool's beyond them, a repetition each."""
    own = {w.name: {tool: [] for tool in chosen_tools} for w in chosen}
    beyond = {w.name: {tool: [] for tool in chosen_tools} for w in chosen}
    expected, failures = {}, []
    for repetition in range(repetitions):
        for workload in chosen:
            for name, tool in chosen_tools.items():
                if (workload.name, name) in failures or tool.is_slow and repetition > 0:
                    continue
                seconds, whole, outcome, errors = run_timed(workload, workload.folder(base), tool)
                wanted = expected.setdefault(workload.name, outcome)
                if outcome != wanted[-len(outcome):] or math.isnan(seconds):
                    failures.append((workload.name, name))
                    print(f"{workload.name}: {name} changed output or exit code ({outcome}): {errors[-300:]}",
                          file=sys.stderr)
                    continue
                own[workload.name][name].append(seconds)
                beyond[workload.name][name].append(whole - seconds)
                print(f"{repetition + 1}/{repetitions} {workload.name:<20} {name:<11} {seconds:8.3f} s, "
                      f"{whole - seconds:6.3f} s beyond", file=sys.stderr)
    return own, beyond, failures


def ratio(runs, tool):
    """The tool's fastest run over the fastest native one, and the ratios within each repetition."""
    mine, native = runs.get(tool), runs["native"]
    if not mine or not native:
        return None, []
    return min(mine) / min(native), [a / b for a, b in zip(mine, native)]


def print_table(own, beyond, names, judge):
    others = [name for name in names if name != "native"]
    print("| program | native, s | " + " | ".join(f"{name}, × native" for name in others)
          + " | beyond the program, s |")
    print("|---|" + "---:|" * (len(others) + 2))
    found = {tool: [] for tool in others}
    for program, runs in own.items():
        cells = [program, cell(min(runs["native"], default=None), 3)]
        for tool in others:
            best, within = ratio(runs, tool)
            if best is None:
                cells.append("–")
                continue
            found[tool].append(best)
            spread = f" ({min(within):.3f}–{max(within):.3f})" if len(within) > 1 else ""
            cells.append(f"{best:.3f}{spread}")
        after = beyond[program].get("sample")
        cells.append(cell(statistics.median(after) if after else None))
        print("| " + " | ".join(cells) + " |")
    means = {tool: geometric_mean(found[tool]) for tool in others}
    print("| **geometric mean** | | " + " | ".join(cell(means[tool], 3) for tool in others) + " | |")
    if not judge:
        return
    print("\n| promise | limit | found |\n|---|---:|---:|")
    for mode, limits in LIMITS.items():
        reached = [means.get(mode, math.nan), max(found.get(mode, []), default=math.nan)]
        for what, limit, value in zip(["geometric mean of", "largest"], limits, reached):
            mark = "" if math.isnan(value) or value <= limit else " **missed**"
            print(f"| {what} {mode} / native | {limit} | {cell(value, 3)}{mark} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=os.environ.get("MEMLENS", str(ROOT / "target/release/memlens")),
                        metavar="FILE", help="default: $MEMLENS, else target/release/memlens")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, metavar="N", help="default 5, with --quick 1")
    parser.add_argument("--programs", metavar="A,B", help="only those whose name begins so")
    parser.add_argument("--threads", action="store_true", help="other programs: of one thread up to as many as there are processors")
    parser.add_argument("--tools", metavar="A,B", help="only those whose name begins so; native always runs")
    parser.add_argument("--options", default="", metavar="WORDS", help="more options for memlens record")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()

    available, missing = tools(str(Path(options.memlens).resolve()), shlex.split(options.options))
    if "sample" in missing:
        sys.exit(f"sample.py: no memlens at {options.memlens}: build it (cargo build --release)")
    for name in missing:
        print(f"sample.py: {name} left out: not installed (scripts/setup.sh bench)", file=sys.stderr)
    if options.tools:
        starts = ("native", *options.tools.split(","))
        available = {name: tool for name, tool in available.items() if name.startswith(starts)}
    length = QUICK if options.quick else LONG
    offered = threaded(length) if options.threads else \
        workloads(length) + languages(length) + allocators(length) + servers(length)
    chosen = choose(offered, options.programs)
    repetitions = options.repetitions or (1 if options.quick else 5)
    with tempfile.TemporaryDirectory(prefix="memlens-bench.") as temporary:
        base = Path(temporary)
        prepare(chosen, base)
        own, beyond, failures = measure(chosen, available, repetitions, base)
    where = print_conditions(perf=command_output("perf", "--version"), heaptrack=command_output("heaptrack", "--version"),
                             memlens_options=options.options or "defaults",
                             repetitions=f"{repetitions} interleaved, the fastest, and ranges")
    print_table(own, beyond, available, judge=not options.quick)
    if options.json:
        figures = {"conditions": where, "program_seconds": own, "beyond_seconds": beyond}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

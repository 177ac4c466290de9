#!/usr/bin/env python3
"""memlens beside the tools it is measured against, in one run: a Markdown table.

    bench/run.py [--quick] [--repetitions N] [--programs A,B] [--tools A,B] [--json FILE]

Every program runs natively, under DynamoRIO with memlens's client doing nothing, under memlens's exact
mode, under cachegrind and callgrind with cache simulation. The repetitions are interleaved (each one runs
every program with every tool) so that a slow minute of the machine hits all tools; the table shows
medians. Output and exit code must be those of the native run. Peak memory is measured in runs of its own
that are not timed: the sum over all processes of their share (PSS), sampled every 2 ms.

--quick: small inputs, one repetition. It shows that everything runs; its ratios are mostly start-up, so it
does not judge them.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
KERNELS = ROOT / "examples/kernels"

# What memlens promises against the others: time ratios, and memory.
LIMITS = {
    "geometric mean of memlens / cachegrind": 0.5,
    "largest memlens / cachegrind": 0.9,
    "geometric mean of memlens / callgrind": 0.25,
    "largest (memory under memlens - 200 MB) / native memory": 1.5,
}


class Workload:
    """A program with its arguments, and how to get it ready in a folder."""

    def __init__(self, name, command, stdin=None, prepare=None, needs=None):
        self.name, self.command, self.stdin, self.prepare, self.needs = name, command, stdin, prepare, needs


def compile_c(source):
    def prepare(folder):
        output = folder / source.stem
        subprocess.run(["cc", "-std=gnu11", "-O2", "-g", "-pthread", "-o", output, source], check=True)
    return prepare


def sql_script(rows):
    def prepare(folder):
        (folder / "script.sql").write_text(f"""
            create table t (id integer primary key, k integer, name text);
            with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
            insert into t select i, i * 7919 % 10007, printf('row %08d', i * 104729 % 1000003) from n;
            create index tk on t (k);
            select count(*), sum(k) from t where name like '%7%';
            select name from t order by name desc limit 10;
            select a.k, count(*) from t a join t b on a.k = b.id group by a.k order by 2 desc, 1 limit 10;
            update t set k = k + 1 where id % 3 = 0;
            select sum(k) from t;
        """)
    return prepare


def number_file(count):
    def prepare(folder):
        with open(folder / "input", "w") as file:
            for i in range(count):
                file.write(f"{i * 7919 % 1000003} {i}\n")
    return prepare


def workloads(quick):
    def size(small, full):
        return str(small if quick else full)
    python = os.path.realpath(sys.executable)
    return [
        Workload("BFS", ["./bfs", size(13, 16), "16", "1", size(2, 8)], prepare=compile_c(ROOT / "examples/bfs/bfs.c")),
        Workload("matrix multiply", ["./matmul", size(120, 450)], prepare=compile_c(KERNELS / "matmul.c")),
        Workload("binary tree", ["./tree", size(10000, 60000)], prepare=compile_c(KERNELS / "tree.c")),
        Workload("SpMV", ["./spmv", size(10000, 200000), "16", size(2, 20)], prepare=compile_c(KERNELS / "spmv.c")),
        Workload("RandomAccess", ["./gups", size(14, 22)], prepare=compile_c(KERNELS / "gups.c")),
        Workload("sqlite3", ["sqlite3", ":memory:"], stdin="script.sql", prepare=sql_script(3000 if quick else 100000),
                 needs="sqlite3"),
        Workload("CPython", [python, str(HERE / "workloads/cpython.py"), size(5, 150)]),
        Workload("xz", ["xz", "-6", "-T1", "-k", "-c", "input"], prepare=number_file(3000 if quick else 25000), needs="xz"),
    ]


def tools(memlens):
    exact = [memlens, "run", "--mode", "exact", "--quiet", "--out", "profile", "--"]
    valgrind = ["valgrind", "-q", "--cache-sim=yes"]
    return {
        "native": ([], {}),
        "DynamoRIO": (exact, {"MEMLENS_EXACT_NULL": "1"}),
        "memlens": (exact, {}),
        "cachegrind": ([*valgrind, "--tool=cachegrind", "--cachegrind-out-file=/dev/null"], {}),
        "callgrind": ([*valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"], {}),
    }


class Wrong(Exception):
    pass


def start(workload, folder, prefix, environment, stdout):
    shutil.rmtree(folder / "profile", ignore_errors=True)
    (folder / "profile").unlink(missing_ok=True)
    stdin = open(folder / workload.stdin, "rb") if workload.stdin else subprocess.DEVNULL
    try:
        return subprocess.Popen([*prefix, *workload.command], cwd=folder, stdin=stdin, stdout=stdout,
                                stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C", **environment})
    finally:
        if workload.stdin:
            stdin.close()


def run_once(workload, folder, prefix, environment, watch=None):
    """Seconds, and what came out: its digest and the exit code. `watch` gets the process id."""
    with open(folder / "stdout", "w+b") as stdout:
        began = time.monotonic()
        process = start(workload, folder, prefix, environment, stdout)
        if watch:
            watcher = threading.Thread(target=watch, args=(process.pid,))
            watcher.start()
        errors = process.communicate()[1]
        seconds = time.monotonic() - began
        if watch:
            watcher.join()
        stdout.seek(0)
        digest = hashlib.file_digest(stdout, "sha256").hexdigest()
    return seconds, (digest, process.returncode), errors.decode(errors="replace")


def descendants(pid):
    """The process and all below it."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        try:
            for task in os.listdir(f"/proc/{current}/task"):
                queue += map(int, Path(f"/proc/{current}/task/{task}/children").read_text().split())
        except OSError:
            pass
    return found


def pss_bytes(pid):
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def peak_memory(workload, folder, prefix, environment):
    peak = 0

    def watch(pid):
        nonlocal peak
        while True:
            now = sum(map(pss_bytes, descendants(pid)))
            if now == 0:
                return
            peak = max(peak, now)
            time.sleep(0.002)

    run_once(workload, folder, prefix, environment, watch)
    return peak


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def command_output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip().split("\n")[0]
    except OSError:
        return ""


def conditions():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown processor")
    return {
        "date": datetime.date.today().isoformat(),
        "processor": f"{model}, {os.cpu_count()} logical",
        "kernel": platform.release(),
        "compiler": command_output("cc", "--version"),
        "valgrind": command_output("valgrind", "--version"),
        "commit": command_output("git", "rev-parse", "--short", "HEAD") or "none",
    }


def measure(chosen, chosen_tools, repetitions, base):
    seconds = {w.name: {tool: [] for tool in chosen_tools} for w in chosen}
    memory = {w.name: {} for w in chosen}
    expected, failures = {}, []
    for repetition in range(repetitions):
        for workload in chosen:
            folder = base / workload.name.replace(" ", "-")
            for tool, (prefix, environment) in chosen_tools.items():
                if (workload.name, tool) in failures:
                    continue
                took, outcome, errors = run_once(workload, folder, prefix, environment)
                if expected.setdefault(workload.name, outcome) != outcome:
                    failures.append((workload.name, tool))
                    print(f"{workload.name}: {tool} changed output or exit code ({outcome[1]}): {errors[-300:]}",
                          file=sys.stderr)
                    continue
                seconds[workload.name][tool].append(took)
                print(f"{repetition + 1}/{repetitions} {workload.name:<16} {tool:<11} {took:8.3f} s", file=sys.stderr)
    for workload in chosen:
        folder = base / workload.name.replace(" ", "-")
        for tool in ("native", "memlens"):
            if tool in chosen_tools and (workload.name, tool) not in failures:
                memory[workload.name][tool] = peak_memory(workload, folder, *chosen_tools[tool])
    medians = {name: {tool: statistics.median(runs) for tool, runs in by_tool.items() if runs}
               for name, by_tool in seconds.items()}
    return medians, memory, failures


def print_table(medians, memory, names, judge):
    """Markdown. Seconds for native, times native for the others."""
    others = [name for name in names if name != "native"]
    print("| program | native, s | " + " | ".join(f"{tool}, × native" for tool in others)
          + " | memlens / cachegrind | memlens / callgrind | memory, MB: native | with memlens |")
    print("|---|" + "---:|" * (len(others) + 5))

    def ratio(row, above, below):
        return row[above] / row[below] if above in row and below in row else None

    def cell(value, digits=2):
        return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"

    for name, row in medians.items():
        cells = [name, cell(row.get("native"), 3), *(cell(ratio(row, tool, "native")) for tool in others)]
        cells += [cell(ratio(row, "memlens", "cachegrind")), cell(ratio(row, "memlens", "callgrind"))]
        for tool in ("native", "memlens"):
            used = memory[name].get(tool)
            cells.append(cell(used / 1e6 if used else None, 0))
        print("| " + " | ".join(cells) + " |")

    def ratios(above, below):
        return [value for row in medians.values() if (value := ratio(row, above, below)) is not None]

    means = [cell(geometric_mean(ratios(tool, "native"))) for tool in others]
    against = [cell(geometric_mean(ratios("memlens", peer))) for peer in ("cachegrind", "callgrind")]
    print("| **geometric mean** | | " + " | ".join([*means, *against]) + " | | |")

    if not judge:
        return
    over = [max(0, (used["memlens"] - 200e6) / used["native"]) for used in memory.values()
            if used.get("memlens") and used.get("native")]
    found = {
        "geometric mean of memlens / cachegrind": geometric_mean(ratios("memlens", "cachegrind")),
        "largest memlens / cachegrind": max(ratios("memlens", "cachegrind"), default=math.nan),
        "geometric mean of memlens / callgrind": geometric_mean(ratios("memlens", "callgrind")),
        "largest (memory under memlens - 200 MB) / native memory": max(over, default=math.nan),
    }
    print("\n| promise | limit | found |\n|---|---:|---:|")
    for what, limit in LIMITS.items():
        value = found[what]
        mark = "" if math.isnan(value) or value <= limit else " **missed**"
        print(f"| {what} | {limit} | {cell(value)}{mark} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=os.environ.get("MEMLENS", str(ROOT / "target/release/memlens")),
                        metavar="FILE", help="default: $MEMLENS, else target/release/memlens")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, metavar="N", help="default 3, with --quick 1")
    parser.add_argument("--programs", metavar="A,B", help="only those whose name begins so")
    parser.add_argument("--tools", metavar="A,B", help="only these; native always runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()

    available = tools(str(Path(options.memlens).resolve()))
    if options.tools:
        wanted = options.tools.split(",")
        if unknown := set(wanted) - set(available):
            sys.exit(f"run.py: no such tool: {', '.join(sorted(unknown))}; there are {', '.join(available)}")
        available = {name: tool for name, tool in available.items() if name in wanted or name == "native"}
    if {"memlens", "DynamoRIO"} & set(available) and not shutil.which(options.memlens):
        sys.exit(f"run.py: no memlens at {options.memlens}: build it (cargo build --release), or leave it out: "
                 "--tools native,cachegrind,callgrind")
    if {"cachegrind", "callgrind"} & set(available) and not shutil.which("valgrind"):
        sys.exit("run.py: no valgrind: scripts/setup.sh bench installs it")
    chosen = workloads(options.quick)
    if options.programs:
        starts = tuple(word.strip().lower() for word in options.programs.split(","))
        chosen = [w for w in chosen if w.name.lower().startswith(starts)]
    for workload in [w for w in chosen if w.needs and not shutil.which(w.needs)]:
        print(f"run.py: {workload.name} left out: no {workload.needs}", file=sys.stderr)
        chosen.remove(workload)
    if not chosen:
        sys.exit("run.py: no program left")
    repetitions = options.repetitions or (1 if options.quick else 3)

    with tempfile.TemporaryDirectory(prefix="memlens-bench.") as temporary:
        base = Path(temporary)
        for workload in chosen:
            folder = base / workload.name.replace(" ", "-")
            folder.mkdir()
            if workload.prepare:
                workload.prepare(folder)
        medians, memory, failures = measure(chosen, available, repetitions, base)
    where = conditions()
    print("\n".join(f"- {key}: {value}" for key, value in where.items()))
    print(f"- {repetitions} interleaved repetitions, medians\n")
    print_table(medians, memory, available, judge=not options.quick)
    if options.json:
        options.json.write_text(json.dumps({"conditions": where, "repetitions": repetitions, "seconds": medians,
                                            "peak_bytes": memory}, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Holds what bursts say of misses against full simulation of the same accesses, program by program.

    bench/locality.py [--memlens FILE] [--machine NAME] [--sampling LENGTH/EVERY]... [--seeds N] [--limit N]
                      [--keep FOLDER] [--check] [NAME...]

Each program is recorded once by exact mode with a trace of its accesses, the first 60 million unless --limit says
otherwise. The example `held_against_exact` of memlens-locality simulates them all, cuts bursts of LENGTH out of each
EVERY references at random places, and estimates from those and from how many pages were touched by then: once by reuse
times, once by the mini-simulation of Zhao et al. (UMI). Printed are a table of programs, and of each sampling the
correlation and mean absolute error of miss ratios (misses / data accesses), by which factor they are off, and the quality of
delinquent loads in the measures of their table 6.
With --seeds each sampling is drawn so many times, and each draw counts as a program: a few bursts more or less in one phase move a ratio
as much as most changes of the model do.

--keep keeps traces and results, and takes those that are there of the same samplings. --check takes only the programs that are quick and
fails where an estimate is further than LEAST from the simulation. The last line is `N passed, N failed, N skipped`.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "examples/kernels"
WORKLOADS = ROOT / "bench/workloads"
COMPILERS = {
    ".c": ["cc", "-std=gnu11", "-O2", "-g", "-pthread", "-o", "{target}", "{source}", "-lm"],
    ".cpp": ["c++", "-std=c++17", "-O2", "-g", "-o", "{target}", "{source}"],
    ".f90": ["gfortran", "-O2", "-g", "-o", "{target}", "{source}"],
    ".rs": ["rustc", "--edition", "2024", "-C", "opt-level=2", "-g", "-o", "{target}", "{source}"],
}
SQL = """create table t(a integer primary key, b integer, c text);
with recursive n(x) as (select 1 union all select x+1 from n where x<20000)
insert into t select x, (x*7919)%100003, 'row '||x from n;
create index tb on t(b);
select count(*), sum(b), max(c) from t where b between 1000 and 50000;
select t1.a, t2.a from t t1 join t t2 on t1.b=t2.a where t1.c like '%7%' order by t2.b limit 5;
"""
PYTHON = """import random
random.seed(5)
d = {}
for i in range(40000):
    k = random.randrange(1 << 20); d[k] = d.get(k, 0) + i
t = 0
for k, v in sorted(d.items(), key=lambda x: x[1]): t += k ^ v
print(t, len("".join(map(str, d.keys()))))
"""
PERL = """my %h; my $s = 12345;
for my $i (1..60000) { $s = ($s * 1103515245 + 12345) & 0x7fffffff; $h{$s % 50000} .= "x$i,"; }
my $n = 0; for my $k (sort { $a <=> $b } keys %h) { $n += length $h{$k}; } print "$n\\n";
"""
LUA = """local t = {} local s = 1
for i = 1, 150000 do s = (s * 16807) % 2147483647 t[i] = {s % 1000, i} end
table.sort(t, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
print(t[1][2], t[#t][2])
"""
INPUTS = {"q.sql": SQL, "p.py": PYTHON, "p.pl": PERL, "l.lua": LUA}
# Name, source or None, command; words with {folder} are files of the folder.
PROGRAMS = [
    ("gups", KERNELS / "gups.c", ["20"]),
    ("spmv", KERNELS / "spmv.c", ["60000", "12", "6"]),
    ("matmul", KERNELS / "matmul.c", ["220"]),
    ("tree", KERNELS / "tree.c", ["60000"]),
    ("anneal", KERNELS / "anneal.c", []),
    ("lists", WORKLOADS / "lists.rs", ["131072", "3"]),
    ("join", WORKLOADS / "join.rs", ["262144", "4"]),
    ("stencil", WORKLOADS / "stencil.f90", ["900", "6"]),
    ("particles", WORKLOADS / "particles.cpp", ["100000", "4"]),
    ("dijkstra", WORKLOADS / "dijkstra.cpp", ["50000", "1"]),
    ("sqlite", None, ["sqlite3", ":memory:", ".read {folder}/q.sql"]),
    ("python", None, ["python3", "-S", "{folder}/p.py"]),
    ("perl", None, ["perl", "{folder}/p.pl"]),
    ("lua", None, ["lua", "{folder}/l.lua"]),
    ("xz", None, ["xz", "-k", "-c", "-2", "{folder}/text"]),
    ("gzip", None, ["gzip", "-k", "-c", "{folder}/text"]),
    ("bzip2", None, ["bzip2", "-k", "-c", "{folder}/text"]),
    ("zstd", None, ["zstd", "-c", "-T1", "-5", "{folder}/text"]),
    ("sort", None, ["sort", "-n", "{folder}/text"]),
]
LEVELS = ["L1", "L2", "LLC", "dTLB", "STLB"]
SAMPLINGS = ["20000/100000", "100000/1000000", "1000000/10000000"]
# Factors say nothing of ratios below …
LEAST_RATIO = 0.0002
# … and an estimate of nothing counts as one that is too low by so much.
MOST_FACTOR = 50
# For --check: arguments, and how far estimates of L1, L2 and LLC may be from the simulation, in points.
LEAST = {"gups": (["18"], 4), "spmv": (["8000", "12", "6"], 4), "matmul": (["100"], 4)}


def prepared(name, source, arguments, folder):
    """The command to record, or why there is none."""
    if source is not None:
        compiler = [word.format(target=folder / name, source=source) for word in COMPILERS[source.suffix]]
        if shutil.which(compiler[0]) is None:
            return None, f"no {compiler[0]}"
        subprocess.run(compiler, check=True, capture_output=True)
        return [str(folder / name), *arguments], None
    program = shutil.which(arguments[0])
    if program is None:
        return None, f"no {arguments[0]}"
    return [program, *(word.format(folder=folder) for word in arguments[1:])], None


def traced(options, folder, name, command):
    trace = folder / "traces" / name
    if not (trace / "accesses").exists():
        trace.parent.mkdir(exist_ok=True)
        line = [options.memlens, "record", "--force", "--quiet", "--mode", "exact", "--machine", "cachegrind",
                "--trace", "parquet", "--trace-limit", str(options.limit), "--trace-out", trace,
                "--out", folder / "profile", "--", *command]
        subprocess.run([str(word) for word in line], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder / "profile", ignore_errors=True)
    return trace


def kept(results):
    """What the example printed for each sampling; nothing where it has not run."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def correlation(pairs):
    """Pearson's, as in the paper; None where one side does not vary."""
    if len(pairs) < 3 or any(len(set(side)) == 1 for side in zip(*pairs)):
        return None
    return statistics.correlation(*zip(*pairs))


def mean(values):
    return statistics.fmean(values) if values else None


def cell(value, digits=2, scale=1):
    return "–" if value is None or math.isnan(value) else f"{scale * value:.{digits}f}"


def programs_table(results, sampling):
    print(f"\nBursts of {sampling.replace('/', ' in each ')} references: miss ratios in percent, simulated / estimated\n")
    print("| program | references | bursts | " + " | ".join(LEVELS) + " | UMI, LLC |")
    print("|---|" + "---:|" * (len(LEVELS) + 3))
    for result in results:
        pairs = [f"{cell(exact, 2, 100)} / {cell(ours, 2, 100)}" for exact, ours in zip(result["exact"], result["ours"])]
        words = [result["trace"], f"{result['references'] / 1e6:.1f} M", str(result["bursts"]), *pairs, cell(result["umi"], 2, 100)]
        print("| " + " | ".join(words) + " |")


def quality(results, key, level, least):
    """Means of recall, false positives and coverage over programs with at least this miss ratio."""
    found = [result[key] for result in results if result["exact"][level] >= least]
    some = lambda measure: mean([one[measure] for one in found if one[measure] is not None])
    return [str(len(found)), cell(some("recall")), cell(some("false_positives")), cell(some("predicted_coverage"))]


def summary_tables(by_sampling):
    print("\n| bursts | of | programs | correlation, mean error (points): " + " | ".join(LEVELS) + " | UMI, LLC |")
    print("|---:|---:|---:|" + "---:|" * (len(LEVELS) + 1))
    for sampling, results in by_sampling.items():
        words = []
        for level in range(len(LEVELS)):
            pairs = [(result["exact"][level], result["ours"][level]) for result in results]
            words.append(f"{cell(correlation(pairs), 4)}, {cell(mean([abs(a - b) for a, b in pairs]), 2, 100)}")
        pairs = [(result["exact"][2], result["umi"]) for result in results if result["umi"] is not None]
        words.append(f"{cell(correlation(pairs), 4)}, {cell(mean([abs(a - b) for a, b in pairs]), 2, 100)}")
        print(f"| {' | '.join(sampling.split('/'))} | {len(results)} | " + " | ".join(words) + " |")
    print("\n| bursts | of | delinquent loads | programs | recall | false positives | coverage |")
    print("|---:|---:|---|---:|---:|---:|---:|")
    for sampling, results in by_sampling.items():
        for what, key, level in [("ours, L1", "delinquent_l1", 0), ("ours, L2", "delinquent_l2", 1),
                                 ("ours, LLC", "delinquent_llc", 2), ("UMI, LLC", "delinquent_umi", 2)]:
            for least, words in [(0.01, "miss ratio ≥ 1 %"), (0.0, "all")]:
                found = quality(results, key, level, least)
                print(f"| {' | '.join(sampling.split('/'))} | {what}, {words} | {' | '.join(found)} |")


def factors_table(by_sampling):
    """By which factor ratios are off, without its sign and with it, and which part of the misses is the wrong owners'."""
    print("\n| bursts | of | off by, and on the whole: " + " | ".join(LEVELS) + " | wrong owners: " + " | ".join(LEVELS) + " |")
    print("|---:|---:|" + "---:|" * (2 * len(LEVELS)))
    for sampling, results in by_sampling.items():
        words = []
        for level in range(len(LEVELS)):
            some = [result for result in results if result["exact"][level] >= LEAST_RATIO]
            logs = [math.log(max(one["ours"][level] / one["exact"][level], 1 / MOST_FACTOR)) for one in some]
            words.append(f"{cell(math.exp(mean(map(abs, logs))))}, {cell(math.exp(mean(logs)))}" if logs else "–")
        for level in range(len(LEVELS)):
            off = [result["owners"][level][2] for result in results if result["exact"][level] >= LEAST_RATIO]
            words.append(cell(mean([one for one in off if one is not None]), 2))
        print(f"| {' | '.join(sampling.split('/'))} | " + " | ".join(words) + " |")


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    parser.add_argument("--memlens", type=Path, default=target / "release/memlens")
    parser.add_argument("--example", type=Path, default=target / "release/examples/held_against_exact")
    parser.add_argument("--machine", default="e5504")
    parser.add_argument("--sampling", action="append")
    parser.add_argument("--seeds", type=int, default=1, help="how many times each sampling is drawn")
    parser.add_argument("--limit", type=int, default=60_000_000)
    parser.add_argument("--keep", type=Path, help="folder for programs, traces and results")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if not options.example.exists():
        subprocess.run(["cargo", "build", "--release", "-p", "memlens-locality", "--example", "held_against_exact"],
                       check=True, cwd=ROOT)
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="memlens-locality-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in INPUTS.items():
        (folder / name).write_text(text)
    (folder / "text").write_bytes(b"".join(b"%d %d\n" % (i * 7919 % 10007, i * i) for i in range(80_000)))
    samplings = options.sampling or (SAMPLINGS[:1] if options.check else SAMPLINGS)
    by_sampling = {sampling: [] for sampling in samplings}
    passed = failed = skipped = 0
    try:
        for name, source, arguments in PROGRAMS:
            if options.check and name not in LEAST or options.names and name not in options.names:
                continue
            command, why = prepared(name, source, LEAST[name][0] if options.check else arguments, folder)
            if command is None:
                skipped += 1
                print(f"{name}: skipped, {why}", flush=True)
                continue
            results = folder / f"{name}.json"
            drawn = [f"{sampling}/{seed}" for sampling in samplings for seed in range(options.seeds)]
            found = kept(results)
            if [f"{one['length']}/{one['every']}/{one.get('seed')}" for one in found] != drawn:
                trace = traced(options, folder, name, command)
                line = [str(options.example), options.machine, str(trace), *drawn]
                results.write_text(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
                found = kept(results)
            far = []
            for result in found:
                sampling = f"{result['length']}/{result['every']}"
                # Fewer than five bursts are no sample of a program.
                if sampling in by_sampling and result["bursts"] >= 5:
                    by_sampling[sampling].append(result)
                if options.check:
                    for level, exact, ours in zip(LEVELS[:3], result["exact"], result["ours"]):
                        if abs(exact - ours) * 100 > LEAST[name][1]:
                            far.append(f"{level}: {100 * ours:.2f} for {100 * exact:.2f}")
            failed += bool(far)
            passed += not far
            print(f"{name}: {'; '.join(far) or 'ok'}", flush=True)
        for sampling, results in by_sampling.items():
            programs_table(results, sampling)
        summary_tables(by_sampling)
        factors_table(by_sampling)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Holds what bursts record against what exact mode records: each burst's sequence of (instruction, address) must be a part
of exact mode's, whole and in order.

    bench/same_addresses.py [--compare FILE] [--check] [--list] [NAME...]

--compare is the example of memlens-agent-host that runs a program both ways (its head says by which rule addresses are
the same): `cargo build --release -p memlens-agent-host --example same_addresses`. --check: some small runs, in some ten
seconds. NAME picks programs whose name contains it.

Prints a table; the exit code is 1 if something differs or nothing was compared.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ("matmul", "gups", "spmv", "tree", "smallblocks", "anneal")
SQL = ("create table t(a integer primary key, b, c text); with recursive n(i) as (select 1 union all select i+1 from n "
       "where i<{N}) insert into t select i, i*7919%10007, printf('row %d', i) from n; create index tb on t(b); select "
       "count(*), sum(b), max(c) from t; select count(*) from t x join t y on x.b = y.b where x.a < {N}/10;")
PERL = ("my (%h, $s); for my $i (1..{N}) { my $k = 'k' . ($i * 7919 % 1009); $h{$k} .= chr(65 + $i % 26); } "
        "for (sort keys %h) { $s .= $_ if $h{$_} =~ /(AB|CD).*\\1/ } print length($s // ''), ' ', scalar(keys %h);")

# Programs that do the same twice, wherever they are loaded: none that hashes by a random number (Lua, LuaJIT) or by addresses
# (Python's objects, gcc's trees, Tcl's tables), and so takes other ways at other addresses; and none whose heap grows past what
# exact mode's engine has room for behind the break (diff, zstd), and goes on in mappings there.
# Name, command, and {N} for --check and otherwise. {input}: a file of {N} lines; {kernels}: compiled examples/kernels.
PROGRAMS = [
    ("gawk", ["gawk", "BEGIN { for (i = 0; i < {N}; i++) n[i * 7919 % 1009] += i; print length(n), n[3] }"], 20000, 100000),
    ("sqlite3", ["sqlite3", ":memory:", SQL], 1000, 10000),
    ("perl", ["perl", "-e", PERL], 5000, 60000),
    ("sort", ["sort", "--parallel=1", "-k1,1r", "{input}"], 3000, 100000),
    ("sed", ["sed", "-E", "-n", "s/([0-9])([0-9]+)/\\2-\\1/; /7-/p", "{input}"], None, 30000),
    ("grep", ["grep", "-E", "-c", "(12|34)+5?6.*9$", "{input}"], None, 500000),
    ("bc", ["bc", "-l", "{expression}"], None, 300),
    ("gzip", ["gzip", "-9", "-n", "-c", "{input}"], 10000, 100000),
    ("bzip2", ["bzip2", "-9", "-c", "{input}"], None, 60000),
    ("xz", ["xz", "-T1", "-2", "-c", "{input}"], None, 60000),
    ("openssl", ["openssl", "dgst", "-md5", "{input}"], None, 3000000),
    ("matmul", ["{kernels}/matmul", "{N}"], 160, 240),
    ("gups", ["{kernels}/gups", "20", "{N}"], None, 4000000),
    ("spmv", ["{kernels}/spmv", "{N}"], None, 60000),
    ("tree", ["{kernels}/tree", "{N}"], 20000, 60000),
    ("smallblocks", ["{kernels}/smallblocks", "{N}"], None, 1000000),
    ("anneal", ["{kernels}/anneal", "{N}"], None, 100000),
    ("gathers", ["{kernels}/gathers", "{N}"], 5000, 100000),
]


def prepared(command, number, folder):
    """The command's words with what they stand for, which is made."""
    words = {"N": str(number), "kernels": str(folder), "input": str(folder / "input"),
             "expression": str(folder / "expression")}
    text = " ".join(command)
    if "{input}" in text:
        lines = [f"{i} {i * 7919 % 10007} {i * 104729 % 1009:x}" for i in range(number)]
        (folder / "input").write_text("\n".join(lines) + "\n")
    if "{expression}" in text:
        (folder / "expression").write_text(f"scale={number}; 4*a(1); e(1); sqrt(2)\nquit\n")
    made = []
    for word in command:
        for name, value in words.items():
            word = word.replace("{" + name + "}", value)
        made.append(word)
    return made


def compare(options, command, folder):
    out = folder / "outcome.json"
    out.unlink(missing_ok=True)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PERL_HASH_SEED": "0", "HOME": str(folder)}
    # A file: grep does not look for more than one line where nobody reads them.
    with open(folder / "stdout", "wb") as stdout:
        done = subprocess.run([options.compare, "--out", str(out), "--", *command], cwd=folder, env=environment,
                              stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True)
    if not out.exists():
        return None, done.stderr.strip()
    return json.loads(out.read_text()), done.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", default=str(ROOT / "target/release/examples/same_addresses"), metavar="FILE")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.list:
        print("\n".join(name for name, *_ in PROGRAMS))
        return 0
    if not shutil.which(options.compare):
        sys.exit(f"same_addresses.py: no {options.compare}: cargo build --release -p memlens-agent-host --example "
                 "same_addresses")
    options.compare = str(Path(options.compare).resolve())
    total = programs = failed = 0
    print("| program | exact mode's accesses | bursts | accesses compared | that differ | shifts | pages | lost bursts |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="memlens-same-addresses.") as temporary:
        folder = Path(temporary)
        sources = [ROOT / f"examples/kernels/{kernel}.c" for kernel in KERNELS]
        if "avx2" in Path("/proc/cpuinfo").read_text():
            sources.append(ROOT / "bench/workloads/gathers.c")
        for source in sources:
            subprocess.run(["cc", "-O2", "-g", "-pthread", "-o", folder / source.stem, source], check=True)
        for name, command, small, large in PROGRAMS:
            number = small if options.check else large
            if number is None or (options.names and not any(part in name for part in options.names)):
                continue
            command = prepared(command, number, folder)
            if not shutil.which(command[0]):
                print(f"| {name} | not here |")
                continue
            outcome, errors = compare(options, command, folder)
            if outcome is None:
                print(f"| {name} | FAILED: {errors} |", flush=True)
                failed += 1
                continue
            good = outcome["different_bursts"] == 0 and outcome["ended_alike"]
            total += outcome["compared"]
            programs += outcome["compared"] > 0
            failed += not good
            print(f"| {name} | {outcome['exact']:,} | {outcome['bursts']:,} | {outcome['compared']:,} | "
                  f"{outcome['different']:,} | {outcome['shifts']} | {outcome['pages']:,} | {outcome['lost']:,} |"
                  + ("" if outcome["ended_alike"] else " ended otherwise"), flush=True)
            for line in outcome["descriptions"]:
                print(f"    {line}", flush=True)
    print(f"\n{total:,} accesses in {programs} programs compared, {failed} programs with differences")
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())

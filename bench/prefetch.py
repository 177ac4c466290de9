#!/usr/bin/env python3
"""What `memlens apply --prefetch` gains, over programs that gather, scatter and probe at random.

    bench/prefetch.py [--memlens FILE] [--runs N] [--python FILE] [NAME ...]

Each program is recorded in a small run, then measured in a large one. Prints a table for docs/apply.md. Programs in Python need
numpy and scipy in the interpreter of --python; what is missing is left out and named.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TAKE = """
import numpy as np, sys
n = 1 << int(sys.argv[1]); r = np.random.default_rng(1)
a = np.arange(n, dtype=np.float64); i = r.integers(0, n, n // 2)
print(sum(float(np.take(a, i)[0]) for _ in range(int(sys.argv[2]))))
"""
BINCOUNT = """
import numpy as np, sys
n = 1 << int(sys.argv[1]); r = np.random.default_rng(1)
i = r.integers(0, n, n // 2)
print(sum(int(np.bincount(i, minlength=n)[1]) for _ in range(int(sys.argv[2]))))
"""
MATVEC = """
import numpy as np, scipy.sparse as sp, sys
n = 1 << int(sys.argv[1]); r = np.random.default_rng(1); k = 4
column = r.integers(0, n, n * k).astype(np.int32); start = np.arange(0, n * k + 1, k, dtype=np.int32)
a = sp.csr_matrix((np.ones(n * k), column, start), shape=(n, n)); x = np.arange(n, dtype=np.float64)
for _ in range(int(sys.argv[2])): y = a @ x
print(float(y[:10].sum()))
"""


def programs(folder, python):
    """Name -> (arguments of the recorded run, arguments of the measured run); None: it is missing."""
    kernels, spmv, bfs = folder / "kernels", folder / "spmv", folder / "bfs"
    compile_with = ["cc", "-std=gnu11", "-O2", "-g", f"-I{ROOT}/examples/kernels", "-o"]
    for program, source in (
        (kernels, "bench/prefetch/kernels.c"),
        (spmv, "examples/kernels/spmv.c"),
        (bfs, "examples/bfs/bfs.c"),
    ):
        subprocess.run([*compile_with, program, ROOT / source, "-lm"], check=True)
    table = {
        name: ([kernels, name, 17, 4], [kernels, name, 23, passes])
        for name, passes in (
            ("chain", 4), ("select", 12), ("join", 6), ("neighbours", 12), ("histogram", 8), ("scatter", 8), ("updates", 8),
        )
    }
    table["spmv"] = ([spmv, 20000, 8, 4], [spmv, 2000000, 8, 4])
    table["bfs"] = ([bfs, 14, 16, 1, 3], [bfs, 18, 16, 1, 2])
    xz = shutil.which("xz")
    text = folder / "text"
    text.write_bytes(b"".join(path.read_bytes() for path in sorted(ROOT.glob("crates/*/src/*.rs")))[: 3 << 20])
    table["xz"] = ([xz, "-6", "-T1", "-k", "-c", ROOT / "README.md"], [xz, "-6", "-T1", "-k", "-c", text]) if xz else None
    has_numpy = python and subprocess.run([python, "-c", "import numpy, scipy"], capture_output=True).returncode == 0
    for name, script, small, large in (
        ("numpy take", TAKE, (16, 4), (22, 12)),
        ("numpy bincount", BINCOUNT, (16, 4), (22, 12)),
        ("scipy matvec", MATVEC, (15, 4), (21, 8)),
    ):
        table[name] = tuple([python, "-c", script, *size] for size in (small, large)) if has_numpy else None
    return table


def percent(change):
    values = [change[key] * 100 for key in ("estimate", "low", "high")]
    return "{:+.1f} % ({:+.1f} to {:+.1f} %)".format(*values)


def measure(memlens, folder, name, recorded, measured, runs, extra):
    profile = folder / f"{name.replace(' ', '-')}.memlens"
    command = [memlens, "record", "-q", "--mode", "exact", "--force", "--out", profile, "--", *recorded]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    command = [memlens, "apply", "--prefetch", "--format", "json", "--runs", runs, *extra, profile, "--", *measured]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode:
        return f"| `{name}` | {result.stderr.strip().splitlines()[0]} | | | |"
    found = json.loads(result.stdout)
    kept = [group for group in found["groups"] if group["measured"]]
    patterns = ", ".join(f"`{load['pattern']}`" for group in kept for load in group["loads"][:1])
    wall, cpu = (found[key]["change"] for key in ("wall_seconds", "cpu_seconds"))
    if not wall:
        return f"| `{name}` | {found['verdict'][0]} | | | |"
    state = f"{found['distance']} ahead" if found["is_gain"] else "withdrawn"
    same = "" if found["same_output"] else ", output not compared"
    return f"| `{name}` | {patterns} | {percent(wall)} | {percent(cpu)} | {state}{same} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--distance", action="append", default=[])
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    extra = [word for distance in arguments.distance for word in ("--distance", distance)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| program | prefetched | change of time | of processor time | |\n|---|---|---|---|---|", flush=True)
        for name, runs in programs(folder, arguments.python).items():
            if arguments.names and name not in arguments.names:
                continue
            if runs is None:
                print(f"| `{name}` | missing here | | | |", flush=True)
                continue
            print(measure(arguments.memlens, folder, name, *runs, arguments.runs, extra), flush=True)


if __name__ == "__main__":
    main()

"""The programs that benches run, and how each is got ready."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import locality

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
KERNELS = ROOT / "examples/kernels"


class Workload:
    """A program with its arguments, and how to get it ready in a folder. `drive` works for a server: it gets the
    folder, uses the server, ends it, and returns how long that took; otherwise the program's own time counts."""

    def __init__(self, name, command, stdin=None, prepare=None, needs=(), drive=None):
        self.name, self.command, self.stdin, self.prepare = name, command, stdin, prepare
        self.needs, self.drive = needs, drive

    def folder(self, base):
        return base / self.name.replace(" ", "-")


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


def link_redis(folder):
    """Debian's redis-tools has the server under another name; it goes by the one it is called by."""
    (folder / "redis-server").symlink_to(shutil.which("redis-server") or shutil.which("redis-check-rdb"))


def drive_redis(requests):
    """Seconds that redis-benchmark needs for its requests; every one of them is answered, or it fails."""
    def drive(folder):
        socket = str(folder / "socket")
        client = ["redis-cli", "-s", socket]
        for _ in range(600):
            if subprocess.run([*client, "ping"], capture_output=True).returncode == 0:
                break
            time.sleep(0.05)
        began = time.monotonic()
        subprocess.run(["redis-benchmark", "-s", socket, "-q", "-n", str(requests), "-r", "100000", "-t", "set,get,lpush,zadd"],
                       check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        subprocess.run([*client, "shutdown", "nosave"], capture_output=True)
        return seconds
    return drive


def c_source(functions):
    """So many small functions of C, preprocessed, so that a compiler has work."""
    body = "static int f%d(int *p, int n) { int s = %d; for (int i = 0; i < n; i++) { s += p[i] * %d; if (s & %d) s ^= i; }" \
           " switch (s & 7) { case 0: return s + n; case 3: return p[s & 15]; case 5: return s * n; default: return s; } }\n"
    bodies = "".join(body % (k, k * 7919 % 1000, k % 17 + 2, 1 << k % 9) for k in range(functions))
    calls = "".join(f"s += f{k}(p, n);\n" for k in range(functions))
    return f"{bodies}int all(int *p, int n) {{ int s = 0;\n{calls}return s; }}\n"


NODE = """const words = new Map(); let s = 12345;
for (let i = 0; i < Number(process.argv[2]); i++) {
  s = (Math.imul(s, 1103515245) + 12345) & 0x7fffffff;
  const key = "k" + s % 50000; words.set(key, (words.get(key) || 0) + i % 7);
}
const sorted = [...words].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
console.log(sorted.length, sorted[0].join(" "));
"""


def written(name, text):
    def prepare(folder):
        (folder / name).write_text(text)
    return prepare


# Which of a size's three values is meant.
QUICK, FULL, LONG = range(3)


def workloads(length):
    """QUICK runs for moments, FULL for tenths of a second, LONG for one to ten seconds: so long that 1 % can be seen."""
    def size(*sizes):
        return str(sizes[length])
    python = os.path.realpath(sys.executable)
    return [
        Workload("BFS", ["./bfs", size(13, 16, 16), "16", "1", size(2, 8, 1000)],
                 prepare=compile_c(ROOT / "examples/bfs/bfs.c")),
        Workload("matrix multiply", ["./matmul", size(120, 450, 1700)], prepare=compile_c(KERNELS / "matmul.c")),
        Workload("binary tree", ["./tree", size(10000, 60000, 300000), size(40000, 240000, 8000000)],
                 prepare=compile_c(KERNELS / "tree.c")),
        Workload("SpMV", ["./spmv", size(10000, 200000, 200000), "16", size(2, 20, 600)],
                 prepare=compile_c(KERNELS / "spmv.c")),
        Workload("RandomAccess", ["./gups", size(14, 22, 22), size(1 << 16, 1 << 24, 1 << 28)],
                 prepare=compile_c(KERNELS / "gups.c")),
        Workload("sqlite3", ["sqlite3", ":memory:"], stdin="script.sql",
                 prepare=sql_script(int(size(3000, 100000, 1000000))), needs=["sqlite3"]),
        Workload("CPython", [python, str(HERE / "workloads/cpython.py"), size(5, 150, 4000)]),
        Workload("xz", ["xz", "-6", "-T1", "-k", "-c", "input"], prepare=number_file(int(size(3000, 25000, 600000))),
                 needs=["xz"]),
    ]


def languages(length):
    """A compiler, whose code is always new, an interpreter, and one that makes code at run time."""
    def size(*sizes):
        return str(sizes[length])
    cc1 = subprocess.run(["cc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
    return [
        Workload("gcc", [cc1, "-quiet", "-O2", "source.i", "-o", "/dev/null"], needs=[cc1],
                 prepare=written("source.i", c_source(int(size(10, 100, 1500))))),
        Workload("perl", ["perl", "script.pl"], needs=["perl"],
                 prepare=written("script.pl", locality.PERL.replace("60000", size(20000, 600000, 5000000)))),
        Workload("node", ["node", "script.js", size(20000, 1000000, 12000000)], needs=["node"],
                 prepare=written("script.js", NODE)),
    ]


def servers(length):
    """Programs that work for others."""
    requests = [500, 20000, 200000][length]
    return [
        Workload("redis under load", ["./redis-server", "--port", "0", "--unixsocket", "socket", "--save", "",
                                      "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"],
                 prepare=link_redis, drive=drive_redis(requests), needs=["redis-benchmark", "redis-cli"]),
    ]


def allocators(length):
    """Programs that allocate a lot: 1.25 million blocks of 4 to 16 KiB, 20 million small ones."""
    return [
        Workload("large blocks", ["./bigblocks", str([20000, 300000, 1250000][length])],
                 prepare=compile_c(KERNELS / "bigblocks.c")),
        Workload("small blocks", ["./smallblocks", str([200000, 4000000, 20000000][length])],
                 prepare=compile_c(KERNELS / "smallblocks.c")),
    ]


def threaded(length):
    """Programs of as many threads as there are processors, and of halves of that: one that works for a server's threads,
    each as much, and one whose threads meet at barriers, all together as much."""
    lookups, searches = ([100000, 4000000, 30000000][length], [2, 30, 120][length])
    processors = os.cpu_count() or 1
    counts = sorted({max(1, processors >> halves) for halves in range(processors.bit_length())})
    return [
        workload for threads in counts for workload in (
            Workload(f"lookups, {threads} threads", ["./lookups", str(threads), str(lookups)],
                     prepare=compile_c(HERE / "workloads/lookups.c")),
            Workload(f"BFS, {threads} threads", ["./bfsthreads", "16", "16", str(threads), str(searches * threads)],
                     prepare=compile_c(KERNELS / "bfsthreads.c")),
        )
    ]


def choose(offered, names):
    """Those whose name begins with one of NAMES (all, if there are none) and that can run here."""
    starts = tuple(word.strip().lower() for word in names.split(",")) if names else ("",)
    chosen = []
    for workload in offered:
        missing = [need for need in workload.needs if not shutil.which(need)]
        if not workload.name.lower().startswith(starts):
            continue
        if missing:
            print(f"{workload.name} left out: no {', '.join(missing)}", file=sys.stderr)
        else:
            chosen.append(workload)
    if not chosen:
        sys.exit("bench: no program left")
    return chosen


def prepare(chosen, base):
    """Makes each program's folder below BASE."""
    for workload in chosen:
        workload.folder(base).mkdir()
        if workload.prepare:
            workload.prepare(workload.folder(base))

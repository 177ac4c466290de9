#!/usr/bin/env python3
"""Physical bus traces of real programs: the virtual card's capture, its analysis, and what must come out.

    tests/bus.py [--memlens FILE] [--keep FOLDER] [NAME...]

Each program is compiled, captured by `memlens bus capture`, and verified record by record; some have counts
that are derived by hand. The last line is `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import Failure, Skipped

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "examples/kernels"
PROGRAMS = ROOT / "tests/bus"
# Small caches, so that small programs reach memory.
SMALL = ["--machine", "e5504"] + [
    f"--cache={level}" for level in ("l1d=4096,4,64", "l2=16384,4,64", "llc=65536,8,64")
]
# Name, source, arguments, options of the capture.
VERIFIED = [
    ("bfs", ROOT / "examples/bfs/bfs.c", ["11"], []),
    ("bfs-ptat", ROOT / "examples/bfs/bfs.c", ["11"], ["--ptat"]),
    ("gups-thp", KERNELS / "gups.c", ["17", "50000"], ["--thp", "--ptat"]),
    ("spmv", KERNELS / "spmv.c", ["3000"], ["--min-block", "0"]),
    ("anneal-threads", KERNELS / "anneal.c", ["8192", "20000", "4"], []),
    ("copy_on_write", PROGRAMS / "copy_on_write.c", [], []),
    ("copy_on_write-thp", PROGRAMS / "copy_on_write.c", [], ["--thp"]),
    ("remapping", PROGRAMS / "remapping.c", [], []),
    ("shared_memory", PROGRAMS / "shared_memory.c", [], []),
    ("bfs-real", ROOT / "examples/bfs/bfs.c", ["11"], ["--frames", "real"]),
    ("copy_on_write-real", PROGRAMS / "copy_on_write.c", [], ["--frames", "real"]),
    ("remapping-real", PROGRAMS / "remapping.c", [], ["--frames", "real"]),
    ("shared_memory-real", PROGRAMS / "shared_memory.c", [], ["--frames", "real"]),
    ("huge_pages-real", PROGRAMS / "huge_pages.c", [], ["--frames", "real"]),
    ("advice", PROGRAMS / "advice.c", [], []),
    ("advice-thp", PROGRAMS / "advice.c", [], ["--thp=always", "--nodes", "2"]),
]
# Exit code where the kernel does not let one look.
NO_PERMISSION = 77


class Runner:
    def __init__(self, memlens, folder):
        self.memlens, self.folder = memlens, folder

    def build(self, source):
        program = self.folder / source.stem
        if not program.exists():
            command = ["cc", "-std=gnu11", "-O2", "-g", "-pthread", "-o", str(program), str(source)]
            subprocess.run(command, check=True)
        return program

    def bus(self, *words):
        result = subprocess.run([self.memlens, "bus", *map(str, words)], capture_output=True, text=True)
        return result.returncode, result.stdout, result.stderr

    def run(self, *words):
        code, out, err = self.bus(*words)
        if code != 0:
            raise Failure(f"bus {' '.join(map(str, words))}: exit code {code}\n{out}{err}")
        return out

    def capture(self, name, source, arguments, options, machine=SMALL):
        trace = self.folder / f"{name}.bus"
        program = self.build(source)
        native = subprocess.run([program, *arguments], capture_output=True, text=True)
        words = ["capture", "--quiet", "--force", "--out", trace, *machine, *options, "--", program, *arguments]
        code, out, err = self.bus(*words)
        if code == NO_PERMISSION and "real" in options:
            raise Skipped(err.strip())
        if (code, out) != (native.returncode, native.stdout):
            raise Failure(f"{name}: exit code {code}, not {native.returncode}, or other output\n{out}{err}")
        return trace

    def analysis(self, trace):
        return json.loads(self.run("analyze", trace, "--format", "json"))


def objects(found):
    return {row["name"]: row for row in found["objects"]}


def verified(runner, name, source, arguments, options):
    trace = runner.capture(name, source, arguments, options)
    text = runner.run("verify", trace)
    records = int(text.split(" of ")[1].split(" ")[0].replace(",", ""))
    if records < 5000:
        raise Failure(f"{name}: only {records} records")
    runner.run("check", trace)
    size = (trace / "bus.mlbus").stat().st_size
    if size > 4 * records:
        raise Failure(f"{name}: {size / records:.2f} bytes a record")
    print(f"    {text.splitlines()[0]}; {size / records:.2f} bytes a record")


def five_arrays(runner):
    """Chen et al., IV.B: reads of each array are its lines; write-backs are the quarters that are written. The
    walk is the program's last; memset's reads and writes come before, and flushing reads after."""
    bytes_, lines = 1 << 20, 1 << 14
    trace = runner.capture("fivearrays", KERNELS / "fivearrays.c", [str(bytes_), "262144"], [])
    counts = objects(runner.analysis(trace))
    for array in range(5):
        row, writes = counts[f"a{array}"], lines * array // 4
        for what, found, wanted in (("reads", row["reads"], lines), ("writes", row["writes"], writes)):
            if abs(found - wanted) > lines / 1000:
                raise Failure(f"a{array}: {found} {what}, not {wanted}")
    lossy = runner.folder / "fivearrays.lossy.bus"
    runner.run("damage", trace, "--force", "--out", lossy, "--lose", "1e-4")
    found = runner.analysis(lossy)
    if not 0 < found["losses"]["lost_records"] < 100:
        raise Failure(f"lost records: {found['losses']}")
    for array in range(5):
        if abs(objects(found)[f"a{array}"]["reads"] - lines) > lines / 500:
            raise Failure(f"a{array} with losses: {objects(found)[f'a{array}']}")


def around_median(lines, pages):
    """Lines of entries that are near the median one: those of the array."""
    median = sorted(lines)[len(lines) // 2] if lines else 0
    return [line for line in lines if abs(line - median) <= pages // 8 + 2]


def page_walk(runner):
    """Zhang et al., 5.2: each page touched once in order is a miss, in order; more pages than any TLB has."""
    cases = ((4096, 2000, ["--memory", "8"]), (2 << 20, 100, ["--memory", "8", "--thp"]),
             (1 << 30, 10, ["--memory", "24", "--hugetlb", "1g"]))
    for page, pages, options in cases:
        options = ["--start-on", "walk", "--stop-on", "walked", *options]
        arguments = [str(pages), str(page)]
        trace = runner.capture(f"page_walk-{page}", PROGRAMS / "page_walk.c", arguments, ["--ptat", *options])
        rows = [line.split(",") for line in runner.run("dump", trace, "--tlb-misses").splitlines()[1:]]
        found = [int(vaddr, 16) // page // 8 for _, _, _, vaddr, size in rows if int(size) == page]
        # A line has the entries of eight neighbours: pages in order show as eight misses a line.
        # The few others (the stack, the globals) are far away.
        walked = around_median(found, pages)
        in_order = all(after - before in (0, 1) for before, after in zip(walked, walked[1:]))
        if not in_order or len(walked) != pages:
            raise Failure(f"{page}: {len(walked)} misses, in order: {in_order}")
        found = runner.analysis(trace)["walked_pages"]
        # Each entry is read as often as any other: 5 % of them cause 5 % of the reads.
        if page == 4096 and abs(found["top_5_percent"] - 0.05) > 0.005:
            raise Failure(f"the curve of pages that are read equally: {found}")
        # Line by line: each of the array's entries once.
        lines = [line.split(",") for line in runner.run("analyze", trace, "--format", "pages").splitlines()[1:]]
        mine = [line for line in lines if int(line[2]) == page and int(line[1], 16) // page // 8 in set(walked)]
        if sum(int(line[4]) for line in mine) < pages or not all(float(line[5]) <= 1.5 for line in mine):
            raise Failure(f"{page}: {lines[:20]}")
        if sum(int(line[4]) for line in lines) != found["reads"]:
            raise Failure(f"{page}: the lines have other reads than {found['reads']}")
        # With cached tables a line of eight entries is read from memory once, if the caches have lost it: those of
        # 20,000 small pages, but not those of few large ones.
        pages = 20000 if page == 4096 else pages
        arguments = [str(pages), str(page)]
        trace = runner.capture(f"page_walk-{page}-cached", PROGRAMS / "page_walk.c", arguments, options)
        rows = [line.split(",") for line in runner.run("dump", trace, "--tlb-misses").splitlines()[1:]]
        found = [int(vaddr, 16) // page // 8 for _, _, _, vaddr, size in rows if int(size) == page]
        cached = around_median(found, pages) if page == 4096 else found
        if len(cached) != len(set(cached)) or page == 4096 and len(cached) != pages // 8:
            raise Failure(f"{page}, cached tables: {len(cached)} misses on the bus")


def writing_end(pipe):
    """A descriptor to write to a named pipe, once somebody reads it."""
    try:
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    os.set_blocking(end, True)
    return end


def restarted(runner):
    """An analysis that is killed goes on from its checkpoint to the same result. It cannot end before it is
    killed: it waits for the second half of the trace, which comes through a pipe."""
    trace = runner.capture("restarted", KERNELS / "fivearrays.c", [str(1 << 20), "262144"], [])
    expected = runner.run("analyze", trace, "--format", "json")
    bus, checkpoint = trace / "bus.mlbus", runner.folder / "checkpoint"
    whole = bus.read_bytes()
    words = ["analyze", trace, "--format", "json", "--checkpoint", checkpoint, "--checkpoint-every", "1000"]
    bus.unlink()
    os.mkfifo(bus)
    process = subprocess.Popen([runner.memlens, "bus", *map(str, words)], stdout=subprocess.DEVNULL)

    def wait_for(happened):
        while not (result := happened()):
            if process.poll() is not None:
                raise Failure(f"it ended without a checkpoint: {process.returncode}")
            time.sleep(0.01)
        return result

    with os.fdopen(wait_for(lambda: writing_end(bus)), "wb", buffering=0) as pipe:
        pipe.write(whole[: len(whole) * 3 // 4])
        wait_for(checkpoint.exists)
        process.kill()
        process.wait()
    bus.unlink()
    bus.write_bytes(whole)
    sound = checkpoint.read_bytes()
    checkpoint.write_bytes(sound[:-1])
    code, _, err = runner.bus(*words)
    if code != 65 or "is damaged" not in err:
        raise Failure(f"a cut checkpoint: exit code {code}: {err}")
    checkpoint.write_bytes(sound)
    if runner.run(*words) != expected or checkpoint.exists():
        raise Failure("the result is another, or the checkpoint is left")


def page_sizes(runner):
    """How pages of which size and kind map an array of 4 MiB that is touched everywhere: every byte once, in 2-MiB pages
    as far as whole ones fit, wherever it begins. The profile says the same."""
    array, huge = 4 << 20, 2 << 20
    for options, kind in (([], "small"), (["--thp=always"], "transparent"), (["--hugetlb", "2m"], "hugetlb")):
        trace = runner.capture(f"page_sizes-{kind}", KERNELS / "gups.c", ["19", "100"], options)
        row = objects(runner.analysis(trace))["table"]
        small, large = row["bytes_in_4k_pages"], row["bytes_in_2m_pages"]
        if small + large != array or (large < huge if kind != "small" else large > 0):
            raise Failure(f"{options}: {row}")
        kinds = {other: large if other == kind else 0 for other in ("transparent", "hugetlb")}
        if {other: row[f"bytes_in_{other}_pages"] for other in kinds} != kinds:
            raise Failure(f"{options}: {row}")
        profile = runner.folder / f"page_sizes-{kind}.memlens"
        text = runner.run("analyze", trace, "--force", "--out", profile)
        if "Page sizes" not in text or "% hugetlb" not in text:
            raise Failure(text)
        words = [runner.memlens, "report", profile]
        report = json.loads(subprocess.run([*words, "--format", "json"], capture_output=True, check=True).stdout)
        table = next(row for row in report["objects"] if row["name"] == "table")
        wanted = {"small_bytes": small, "untold_huge_bytes": 0, "gigantic_bytes": 0, "zero_bytes": 0, "swapped_bytes": 0, "node_bytes": None}
        wanted |= {f"{other}_bytes": size for other, size in kinds.items()}
        if table["backing"] != wanted:
            raise Failure(f"{options}: the profile has {table['backing']}, the trace {wanted}")
        lines = {"dram_reads": "reads", "dram_writes": "writes", "loads": None, "llc_misses": None, "wait_cycles": None}
        if {word: table[word] for word in lines} != {word: row.get(of) for word, of in lines.items()}:
            raise Failure(f"{options}: {table}, in the trace {row}")
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        if not any(" table " in line and " heap " in line for line in shown.splitlines()):
            raise Failure(shown)
        shown = subprocess.run([*words, "--object", str(table["id"])], capture_output=True, text=True, check=True).stdout
        if not any("in pages" in line and (kind == "small" or kind in line) for line in shown.splitlines()):
            raise Failure(shown)


def series(runner):
    """A table of two sizes: captured by `memlens series`, and the same from the traces that it keeps. The larger one has
    more lines on the bus."""
    program = runner.build(KERNELS / "gups.c")
    kept = runner.folder / "series"
    options = ["--values", "15,16", *SMALL, "--out", kept, "--force", "--format", "csv"]
    words = [runner.memlens, "series", *options, "--", program, "{}", "5000"]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if result.returncode != 0:
        raise Failure(f"exit code {result.returncode}: {result.stderr}")
    rows = {tuple(row[:3]): row[3:] for row in (line.split(",") for line in result.stdout.splitlines()[1:])}
    from_traces = runner.run("series", "--format", "csv", kept / "15.bus", kept / "16.bus")
    values = lambda text: [line.split(",")[3:] for line in text.splitlines()]
    if values(from_traces) != values(result.stdout):
        raise Failure(f"{from_traces}, from the program {result.stdout}")
    if float(rows["table", "lines", "15"][1]) != 1 or float(rows["table", "lines", "16"][1]) <= 1:
        raise Failure(result.stdout)
    bad = subprocess.run([runner.memlens, "series", "--values", "1,2", "--", program], capture_output=True, text=True)
    if bad.returncode != 64 or "no {} for the values" not in bad.stderr:
        raise Failure(f"no place for values: exit code {bad.returncode}: {bad.stderr}")
    bad = subprocess.run([runner.memlens, "series", "--values", "2,2", "--", "true", "{}"], capture_output=True, text=True)
    if bad.returncode != 64 or "--values names 2 twice" not in bad.stderr:
        raise Failure(f"a value that is there twice: exit code {bad.returncode}: {bad.stderr}")
    bad = subprocess.run([runner.memlens, "series", "--values", "1", "--", "false", "{}"], capture_output=True, text=True)
    if bad.returncode != 69 or "exit code 1" not in bad.stderr:
        raise Failure(f"a run that fails: exit code {bad.returncode}: {bad.stderr}")


def speed_up(runner):
    """Threads that share a fixed amount of work are as many times as fast; the one that waits for them does not count.
    What is missing is work before they begin, and what one does when the other has ended."""
    program = runner.build(PROGRAMS / "fixed_work.c")
    words = [runner.memlens, "series", "--threads", "1,2", "--machine", "e5504", "--format", "csv", "--", program, "20000000", "{}"]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if result.returncode != 0:
        raise Failure(f"exit code {result.returncode}: {result.stderr}")
    found = [line.split(",") for line in result.stdout.splitlines()]
    # Objects have the same name in both runs, but for the stack of a thread that only one of them has.
    lines = {(row[0], row[2]): float(row[3]) for row in found[1:] if row[1] == "lines"}
    pairs = {name: sorted((lines[name, "1"], lines[name, "2"])) for name, _ in lines if name != "stack of thread 3"}
    unlike = {name: pair for name, pair in pairs.items() if pair[0] == 0 and pair[1] >= 10}
    if unlike or not any(name.startswith("stack of thread 1") for name, _ in lines):
        raise Failure(f"objects of one run only: {unlike} of {lines}")
    faster = [float(row[3]) for row in found if row[1] == "speed-up"]
    if len(faster) != 2 or faster[0] != 1 or not 1.5 < faster[1] < 2.1:
        raise Failure(f"speed-up {faster} with 1 and 2 threads")


def memory_nodes(runner):
    """Each thread's array lies in the memory of its core's node, and every line is counted for one node."""
    trace = runner.capture("nodes", KERNELS / "fivearrays.c", [str(1 << 20), "262144"], ["--nodes", "2"])
    found = runner.analysis(trace)
    for row in found["objects"]:
        if sum(row["lines_by_node"]) != row["reads"] + row["writes"]:
            raise Failure(f"lines by node: {row}")
    for array in range(5):
        lines = objects(found)[f"a{array}"]["lines_by_node"]
        if min(lines) > 0:
            raise Failure(f"a{array} was touched by one thread, and lies in two nodes: {lines}")
    lines = sum(node["reads"] + node["writes"] for node in found["nodes"])
    if len(found["nodes"]) != 2 or lines != found["totals"]["data_reads"] + found["totals"]["data_writes"]:
        raise Failure(f"nodes: {found['nodes']}")
    code, _, err = runner.bus("capture", "--out", runner.folder / "none", "--memory", "1", "--nodes", "2", "--", "true")
    if code != 64 or "memory nodes" not in err:
        raise Failure(f"more nodes than GiB: exit code {code}: {err}")


def bad_inputs(runner):
    """Whatever is wrong with a trace: a message, its exit code, and what is sound is used."""
    trace = runner.capture("bad", KERNELS / "gups.c", ["14"], [])
    bus, pages, events = trace / "bus.mlbus", trace / "pages.mlpages", trace / "objects.txt"
    sound = {path: path.read_bytes() for path in (bus, pages, events)}
    records = runner.analysis(trace)["totals"]["records"]

    def with_bytes(path, content):
        path.write_bytes(content)
        code, out, err = runner.bus("check", trace)
        analysed = runner.bus("analyze", trace, "--format", "json")
        path.write_bytes(sound.get(path, b""))
        return code, out + err, analysed

    def expect(path, content, wanted, text, least):
        code, message, (analysed, out, _) = with_bytes(path, content)
        if code != wanted or text not in message:
            raise Failure(f"{path.name}: exit code {code}, not {wanted}; `{text}` not in {message}")
        if least and (analysed != 0 or json.loads(out)["totals"]["records"] < least):
            raise Failure(f"{path.name}: what was sound is not used")

    header, body = sound[bus].split(b"\n", 1)
    middle = len(sound[bus]) // 2
    flipped = sound[bus][:middle] + bytes([sound[bus][middle] ^ 1]) + sound[bus][middle + 1 :]
    expect(bus, flipped, 65, "damaged block", records // 2 if records > 131072 else 0)
    expect(bus, sound[bus][:-20], 65, "without its end", records)
    expect(bus, header.replace(b'"line_bytes":64', b'"line_bytes":32') + b"\n" + body, 65, "lines are of 32 and of 64", 0)
    clock = header.replace(b'"clock_hz":400000000', b'"clock_hz":200000000')
    expect(bus, clock + b"\n" + body, 65, "clocks", 0)
    expect(bus, header.replace(b'"capture":"', b'"capture":"x') + b"\n" + body, 65, "different captures", 0)
    expect(bus, b"not a trace\n", 65, "not one of a bus trace", 0)
    expect(bus, header.replace(b"trace 2 ", b"trace 9 ") + b"\n" + body, 69, "version 9", 0)
    expect(pages, sound[pages][:-40], 65, "page-table", records)
    page_header = sound[pages].split(b"\n", 1)[0] + b"\n"
    expect(pages, page_header, 65, "tags after the last page-table event", records)
    expect(events, sound[events] + b"nonsense 1\n", 65, "`nonsense` is no event", records)
    expect(events, sound[events][:-200], 65, "object", records)
    # Another machine's byte order: the same records, packed by hardware with the most significant byte first.
    big = json.loads(header.split(b" ", 2)[2])
    big.update(packing="fixed", endian="big", sequence_bits=8, duration_bits=14, address_bits=41)
    rows = [line.split(",") for line in runner.run("dump", trace, "--limit", "1000").splitlines()[1:]]
    content = b"memlens-bus-trace 1 " + json.dumps(big).encode() + b"\n"
    for number, (_, _, direction, paddr, *_) in enumerate(rows):
        word = ((number & 255) << 14 | 5) << 1 | (direction == "r")
        content += (word << 41 | int(paddr, 16) // 64).to_bytes(8, "big")
    expect(bus, content, 65, "1000 records", 1000)
    # A line of text that makes no sense costs itself alone.
    lines = [b"# " + header.replace(b'"packing":"blocks"', b'"packing":"text"'), b"seq,duration,rw,paddr"]
    lines += [b"%d,5,%s,%s" % (at, rw.encode(), paddr.encode()) for at, (_, _, rw, paddr, *_) in enumerate(rows)]
    lines.insert(500, b"498,5,sideways,0x40")
    bus.unlink()
    expect(trace / "bus.csv", b"\n".join(lines) + b"\n", 65, "line 501", 1000)
    (trace / "bus.csv").unlink(missing_ok=True)
    bus.write_bytes(sound[bus])
    # Events whose tags never came.
    untagged = runner.folder / "untagged.bus"
    runner.run("damage", trace, "--force", "--out", untagged, "--drop-tags", "1")
    code, out, err = runner.bus("check", untagged)
    if code != 65 or "tags" not in out + err or runner.analysis(untagged)["losses"]["page_tags"]["events_left"] == 0:
        raise Failure(f"events without tags: exit code {code}: {out}{err}")
    code, _, err = runner.bus("analyze", runner.folder / "nowhere")
    if code != 66:
        raise Failure(f"a trace that is not there: exit code {code}: {err}")
    code, _, err = runner.bus("capture", "--out", trace, "--", "true")
    if code != 73 or "--force" not in err:
        raise Failure(f"a trace that is there: exit code {code}: {err}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memlens", default=ROOT / "target/release/memlens", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    tests = {name: lambda r, n=name, rest=rest: verified(r, n, *rest) for name, *rest in VERIFIED}
    tests |= {"fivearrays": five_arrays, "page_walk": page_walk, "memory_nodes": memory_nodes, "page_sizes": page_sizes, "series": series, "speed_up": speed_up}
    tests |= {"restarted": restarted, "bad_inputs": bad_inputs}
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        runner = Runner(options.memlens.resolve(), folder)
        for name, test in tests.items():
            if options.names and name not in options.names:
                continue
            try:
                test(runner)
                passed += 1
                print(f"ok      {name}")
            except Skipped as reason:
                skipped += 1
                print(f"skipped {name}: {reason}")
            except Failure as failure:
                failed += 1
                print(f"FAILED  {name}: {failure}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

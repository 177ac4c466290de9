#!/usr/bin/env python3
"""Physical bus traces of real programs: the virtual card's capture, its analysis, and what must come out.

    tests/bus.py [--memlens FILE] [--keep FOLDER] [NAME...]

Each program is compiled, captured by `memlens bus capture`, and verified record by record; some have counts
that are derived by hand. The last line is `N passed, N failed, N skipped`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

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
]
# Exit code where the kernel does not let one look.
NO_PERMISSION = 77


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


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


def page_walk(runner):
    """Zhang et al., 5.2: each page touched once in order is a miss, in order; more pages than any TLB has."""
    for page, options in ((4096, []), (2 << 20, ["--thp"])):
        pages = 2000 if page == 4096 else 100
        trace = runner.capture(
            f"page_walk-{page}",
            PROGRAMS / "page_walk.c",
            [str(pages), str(page)],
            ["--ptat", "--start-on", "walk", "--stop-on", "walked", "--memory", "8", *options],
        )
        rows = [line.split(",") for line in runner.run("dump", trace, "--tlb-misses").splitlines()[1:]]
        found = [int(vaddr, 16) // page // 8 for _, _, _, vaddr, size in rows if int(size) == page]
        # A line has the entries of eight neighbours: pages in order show as eight misses a line.
        # The few others (the stack, the globals) are far away.
        median = sorted(found)[len(found) // 2]
        walked = [line for line in found if abs(line - median) <= pages // 8 + 2]
        in_order = all(after - before in (0, 1) for before, after in zip(walked, walked[1:]))
        if not in_order or len(walked) != pages:
            raise Failure(f"{page}: {len(walked)} misses, in order: {in_order}")


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
        path.write_bytes(sound[path])
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
    expect(bus, header.replace(b"trace 1 ", b"trace 9 ") + b"\n" + body, 69, "version 9", 0)
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
    tests |= {"fivearrays": five_arrays, "page_walk": page_walk, "bad_inputs": bad_inputs}
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

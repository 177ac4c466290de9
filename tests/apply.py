#!/usr/bin/env python3
"""`memlens apply` on real programs: what is blamed lies in huge pages, or is prefetched, and the program does what it did.

    tests/apply.py [--memlens FILE]

No gain is expected here: machines under test are busy. The last line is `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import Failure, Skipped, expect

ROOT = Path(__file__).resolve().parent.parent
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
RESERVED = Path("/proc/sys/vm/nr_hugepages")
USAGE = 64
NO_INPUT = 66
UNAVAILABLE = 69
BUSY = 75
# Arrays of every_way.c, by the variable that they go to, and what else may name them.
EVERY_WAY = {"from_malloc", "from_wrapper", "from_calloc", "from_aligned", "from_posix", "from_realloc", "in_bss"}


class Runner:
    def __init__(self, memlens, folder):
        self.memlens, self.folder = memlens, folder

    def build(self, source, *options):
        program = self.folder / source.stem
        command = ["cc", "-std=gnu11", "-O1", "-g", "-o", str(program), str(source), *options]
        subprocess.run(command, check=True)
        return program

    def record(self, program, *arguments, ends=False):
        """`ends`: the program goes on until a signal ends it."""
        profile = self.folder / f"{program.stem}.memlens"
        command = [self.memlens, "record", "--mode", "exact", "-q", "--force", "--out", profile, "--", program, *arguments]
        command = ["timeout", "--foreground", "--preserve-status", "--signal", "TERM", "2", *command] if ends else command
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        return profile

    def apply(self, *words, code=0, **environment):
        command = list(map(str, [self.memlens, "apply", *words]))
        result = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
        expect(code is None or result.returncode == code, f"exit code {result.returncode}: {result.stdout}{result.stderr}")
        return result

    def document(self, *words, **environment):
        return json.loads(self.apply("--format", "json", *words, **environment).stdout)


def huge_share(backing):
    return backing["huge_bytes"] / backing["resident_bytes"] if backing and backing["resident_bytes"] else None


def every_way(runner):
    program = runner.build(ROOT / "tests/apply/every_way.c")
    profile = runner.record(program, 8)
    words = [word for name in sorted(EVERY_WAY) for word in ("--object", name)]
    # The program prints what of these it sees.
    own = {"LD_PRELOAD": "", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=5"}
    # Twice as large as recorded: places count, not sizes.
    found = runner.document(*words, "--runs", 1, profile, "--", program, 16, **own)
    expect(found["same_output"] is True, f"the output differs: {found['verdict']}")
    names = {known["name"] for known in found["objects"]}
    expect(EVERY_WAY <= names, f"missing: {EVERY_WAY - names}; {found['rejected']}")
    for known in found["objects"]:
        with_, without = huge_share(known["backing_with"]), huge_share(known["backing_without"])
        if "[always]" not in SETTING.read_text():
            expect(without == 0, f"{known['name']} has huge pages without memlens: {without}")
        # A block that realloc moved, and a variable, may begin and end inside a huge page.
        least = 0.7 if known["name"] in ("from_realloc", "in_bss") else 0.95
        expect(with_ is not None and with_ >= least, f"{known['name']}: {with_} in huge pages: {known}")
        expect(known["placed_blocks"] >= 1 and known["refused_blocks"] == 0, f"{known}")


class ReservedPages:
    """So many 2-MiB pages that the system reserves as long as this lives."""

    def __init__(self, pages):
        self.pages = pages

    def __enter__(self):
        try:
            self.before = int(RESERVED.read_text())
            RESERVED.write_text(str(self.before + self.pages))
        except OSError as why:
            raise Skipped(f"{RESERVED}: {why}") from why
        if int(RESERVED.read_text()) < self.before + self.pages:
            self.__exit__()
            raise Skipped(f"the kernel finds no {self.pages} huge pages to reserve")

    def __exit__(self, *_):
        RESERVED.write_text(str(self.before))


def reserved_pages(runner):
    """Blocks from functions that allocate lie in hugetlb pages as far as there are some; nothing else changes."""
    program = runner.build(ROOT / "tests/apply/every_way.c")
    profile = runner.record(program, 8)
    blocks = sorted(EVERY_WAY - {"from_realloc", "in_bss"})
    words = [word for name in blocks for word in ("--object", name)]
    # 8 MiB each, but of the block that is short of it the whole pages only.
    whole = {name: (6 if name == "from_calloc" else 8) << 20 for name in blocks}
    noted = runner.folder / "reserved"
    # Two blocks come from calloc, and auto wants room for all.
    with ReservedPages(4 * (len(blocks) + 1)):
        found = runner.document("--pages", "hugetlb", *words, "--runs", 1, profile, "--", program, 8, noted)
        automatic = runner.document("--pages", "auto", *words, "--runs", 0, profile, "--", program, 8)
    expect(found["same_output"] is True, f"the output differs: {found['verdict']}")
    for result in (found, automatic):
        for known in result["objects"]:
            expect(known["reserved_bytes"] == whole[known["name"]], f"{known}")
            expect(known["refused_blocks"] == 0, f"{known}")
            expect(known["backing_without"]["hugetlb_bytes"] == 0, f"{known}")
    # What the program reads of itself, without and with, twice: memlens may look only once it has forked, which ends
    # their use. One of the blocks from calloc is free by then.
    reserved = sum(whole.values()) >> 10
    expect(noted.read_text().split() == ["0", str(reserved)] * 2, f"{noted.read_text()}, not 0 and {reserved} KiB twice")
    # Too few: the rest gets transparent ones.
    with ReservedPages(4):
        few = runner.document("--pages", "hugetlb", *words, "--runs", 1, profile, "--", program, 8)
        none = runner.document("--pages", "auto", *words, "--runs", 0, profile, "--", program, 8)
    expect(few["same_output"] is True, f"the output differs: {few['verdict']}")
    taken = [known["reserved_bytes"] for known in few["objects"]]
    expect(sum(taken) == 8 << 20 and any("found too few" in line for line in few["verdict"]), f"{few}")
    expect(any("are free" in line for line in none["verdict"]), f"{none['verdict']}")
    expect(all(known["backing_with"]["hugetlb_bytes"] == 0 for known in none["objects"]), f"{none['objects']}")


def predicted(runner):
    """The page walks of the program once more: in small pages those of the profile; in huge pages those that a table of
    8 MiB leaves, of four huge pages, which a TLB of 32 entries holds."""
    program = runner.build(ROOT / "examples/kernels/gups.c", f"-I{ROOT}/examples/kernels")
    profile = runner.folder / "gups.predicted.memlens"
    record = [runner.memlens, "record", "--mode", "exact", "--machine", "e5504", "-q", "--force", "--out", profile]
    command = ["--", program, 20, 100000]
    subprocess.run(list(map(str, record + command)), check=True, stdout=subprocess.DEVNULL)
    run = lambda *words: subprocess.run(
        list(map(str, [runner.memlens, *words])), check=True, capture_output=True, text=True
    ).stdout
    recorded = json.loads(run("report", profile, "--format", "json"))
    advice = json.loads(run("advise", "--format", "json", profile, *command))["resimulation"]
    expect(advice["machine"] == "e5504" and advice["exit_code"] == 0, f"{advice}")
    small, [trial] = advice["small_pages"], advice["huge_pages"]
    by_name = {known["name"]: known["stlb_misses"] for known in recorded["objects"]}
    expect(small["causes"][0]["name"] == "table", f"{small}")
    # Start-up code reads the environment, which differs by the collector's words.
    walks = recorded["totals"]["stlb_misses"]
    expect(abs(small["page_walks"] - walks) <= 20, f"{walks} in the profile, {small['page_walks']} once more")
    expect(abs(small["causes"][0]["page_walks"] - by_name["table"]) <= 20, f"{by_name} and {small}")
    expect(trial["names"] == ["table"] and trial["extra_memory_bytes"] < 4096 * 8, f"{trial}")
    left = small["page_walks"] - small["causes"][0]["page_walks"]
    expect(trial["page_walks"] <= left + 4, f"{left} of other objects, then {trial['page_walks']}")
    expect(trial["causes"][0]["name"] != "table", f"{trial}")
    expect(advice["all_huge_pages"]["page_walks"] <= trial["page_walks"], f"{advice}")
    text = runner.apply("--predict", "--machine", "e5504", "--runs", 0, profile, *command).stdout
    expect("With table in huge pages, " in text and "causes most page walks" in text, text)


def observed(runner):
    """Page walks in the pages that the kernel gives: without, those of the profile as far as pages are small; with, a table
    of 8 MiB in four huge pages, which a TLB of 32 entries holds, is not the main cause any more."""
    program = runner.build(ROOT / "examples/kernels/gups.c", f"-I{ROOT}/examples/kernels")
    profile = runner.folder / "gups.observed.memlens"
    record = [runner.memlens, "record", "--mode", "exact", "--machine", "e5504", "-q", "--force", "--out", profile]
    command = ["--", program, 20, 100000]
    subprocess.run(list(map(str, record + command)), check=True, stdout=subprocess.DEVNULL)
    report = [runner.memlens, "report", profile, "--format", "json"]
    recorded = json.loads(subprocess.run(list(map(str, report)), check=True, capture_output=True).stdout)
    found = runner.document("--observe", "--runs", 0, profile, *command)["observation"]
    without, with_ = found["without"], found["with"]
    expect(found["machine"] == "e5504" and without["exit_code"] == with_["exit_code"] == 0, f"{found}")
    if without["asked"]["huge"] == 0:
        walks = recorded["totals"]["stlb_misses"]
        expect(abs(without["page_walks"] - walks) <= 50, f"{walks} in the profile, {without['page_walks']} observed")
        expect(without["causes"][0]["name"] == "table", f"{without}")
    of_table = sum(cause["page_walks"] for cause in with_["causes"] if cause["name"] == "table")
    if with_["asked"]["huge"] - without["asked"]["huge"] >= 4:
        expect(of_table <= 64, f"{with_}")
        expect(with_["causes"][0]["name"] != "table", f"{with_}")
    text = runner.apply("--observe", "--runs", 0, profile, *command).stdout
    expect("with table in huge pages, " in text and "in the pages that the kernel gave it" in text, text)


def predicted_for_small_blocks(runner):
    """A tree of small blocks: the heap in huge pages, of which the e5504's TLB holds all."""
    program = runner.build(ROOT / "examples/kernels/tree.c", f"-I{ROOT}/examples/kernels")
    profile = runner.folder / "tree.memlens"
    record = [runner.memlens, "record", "--mode", "exact", "--machine", "e5504", "-q", "--force", "--out", profile]
    command = ["--", program, 100000, 10000]
    subprocess.run(list(map(str, record + command)), check=True, stdout=subprocess.DEVNULL)
    advise = [runner.memlens, "advise", "--format", "json", profile, *command]
    result = subprocess.run(list(map(str, advise)), check=True, capture_output=True, text=True)
    advice = json.loads(result.stdout)["resimulation"]
    before, [trial] = advice["small_pages"], advice["huge_pages"]
    of_nodes = before["causes"][0]
    expect(of_nodes["page_walks"] > 10_000 and trial["names"] == [of_nodes["name"]], f"{advice}")
    expect(trial["page_walks"] < before["page_walks"] / 50, f"{before['page_walks']}, then {trial['page_walks']}")
    # Less than two huge pages: what the first and the last have beyond the heap.
    expect(0 <= trial["extra_memory_bytes"] < 4 << 20, f"{trial}")


def small_blocks(runner):
    program = runner.build(ROOT / "tests/apply/small_blocks.c")
    profile = runner.record(program)
    found = runner.document("--runs", 1, profile, "--", program)
    heap = [known for known in found["objects"] if known["method"] == "heap"]
    expect(len(heap) == 1 and heap[0]["blocks"] == 200000, f"{found['objects']}")
    expect(found["same_output"] is True, f"{found['verdict']}")
    share = huge_share(found["whole_with"])
    expect(share is not None and share > 0.6, f"{share} of the program's memory in huge pages")


def nothing_to_gain(runner):
    profile = runner.record(Path("/bin/true"))
    result = runner.apply(profile, "--", "/bin/true", code=UNAVAILABLE)
    expect("no object to put into huge pages" in result.stderr, result.stderr)


def not_advised(runner):
    """Five arrays of 8 MiB that are walked in order: they cause nearly all page walks, but one a page is no part of what the
    program waits for, so huge pages are not advised. The same walks at random places are another thing."""
    def advised(source, *arguments):
        program = runner.build(ROOT / f"examples/kernels/{source}.c", f"-I{ROOT}/examples/kernels", "-pthread")
        profile = runner.folder / f"{source}.advice.memlens"
        record = [runner.memlens, "record", "--mode", "exact", "--machine", "e5504", "-q", "--force", "--out", profile]
        subprocess.run(list(map(str, [*record, "--", program, *arguments])), check=True, stdout=subprocess.DEVNULL)
        read = lambda *words: json.loads(
            subprocess.run(list(map(str, [runner.memlens, *words, profile])), check=True, capture_output=True).stdout
        )
        findings = read("advise", "--format", "json")["findings"]
        return read("report", "--format", "json"), [known for known in findings if known["remedy"] == "huge-pages"]

    report, findings = advised("fivearrays", 8 << 20, 1)
    names = {f"a{at}" for at in range(5)}
    arrays = [known for known in report["objects"] if known["kind"] == "heap" and known["name"] in names]
    walks = sum(known["page_walk_accesses"] for known in arrays)
    expect([known["bytes"] for known in arrays] == [8 << 20] * 5, f"{[known['name'] for known in arrays]}")
    expect(walks > 0.9 * report["totals"]["page_walk_accesses"], f"{walks} of {report['totals']}")
    expect(findings == [], f"{findings}")
    _, findings = advised("gups", 20, 400000)
    expect([known["title"] for known in findings] == ["table in huge pages"], f"{findings}")


def another_build(runner):
    program = runner.build(ROOT / "tests/apply/small_blocks.c")
    profile = runner.record(program)
    runner.build(ROOT / "tests/apply/small_blocks.c", "-DOTHER", "-O0")
    result = runner.apply(profile, "--", program, code=UNAVAILABLE)
    expect("record again" in result.stderr, result.stderr)


def from_a_bus_trace(runner):
    program = runner.build(ROOT / "examples/kernels/gups.c", f"-I{ROOT}/examples/kernels")
    trace, profile = runner.folder / "gups.bus", runner.folder / "gups.bus.memlens"
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    capture = [runner.memlens, "bus", "capture", "-q", "--machine", "e5504", "--out", trace, "--", program]
    subprocess.run(list(map(str, [*capture, 20, 100000])), **quiet)
    subprocess.run(list(map(str, [runner.memlens, "bus", "analyze", "--out", profile, trace])), **quiet)
    # So long that it is looked at many times: updates take half a second.
    found = runner.document("--runs", 1, profile, "--", program, 22, 30000000)
    expect([known["name"] for known in found["objects"]] == ["table"], f"{found['objects']}")
    share = huge_share(found["objects"][0]["backing_with"])
    expect(share is not None and share > 0.95, f"{found['objects']}")
    expect(found["same_output"] is True, f"{found['verdict']}")


def prefetched(runner, mode, options=("-O2",), library=False, strip=False):
    source = ROOT / "tests/apply/prefetched.c"
    program = runner.folder / "prefetched"
    links = ["-pthread", "-ldl"]
    subprocess.run(["cc", "-std=gnu11", "-g", *options, "-o", program, source, *links], check=True)
    words = [mode]
    if library:
        shared = runner.folder / "libprefetched.so"
        command = ["cc", "-std=gnu11", "-g", "-O2", "-fPIC", "-shared", "-DLIBRARY", "-o", shared, source]
        subprocess.run(command, check=True)
        words.append(shared)
    if strip:
        subprocess.run(["strip", program], check=True)
    profile = runner.record(program, 14, *words)
    # The indices end where nothing is mapped: a load behind them would end the program.
    found = runner.document("--prefetch", "--distance", 32, "--runs", 2, profile, "--", program, 16, *words)
    expect(found["same_output"] is True, f"the output differs: {found['verdict']}")
    loads = [(load, group) for group in found["groups"] for load in group["loads"]]
    indirect = [group for load, group in loads if load["kind"] == "indirect"]
    expect(indirect, f"no indirect load: {found['groups']} {found['refused']}")
    expect(all(group["in_place"] for group in indirect), f"not in place: {indirect}")
    measured = sum(group["measured"] for group in found["groups"])
    expect(found["jumps_written"] == 2 * measured, f"in two runs {found['jumps_written']} jumps: {found['groups']}")
    expect(library == any("libprefetched" in group["module"] for group in indirect), f"{indirect}")
    return found


def prefetch_plain(runner):
    found = prefetched(runner, "plain")
    patterns = [load["pattern"] for group in found["groups"] for load in group["loads"]]
    expect(any(name.startswith("values[") and name.endswith("[i]]") for name in patterns), f"{patterns}")


def prefetch_optimised_at_a_fixed_place(runner):
    prefetched(runner, "plain", ("-O3", "-no-pie", "-fno-pie"))


def prefetch_threads(runner):
    prefetched(runner, "threads")


def prefetch_fork(runner):
    prefetched(runner, "fork")


def prefetch_loaded_library(runner):
    prefetched(runner, "library", library=True)


def prefetch_stripped(runner):
    prefetched(runner, "plain", strip=True)


def prefetch_nothing(runner):
    profile = runner.record(Path("/bin/true"))
    result = runner.apply("--prefetch", profile, "--", "/bin/true", code=None)
    expect(result.returncode in (0, UNAVAILABLE), result.stderr)


class Running:
    """A program that runs until this ends, and must have done everything right by then."""

    def __init__(self, runner, options=("-O2",), size=20, threads=2, milliseconds=1):
        self.program = runner.build(ROOT / "tests/apply/running.c", "-pthread", *options)
        self.words = list(map(str, (self.program, size, threads, milliseconds)))

    def instead(self, program, *words):
        self.program, self.words = program, list(map(str, (program, *words)))
        return self

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        expect(self.process.stdout.readline() == "ready\n", "the program did not begin")
        self.pid = self.process.pid
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            output, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure("the program does not end")
        if kind is None:
            expect(self.process.returncode == 0, f"exit code {self.process.returncode}: {output}")
            right, wrong = (int(word) for word in output.split()[:3:2])
            expect(right > 0 and wrong == 0, output)

    def code(self):
        """Its functions as they are in its memory."""
        start = next(line for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines() if str(self.program) in line and " r-xp " in line)
        low, high = (int(word, 16) for word in start.split()[0].split("-"))
        with open(f"/proc/{self.pid}/mem", "rb") as memory:
            memory.seek(low)
            return memory.read(high - low)


def online_recorded_first(runner):
    with Running(runner) as running:
        before = running.code()
        found = runner.document("--prefetch", "--pid", running.pid, "--record", 2, "--duration", 2)
        group = found["groups"][0]
        expect(group["in_place"] and group["executions"] > 1000, f"{found}")
        expect("gather" in group["loads"][0]["place"], f"{found}")
        expect((running.code() != before) == found["is_kept"], f"code and {found['verdict']} do not agree")
        taken = runner.document("--prefetch", "--pid", running.pid, "--withdraw")
        expect(taken["detours"] == found["is_kept"], f"{taken}: {found['verdict']}")
        expect(running.code() == before, "the code is not what it was")
        again = runner.document("--prefetch", "--pid", running.pid, "--withdraw")
        expect(again["detours"] == 0, f"{again}")


def online_again_and_again(runner, options=("-O2",), threads=3):
    running = Running(runner, options, size=14, threads=threads)
    profile = runner.record(running.program, 18, 1, 0, ends=True)
    with running:
        before = running.code()
        for number in range(12):
            words = ["--prefetch", "--pid", running.pid, "--duration", 0.2, "--distance", 16, profile]
            found = runner.document(*words)
            expect(found["groups"][0]["in_place"], f"{number}: {found}")
            if found["is_kept"]:
                runner.apply("--prefetch", "--pid", running.pid, "--withdraw")
            expect(running.code() == before, f"{number}: the code is not what it was")


def online_at_a_fixed_place(runner):
    online_again_and_again(runner, ("-O3", "-no-pie", "-fno-pie"), threads=1)


def online_after_a_kill(runner):
    """If memlens is killed its detours stay, and can be taken out."""
    running = Running(runner, size=14)
    profile = runner.record(running.program, 18, 1, 0, ends=True)
    with running:
        before = running.code()
        command = [runner.memlens, "apply", "--prefetch", "--pid", running.pid, "--duration", 60, profile]
        memlens = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while running.code() == before:
            expect(memlens.poll() is None and time.monotonic() < until, "no detour came")
            time.sleep(0.01)
        memlens.kill()
        memlens.wait()
        expect(runner.document("--prefetch", "--pid", running.pid, "--withdraw")["detours"] >= 1, "nothing was there")
        expect(running.code() == before, "the code is not what it was")


def online_interrupted(runner):
    """A signal to memlens ends the measurement, and nothing stays."""
    running = Running(runner, size=14)
    profile = runner.record(running.program, 18, 1, 0, ends=True)
    with running:
        before = running.code()
        command = [runner.memlens, "apply", "--prefetch", "--pid", running.pid, "--duration", 60, profile]
        memlens = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while running.code() == before:
            expect(memlens.poll() is None and time.monotonic() < until, "no detour came")
            time.sleep(0.01)
        # Not SIGINT: where the tests run in the background, it is ignored, and stays so.
        memlens.send_signal(signal.SIGTERM)
        output, _ = memlens.communicate(timeout=30)
        expect(memlens.returncode == 0 and "Interrupted" in output, f"{memlens.returncode}: {output}")
        expect(running.code() == before, "the code is not what it was")


def online_ended(runner):
    running = Running(runner, size=14)
    profile = runner.record(running.program, 18, 1, 0, ends=True)
    with running:
        pid = running.pid
        command = [runner.memlens, "apply", "--prefetch", "--format", "json", "--pid", pid, "--duration", 60, profile]
        memlens = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        time.sleep(2)
    output, _ = memlens.communicate(timeout=30)
    expect(memlens.returncode == 0 and json.loads(output)["has_ended"], f"{memlens.returncode}: {output}")
    gone = runner.apply("--prefetch", "--pid", pid, profile, code=NO_INPUT)
    expect("no such process" in gone.stderr, gone.stderr)


def online_coroutines(runner):
    """Threads of the program's own, whose places in the loop no stack of the kernel's tells: the jump is written when none is
    inside of it, or not at all."""
    program = runner.build(ROOT / "tests/apply/coroutines.c", "-O2")
    own = runner.folder / "coroutines.memlens"
    command = [runner.memlens, "record", "-q", "--mode", "burst", "--out", own, "--", program, 16]
    command = ["timeout", "--foreground", "--preserve-status", "--signal", "TERM", "2", *command]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    for number in range(4):
        with Running(runner).instead(program, 14) as running:
            time.sleep(0.3)
            words = ["--prefetch", "--pid", running.pid, "--duration", 0.2, "--distance", 16, own]
            result = runner.apply(*words, code=None)
            expect(result.returncode in (0, BUSY, UNAVAILABLE), f"{number}: {result.returncode} {result.stderr}")
            time.sleep(0.3)


def online_options(runner):
    for words, expected in (
        (["--prefetch", "--duration", 3, "x.memlens", "--", "/bin/true"], "--pid"),
        (["--prefetch", "--record", 3, "--", "/bin/true"], "--pid"),
        (["--prefetch", "--pid", 1, "--duration", "1e19"], "1000000000"),
        (["--prefetch", "--pid", 1, "--withdraw", "--distance", 8], "cannot be used"),
        (["--pid", 1], "--prefetch"),
    ):
        result = runner.apply(*words, code=USAGE)
        expect(expected in result.stderr, f"{words}: {result.stderr}")


HUGE_PAGES = [every_way, reserved_pages, predicted, observed, predicted_for_small_blocks, small_blocks, nothing_to_gain, not_advised, another_build, from_a_bus_trace]
PREFETCH = [
    prefetch_plain,
    prefetch_optimised_at_a_fixed_place,
    prefetch_threads,
    prefetch_fork,
    prefetch_loaded_library,
    prefetch_stripped,
    prefetch_nothing,
]
ONLINE = [
    online_recorded_first,
    online_again_and_again,
    online_at_a_fixed_place,
    online_after_a_kill,
    online_interrupted,
    online_ended,
    online_coroutines,
    online_options,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    passed = failed = skipped = 0
    for test in HUGE_PAGES + PREFETCH + ONLINE:
        if arguments.names and test.__name__ not in arguments.names:
            continue
        try:
            if test in ONLINE and "bmi2" not in Path("/proc/cpuinfo").read_text():
                raise Skipped("the processor has no BMI2")
            if test in HUGE_PAGES and (not SETTING.exists() or "[never]" in SETTING.read_text()):
                raise Skipped("transparent huge pages are off")
            with tempfile.TemporaryDirectory() as folder:
                test(Runner(arguments.memlens, Path(folder)))
            passed += 1
        except Skipped as reason:
            skipped += 1
            print(f"{test.__name__}: skipped: {reason}")
        except (Failure, subprocess.CalledProcessError) as problem:
            failed += 1
            print(f"{test.__name__}: {problem}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

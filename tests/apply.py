#!/usr/bin/env python3
"""`memlens apply` on real programs: what is blamed lies in huge pages, or is prefetched, and the program does what it did.

    tests/apply.py [--memlens FILE]

No gain is expected here: machines under test are busy. The last line is `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
UNAVAILABLE = 69
# Arrays of every_way.c, by the variable that they go to, and what else may name them.
EVERY_WAY = {"from_malloc", "from_wrapper", "from_calloc", "from_aligned", "from_posix", "from_realloc", "in_bss"}


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failure(message)


class Runner:
    def __init__(self, memlens, folder):
        self.memlens, self.folder = memlens, folder

    def build(self, source, *options):
        program = self.folder / source.stem
        command = ["cc", "-std=gnu11", "-O1", "-g", "-o", str(program), str(source), *options]
        subprocess.run(command, check=True)
        return program

    def record(self, program, *arguments):
        profile = self.folder / f"{program.stem}.memlens"
        command = [self.memlens, "record", "--mode", "exact", "-q", "--force", "--out", profile, "--", program, *arguments]
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


def small_blocks(runner):
    program = runner.build(ROOT / "tests/apply/small_blocks.c")
    profile = runner.record(program)
    found = runner.document("--runs", 1, profile, "--", program)
    heap = [known for known in found["objects"] if known["method"] == "heap"]
    expect(len(heap) == 1 and heap[0]["blocks"] == 200000, f"{found['objects']}")
    expect(found["same_output"] is True, f"{found['verdict']}")
    # Seen on a busy machine: every fourth run or so gets no huge page at all from the kernel.
    shares = [huge_share(found["whole_with"])]
    while shares[-1] is not None and shares[-1] <= 0.6 and len(shares) < 6:
        again = runner.document("--runs", 0, profile, "--", program)
        shares.append(huge_share(again["whole_with"]))
    expect(shares[-1] is not None and shares[-1] > 0.6, f"{shares} of the program's memory in huge pages")


def nothing_to_gain(runner):
    profile = runner.record(Path("/bin/true"))
    result = runner.apply(profile, "--", "/bin/true", code=UNAVAILABLE)
    expect("no object to put into huge pages" in result.stderr, result.stderr)


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
    found = runner.document("--runs", 1, profile, "--", program, 22, 1000000)
    expect([known["name"] for known in found["objects"]] == ["table"], f"{found['objects']}")
    expect(huge_share(found["objects"][0]["backing_with"]) > 0.95, f"{found['objects']}")
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


HUGE_PAGES = [every_way, small_blocks, nothing_to_gain, another_build, from_a_bus_trace]
PREFETCH = [
    prefetch_plain,
    prefetch_optimised_at_a_fixed_place,
    prefetch_threads,
    prefetch_fork,
    prefetch_loaded_library,
    prefetch_stripped,
    prefetch_nothing,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(ROOT / "target/release/memlens"))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    passed = failed = skipped = 0
    for test in HUGE_PAGES + PREFETCH:
        if arguments.names and test.__name__ not in arguments.names:
            continue
        try:
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

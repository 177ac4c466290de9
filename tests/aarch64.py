#!/usr/bin/env python3
"""Runs memlens on AArch64, in an emulated machine: sample and burst mode on programs with known answers.

    tests/aarch64.py --memlens FILE --reader FILE --folder FOLDER

FILE of --memlens is built for AArch64, that of --reader for this machine: it reads the profiles, which must not matter. FOLDER
keeps what is downloaded and made. The machine is QEMU's, with a kernel and a busybox of Debian's, which apt fetches into FOLDER, and the
libraries of the cross compiler. The last line is `N passed, N failed`; without an emulator, a compiler or apt it says what is missing, and
ends with exit code 1.

It boots three times, which takes a minute in all. First with one processor and a clock that counts instructions: an interrupt comes at any of them,
and each takes the same time, whatever else the host does. So shares and totals are those of what programs execute. (By the host's clock an
emulator interrupts at jumps only, and hardly one instruction takes longer than another. Two processors that count take turns, and the
time of one goes on in the other's.) Then with two processors, by the host's clock, for threads that do run at the same time. And with
SVE, where bursts are not chosen.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

from checks import expect, run_each
from machine import ROOT, Machine, Results, need

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-system-aarch64"
# Return addresses are signed by a way of QEMU's own: with that of processors all takes one and a half times as long, and a boot three times.
PROCESSOR = "max,pauth-impdef=on"
COUNTING = ["-cpu", f"{PROCESSOR},sve=off", "-icount", "shift=3,sleep=off", "-smp", "1"]
PARALLEL = ["-cpu", f"{PROCESSOR},sve=off", "-accel", "tcg,thread=multi", "-smp", "2"]
LONG_VECTORS = ["-cpu", PROCESSOR, "-icount", "shift=3,sleep=off", "-smp", "1"]
LIMIT_S = 600
# As the loader has them, of the cross compiler's folder.
LIBRARIES = ["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1"]

# What known.c accesses, and the part of its loads, and of the samples with data, that are there.
SHARES = {"in_heap": 0.4, "in_globals": 0.3, "on_stack": 0.2, "in_thread": 0.1}
LOADS_OF_ROUND = 10 * 4096
# How far a share of samples may be off, since ticks come at intervals and the loop takes as long each time; and by chance, in standard deviations.
OFF, SIGMAS = 0.05, 4
# How far the number of all loads may be off, as it is estimated from bursts.
OFF_TOTAL = 0.25
# The pattern of each array of walks.c. No cache holds them.
PATTERNS = {
    "streams": ("table", {"kind": "stream", "stride_bytes": 8}),
    "strides": ("columns", {"kind": "stride", "stride_bytes": 4096}),
    "gathers": ("cells", {"kind": "indirect"}),
    "follows": ("list", {"kind": "pointer-chase"}),
}
CACHES = "--machine arm-neoverse-v2 --cache l2=256K,8,64 --cache llc=1M,16,64"

# What the machine does: name, command of its shell.
SAMPLE = "/t/memlens record --mode sample --frequency 1000"
BURST = "/t/memlens record --mode burst --overhead 30%"
KNOWN = "/t/known 10000"
COUNTING_COMMANDS = [
    ("native", KNOWN),
    ("kernel-clock", f"{SAMPLE} --out kernel-clock.memlens -- {KNOWN}"),
    ("agent-clock", f"{SAMPLE} --event agent-clock --out agent-clock.memlens -- {KNOWN}"),
    ("all", f"{SAMPLE} --allocations all --out all.memlens -- {KNOWN}"),
    ("threads", f"{SAMPLE} --out threads.memlens -- /t/known 2000 3 1"),
    ("attach", f"/t/known 15000 & p=$!; sleep 2; {SAMPLE} --pid $p --duration 5 --out attach.memlens; echo $?; wait $p"),
    ("bare", "/t/memlens record --out bare.memlens -- /t/bare 400"),
    ("exact", "/t/memlens record --mode exact -- /t/known"),
    ("burst", f"{BURST} --out burst.memlens -- /t/known 2000"),
    ("burst-threads", f"{BURST} --out burst-threads.memlens -- /t/known 400 3 1"),
    ("walks", f"{BURST} {CACHES} --out walks.memlens -- /t/walks 60"),
    ("static", "/t/memlens record --attribution static -- /t/known"),
    ("doctor", "/t/memlens doctor"),
    ("report", "/t/memlens report kernel-clock.memlens"),
]
PARALLEL_COMMANDS = [
    ("parallel", f"{SAMPLE} --out parallel.memlens -- /t/known 4000 3 1"),
    ("parallel-bursts", f"{BURST} --out parallel-bursts.memlens -- /t/known 4000 3 1"),
]
LONG_VECTORS_COMMANDS = [("long-vectors", "/t/memlens record --out long-vectors.memlens -- /t/known 400")]


def emulator(kind):
    return [EMULATOR, "-machine", "virt", *kind, "-m", "2G"]


def compile(source, target, *options):
    subprocess.run([COMPILER, *options, "-Wall", "-o", target, ROOT / "tests/aarch64" / source, "-pthread"], check=True)


def equipped(folder, memlens):
    machine = Machine(folder, "arm64", "ttyAMA0")
    root = Path(subprocess.run([COMPILER, "-print-file-name=libc.so.6"], check=True, capture_output=True, text=True).stdout.strip())
    for library in LIBRARIES:
        shutil.copy(root.resolve().parent / library, machine.tree / "lib" / library)
    programs = machine.tree / "t"
    shutil.copy(memlens, programs / "memlens")
    compile("known.c", programs / "known", "-O2", "-g")
    compile("known.c", programs / "bare", "-O2", "-s", "-mbranch-protection=standard")
    # Not vectorised: what a vector instruction does depends on the compiler.
    compile("walks.c", programs / "walks", "-O2", "-g", "-fno-tree-vectorize")
    return machine


def of_arrays(report, column):
    """The sum of a column for each of known.c's arrays."""
    sums = dict.fromkeys(SHARES, 0)
    for found in report["objects"]:
        plain = found["name"].removeprefix("heap through ")
        if plain in sums:
            sums[plain] += found[column]
    return sums


def checks(results):
    def said(rounds, threads=1, children=0):
        return f"known rounds {rounds} threads {threads} children {children} sum 0"

    def shares(name):
        """That the arrays have their parts of the samples, each under its name."""
        report = results.read(name, "report")
        samples = of_arrays(report, "samples")
        total = sum(samples.values())
        expect(total >= 500, f"{total} samples are on the arrays: {[found['name'] for found in report['objects']]}")
        for array, share in SHARES.items():
            sigma = math.sqrt(share * (1 - share) / total)
            off = abs(samples[array] / total - share)
            expect(off <= OFF + SIGMAS * sigma, f"{array} has {samples[array]} of {total} samples, and not {share} of them")
        print(f"        {samples} of {sum(found['samples'] or 0 for found in report['objects'])} samples")
        return report

    def sampled(name, stdout):
        def check():
            results.ended(name, 7, stdout)
            shares(name)

        return check

    def heap_is_watched():
        results.ended("all", 7, said(10000))
        report = shares("all")
        source = (ROOT / "tests/aarch64/known.c").read_text().splitlines()
        calls = [number for number, line in enumerate(source, 1) if "= calloc(" in line]
        heap = [found for found in report["objects"] if found["name"] == "in_heap" and found["kind"] == "heap"]
        lines = sorted(found["site"][0]["line"] for found in heap)
        expect(lines == calls, f"blocks are from lines {lines}, not {calls}")
        fields = {field["name"] for found in heap for field in found["fields"]}
        expect(fields == {"first", "second"}, f"fields {fields}")

    def attached():
        text = results.ended("attach", 7, said(15000))
        expect(text.splitlines()[0] == "0" or "\n0\n" in f"\n{text}", text)
        report = shares("attach")
        notes = json.dumps([report["run"]["notes"], report["attribution"]["notes"]])
        expect("was let in while the process ran" in notes and "Allocations were not watched" not in notes, notes)
        watched = [found for found in report["objects"] if found["name"] == "in_heap" and found["blocks"]]
        expect(watched, "no block was watched in the process that ran before")

    def chosen():
        results.ended("bare", 7, said(400))
        report = results.read("bare", "report")
        expect(report["run"]["mode"] == "burst", f"auto has chosen {report['run']['mode']}")
        expect(any("bare" in json.dumps(found) for found in report["objects"]), "nothing of the program")

    def recorded(name, stdout, arrays, loads=None):
        """Bursts see every access for a moment: of the loads of these arrays each has its part, and all together are LOADS."""

        def check():
            results.ended(name, 7, stdout)
            report = results.read(name, "report")
            expect(report["run"]["mode"] == "burst", report["run"]["mode"])
            found = of_arrays(report, "loads")
            total, whole = sum(found[array] for array in arrays), sum(SHARES[array] for array in arrays)
            expect(total > 0, [entry["name"] for entry in report["objects"]])
            print(f"        {found}, {report['totals']['loads']} in all" + (f" of {loads}" if loads else ""))
            for array in arrays:
                part, share = found[array] / total, SHARES[array] / whole
                expect(abs(part - share) <= 0.02, f"{array} has {part:.3f} of the loads, and not {share} of them")
            if loads:
                off = report["totals"]["loads"] / loads - 1
                expect(abs(off) <= OFF_TOTAL, f"loads are {off:+.0%} off")

        return check

    def patterns():
        results.ended("walks", 0, "walks 60 ")
        rows = results.read("walks", "report")["instructions"]
        for function, (_, expected) in PATTERNS.items():
            loads = [row for row in rows if row["function"] == function and row["loads"] and row["pattern"]]
            found = [{key: row["pattern"][key] for key in expected} for row in loads]
            print(f"        {function}: {found}")
            expect(expected in found, f"{function} has {[row['pattern'] for row in loads]}")

    def stalls():
        """A core waits for nodes that it has to find by each other; what else it misses, many at a time, it hides."""
        report = results.read("walks", "report")
        objects = {found["name"]: found for found in report["objects"]}
        for array, _ in PATTERNS.values():
            entry, total = objects[array], report["totals"]["stall_cycles"]
            stall, part = entry["stall_cycles"] / entry["wait_cycles"], entry["stall_cycles"] / total
            print(f"        {array}: waited for in {stall:.2f} of the time that it takes, {part:.2f} of all stalls")
            if array == "list":
                expect(stall >= 0.9 and part >= 0.6, f"{array} is hidden: {entry['stall_cycles']} of {entry['wait_cycles']} cycles")
            else:
                expect(stall <= 0.2, f"{array} is waited for: {entry['stall_cycles']} of {entry['wait_cycles']} cycles")

    def library():
        """The code that reads "text" is the C library's, which the walks are called beside in each round."""
        rows = results.read("walks", "query", "SELECT module, sum(accesses) AS accesses FROM code GROUP BY module")
        accesses = {row["module"]: row["accesses"] for row in rows}
        expect(None not in accesses, f"of some code it is not known whose it is: {accesses}")
        part = accesses.get("libc.so.6", 0) / sum(accesses.values())
        print(f"        {part:.3f} of the accesses are the library's")
        expect(0.05 <= part <= 0.5, f"{accesses}")

    def side_by_side():
        """Where an emulator interrupts at jumps only, samples find no data: that they are taken, in all threads."""
        results.ended("parallel", 7, said(4000, 3, 1))
        report = results.read("parallel", "report")
        threads, samples = report["run"]["threads"], report["totals"]["samples"]
        expect(threads == 4 and samples >= 100, f"{samples} samples in {threads} threads")

    def long_vectors():
        results.ended("long-vectors", 7, said(400), "the processor has SVE")
        report = results.read("long-vectors", "report")
        expect(report["run"]["mode"] == "sample", f"auto has chosen {report['run']['mode']}")

    def refused(name, what):
        return lambda: results.ended(name, 69, stderr=f"{what} needs an x86-64 processor")

    # Whose locals and blocks those of other threads are is known less often.
    surely_known = ["in_globals", "in_thread"]
    return [
        ("the_program_runs_by_itself", lambda: results.ended("native", 7, said(10000))),
        ("samples_of_the_kernels_clock_find_their_data", sampled("kernel-clock", said(10000))),
        ("ticks_of_the_agent_find_their_data", sampled("agent-clock", said(10000))),
        ("heap_blocks_have_their_variables_and_lines", heap_is_watched),
        ("threads_and_children_are_sampled", sampled("threads", said(2000, 3, 1))),
        ("a_running_process_is_attached_to", attached),
        ("a_stripped_program_with_signed_returns_is_recorded", chosen),
        ("bursts_find_their_data", recorded("burst", said(2000), SHARES, 2000 * LOADS_OF_ROUND)),
        (
            "threads_and_children_run_in_bursts",
            recorded("burst-threads", said(400, 3, 1), surely_known, 4 * 400 * LOADS_OF_ROUND),
        ),
        ("bursts_tell_of_patterns", patterns),
        ("bursts_tell_of_stalls", stalls),
        ("code_of_libraries_is_found", library),
        ("exact_mode_is_refused", refused("exact", "exact mode")),
        ("static_attribution_is_refused", refused("static", "--attribution static")),
        ("the_doctor_speaks", lambda: results.ended("doctor", 0, "aarch64")),
        ("profiles_are_shown_there_too", lambda: results.ended("report", 0, "in_globals")),
        ("threads_that_run_at_the_same_time_are_sampled", side_by_side),
        ("threads_that_run_at_the_same_time_have_bursts", recorded("parallel-bursts", said(4000, 3, 1), surely_known)),
        ("samples_are_chosen_where_vectors_are_long", long_vectors),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", type=Path, required=True)
    parser.add_argument("--reader", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    need(COMPILER, "gcc-aarch64-linux-gnu")
    need(EMULATOR, "qemu-system-arm")
    need("apt-get", "apt, or run this on a Debian")
    machine = equipped(arguments.folder, arguments.memlens)
    machine.run(emulator(COUNTING), COUNTING_COMMANDS, LIMIT_S)
    machine.run(emulator(PARALLEL), PARALLEL_COMMANDS, LIMIT_S)
    machine.run(emulator(LONG_VECTORS), LONG_VECTORS_COMMANDS, LIMIT_S)
    sys.exit(run_each(checks(Results(machine.out, arguments.reader))))


if __name__ == "__main__":
    main()

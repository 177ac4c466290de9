#!/usr/bin/env python3
"""Runs memlens on AArch64, in an emulated machine: sample and burst mode on programs with known answers.

    tests/aarch64.py --memlens FILE --reader FILE --folder FOLDER

FILE of --memlens is built for AArch64, that of --reader for this machine: it reads the profiles, which must not matter. FOLDER
keeps what is downloaded and made. The machine is QEMU's, with a kernel and a busybox of Debian's, which apt fetches into FOLDER, and the
libraries of the cross compiler. It executes one instruction at a time, half an hour in all, because the interrupts of an emulator come at
jumps only otherwise, and hardly one takes longer than another: the shares of tests/aarch64/known.c follow. The last line is
`N passed, N failed`; without an emulator, a compiler or apt it says what is missing, and ends with exit code 1.
"""

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

from checks import expect, run_each
from machine import ROOT, Machine, Results, need

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-system-aarch64"
# As the loader has them, of the cross compiler's folder.
LIBRARIES = ["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1"]
# What known.c accesses, and the part of the samples with data that are there.
SHARES = {"in_heap": 0.4, "in_globals": 0.3, "on_stack": 0.2, "in_thread": 0.1}
# How far a share may be off: an emulator's instructions do not all take the same time; and by chance, in standard deviations.
OFF, SIGMAS = 0.1, 4
FREQUENCY = "200"
LIMIT_S = 2700

# What the machine does: name, command of its shell. All run in one boot, in order.
KNOWN = "/t/known 2500"
COMMANDS = [
    ("native", KNOWN),
    ("kernel-clock", f"/t/memlens record --frequency {FREQUENCY} --out kernel-clock.memlens -- {KNOWN}"),
    ("agent-clock", f"/t/memlens record --event agent-clock --frequency {FREQUENCY} --out agent-clock.memlens -- {KNOWN}"),
    ("all", f"/t/memlens record --allocations all --frequency {FREQUENCY} --out all.memlens -- {KNOWN}"),
    ("threads", f"/t/memlens record --frequency {FREQUENCY} --out threads.memlens -- /t/known 400 3 1"),
    (
        "attach",
        "/t/known 15000 & p=$!; sleep 2;"
        f" /t/memlens record --pid $p --duration 5 --frequency {FREQUENCY} --out attach.memlens; echo $?; wait $p",
    ),
    ("bare", "/t/memlens record --out bare.memlens -- /t/bare 400"),
    ("exact", "/t/memlens record --mode exact -- /t/known"),
    ("burst", "/t/memlens record --mode burst --overhead 30% --out burst.memlens -- /t/known 800"),
    ("burst-threads", "/t/memlens record --mode burst --overhead 100% --out burst-threads.memlens -- /t/known 60 3 1"),
    ("static", "/t/memlens record --attribution static -- /t/known"),
    ("doctor", "/t/memlens doctor"),
    ("report", "/t/memlens report kernel-clock.memlens"),
]


def compile(source, target, *options):
    subprocess.run([COMPILER, *options, "-Wall", "-o", target, source, "-pthread"], check=True)


def emulator():
    version = subprocess.run([EMULATOR, "--version"], check=True, capture_output=True, text=True).stdout
    is_new = tuple(map(int, re.search(r"version (\d+)\.(\d+)", version).groups())) >= (8, 1)
    one_by_one = ["-accel", "tcg,one-insn-per-tb=on"] if is_new else ["-accel", "tcg", "-singlestep"]
    return [EMULATOR, "-machine", "virt", "-cpu", "max,sve=off", *one_by_one, "-smp", "2", "-m", "2G"]


def equipped(folder, memlens):
    machine = Machine(folder, "arm64", "ttyAMA0")
    root = Path(subprocess.run([COMPILER, "-print-file-name=libc.so.6"], check=True, capture_output=True, text=True).stdout.strip())
    for library in LIBRARIES:
        shutil.copy(root.resolve().parent / library, machine.tree / "lib" / library)
    shutil.copy(memlens, machine.tree / "t/memlens")
    compile(ROOT / "tests/aarch64/known.c", machine.tree / "t/known", "-O2", "-g")
    compile(ROOT / "tests/aarch64/known.c", machine.tree / "t/bare", "-O2", "-s", "-mbranch-protection=standard")
    return machine


class Known(Results):
    def shares(self, name):
        """That the arrays have their parts of the samples, each under its name."""
        report = self.read(name, "report")
        samples = dict.fromkeys(SHARES, 0)
        for found in report["objects"]:
            plain = found["name"].removeprefix("heap through ")
            if plain in samples:
                samples[plain] += found["samples"]
        total = sum(samples.values())
        expect(total >= 50, f"{total} samples are on the arrays: {[o['name'] for o in report['objects']]}")
        for array, share in SHARES.items():
            sigma = math.sqrt(share * (1 - share) / total)
            off = abs(samples[array] / total - share)
            expect(off <= OFF + SIGMAS * sigma, f"{array} has {samples[array]} of {total} samples, and not {share} of them")
        print(f"        {samples} of {sum(found['samples'] or 0 for found in report['objects'])} samples")
        return report


def checks(results):
    output = "known rounds 2500 threads 1 children 0 sum 0"

    def found(name, *, stdout=output, code=7):
        def check():
            results.ended(name, code, stdout)
            results.shares(name)

        return check

    def heap_is_watched():
        results.ended("all", 7, output)
        report = results.shares("all")
        source = (ROOT / "tests/aarch64/known.c").read_text().splitlines()
        calls = [number for number, line in enumerate(source, 1) if "= calloc(" in line]
        heap = [found for found in report["objects"] if found["name"] == "in_heap" and found["kind"] == "heap"]
        lines = sorted(found["site"][0]["line"] for found in heap)
        expect(lines == calls, f"blocks are from lines {lines}, not {calls}")
        fields = {field["name"] for found in heap for field in found["fields"]}
        expect(fields == {"first", "second"}, f"fields {fields}")

    def attached():
        text = results.ended("attach", 7, "known rounds 15000")
        expect(text.splitlines()[0] == "0" or "\n0\n" in f"\n{text}", text)
        report = results.shares("attach")
        notes = json.dumps([report["run"]["notes"], report["attribution"]["notes"]])
        expect("not watched" not in notes, notes)
        watched = [found for found in report["objects"] if found["name"] == "in_heap" and found["blocks"]]
        expect(watched, "no block was watched in the process that ran before")

    def stripped():
        results.ended("bare", 7, "known rounds 400")
        expect(any("bare" in json.dumps(found) for found in results.read("bare", "report")["objects"]), "nothing of the program")

    def recorded(name, stdout, arrays):
        """Bursts see every access for a moment: of the loads of these arrays each has its part."""

        def check():
            results.ended(name, 7, stdout)
            report = results.read(name, "report")
            expect(report["run"]["mode"] == "burst", report["run"]["mode"])
            loads = dict.fromkeys(arrays, 0)
            for found in report["objects"]:
                plain = found["name"].removeprefix("heap through ")
                if plain in loads:
                    loads[plain] += found["loads"]
            total = sum(loads.values())
            expect(total > 0, [found["name"] for found in report["objects"]])
            for array in arrays:
                part, share = loads[array] / total, SHARES[array] / sum(SHARES[one] for one in arrays)
                expect(abs(part - share) <= 0.02, f"{array} has {part:.3f} of the loads, and not {share} of them")
            print(f"        {loads}")

        return check

    def chosen():
        stripped()
        expect(results.read("bare", "report")["run"]["mode"] == "burst", "auto has chosen another mode")

    def refused(name, what):
        return lambda: results.ended(name, 69, stderr=f"{what} needs an x86-64 processor")

    return [
        ("the_program_runs_by_itself", lambda: results.ended("native", 7, output)),
        ("samples_of_the_kernels_clock_find_their_data", found("kernel-clock")),
        ("ticks_of_the_agent_find_their_data", found("agent-clock")),
        ("heap_blocks_have_their_variables_and_lines", heap_is_watched),
        ("threads_and_children_are_sampled", found("threads", stdout="known rounds 400 threads 3 children 1 sum 0")),
        ("a_running_process_is_attached_to", attached),
        ("a_stripped_program_with_signed_returns_is_recorded", chosen),
        ("bursts_find_their_data", recorded("burst", "known rounds 800 threads 1 children 0 sum 0", list(SHARES))),
        # Whose locals and blocks those of other threads are is known less often.
        (
            "threads_and_children_run_in_bursts",
            recorded("burst-threads", "known rounds 60 threads 3 children 1 sum 0", ["in_globals", "in_thread"]),
        ),
        ("exact_mode_is_refused", refused("exact", "exact mode")),
        ("static_attribution_is_refused", refused("static", "--attribution static")),
        ("the_doctor_speaks", lambda: results.ended("doctor", 0, "aarch64")),
        ("profiles_are_shown_there_too", lambda: results.ended("report", 0, "in_globals")),
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
    machine.run(emulator(), COMMANDS, LIMIT_S)
    sys.exit(run_each(checks(Known(machine.out, arguments.reader))))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs memlens in an emulated machine with two memory nodes (NUMA), on a program whose remote misses are known.

    tests/numa.py --memlens FILE --folder FOLDER

FOLDER keeps what is downloaded and made. The machine is QEMU's, with two nodes of two processors and 1 GiB each, and a kernel and a busybox
of Debian's, which apt fetches into FOLDER. In an emulator no memory is farther than another, but the kernel deals pages out as ever. The
last line is `N passed, N failed`; without an emulator, a compiler or apt it says what is missing, and ends with exit code 1.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from checks import expect, run_each
from machine import ROOT, Machine, Results, need

COMPILER = "cc"
EMULATOR = "qemu-system-x86_64"
LIMIT_S = 600
# Pages stay where they are, and huge ones do not lie across the border of two threads' parts.
APPEND = "numa_balancing=disable transparent_hugepage=never"
# Two threads on four processors, arrays of 8 MiB each.
PAGES = 2048
NODES = f"/t/nodes 2 {PAGES} 150 4"
# Of the misses of each array of bench/workloads/nodes.c, which part is remote in main, and in the other thread: of main's pages.
REMOTE = {"serial": (0, 1), "parallel": (0, 0), "shared": (0, 1), "returned": (0, 0)}
# How far it may be off: pages are looked up after a burst, when `returned` may have been given back and have other pages.
OFF = 0.05
# The arrays do not fit.
CACHES = "--cache l2=256K,8,64 --cache llc=1M,16,64"

# What the machine does: name, command of its shell. All run in one boot, in order.
COMMANDS = [
    ("native", NODES),
    # It finds no program to try its modes with.
    ("doctor", "/t/memlens doctor | cat"),
    ("burst", f"/t/memlens record --mode burst --overhead 10 --frequency 20 {CACHES} --out burst.memlens -- {NODES}"),
    ("report", "/t/memlens report burst.memlens --object shared"),
    # The first run that finds no calibration measures briefly; what varies much is left out of it, and an emulator's times do now and then.
    (
        "brief",
        "for round in 1 2 3 4 5; do rm -f $HOME/.cache/memlens/*.toml;"
        " MEMLENS_CALIBRATION= /t/memlens record --mode burst --out brief.memlens --force -- /t/nodes 2 64 1;"
        " grep -q latency.nodes $HOME/.cache/memlens/*.toml && break; done; cat $HOME/.cache/memlens/*.toml",
    ),
]


def emulator():
    nodes = [
        word
        for node in (0, 1)
        for word in (
            "-object", f"memory-backend-ram,size=1G,id=memory{node}",
            "-numa", f"node,nodeid={node},cpus={2 * node}-{2 * node + 1},memdev=memory{node}",
        )
    ]  # fmt: skip
    return [EMULATOR, "-cpu", "max", "-accel", "tcg,thread=multi", "-smp", "4", "-m", "2G", *nodes]


def equipped(folder, memlens):
    machine = Machine(folder, "amd64", "ttyS0")
    shutil.copy(memlens, machine.tree / "t/memlens")
    source = ROOT / "bench/workloads/nodes.c"
    subprocess.run([COMPILER, "-O2", "-g", "-Wall", "-o", machine.tree / "t/nodes", source, "-pthread"], check=True)
    programs = [machine.tree / "t" / name for name in ("memlens", "nodes")]
    libraries = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True)
    for library in set(re.findall(r"(/\S+) \(0x", libraries.stdout)):
        target = machine.tree / library[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    return machine


class Nodes(Results):
    def objects(self, name):
        """The arrays of a profile, by name."""
        report = self.read(name, "report")
        expect(report["machine"]["nodes"] == 2, f"{report['machine']['nodes']} nodes; {report['run']['notes']}")
        found = {}
        for entry in report["objects"]:
            plain = entry["name"].removeprefix("heap through ")
            if plain in REMOTE and plain not in found:
                found[plain] = entry
        expect(set(found) == set(REMOTE), f"objects {[entry['name'] for entry in report['objects']]}")
        return found

    def by_thread(self, name):
        """Last-level misses of each array in each thread, those of them that are remote, and those that are misplaced."""
        question = (
            "SELECT o.name, c.thread, sum(c.llc_load_misses + c.llc_store_misses) AS misses, sum(c.remote_misses) AS remote,"
            " sum(c.misplaced) AS misplaced FROM cells c JOIN objects o USING (object) GROUP BY 1, 2"
        )
        rows = [row for row in self.read(name, "query", question) if row["name"] in REMOTE]
        return {(row["name"], row["thread"] - 1): row for row in rows}


def checks(results):
    def remote_parts():
        results.ended("burst")
        for entry in results.objects("burst").values():
            expect(entry["remote_misses"] is not None and entry["first_touches"] is None, f"{entry['name']}: what is known of nodes")
        rows = results.by_thread("burst")
        for name, parts in REMOTE.items():
            for thread, expected in enumerate(parts):
                row = rows.get((name, thread))
                expect(row and row["misses"] > 1000, f"{name} in thread {thread}: {row}")
                part = row["remote"] / row["misses"]
                print(f"        {name}, thread {thread}: {row['remote']} of {row['misses']} misses are remote")
                expect(abs(part - expected) <= OFF, f"{name}: {part:.3f} of the misses of thread {thread} are remote, not {expected}")

    def misplaced():
        rows = results.by_thread("burst")
        for name, least, most in [("serial", 0.6, 1.0), ("shared", 0.0, 0.4)]:
            row = rows[name, 1]
            part = row["misplaced"] / row["remote"]
            print(f"        {name}: {part:.3f} of the remote misses are misplaced")
            expect(least <= part <= most, f"{name}: {part:.3f} of the remote misses are misplaced")

    def where_objects_lie():
        whole = PAGES * 4096
        expected = {"serial": [whole, 0], "shared": [whole, 0], "parallel": [whole // 2] * 2, "returned": [whole // 2] * 2}
        for name, entry in results.objects("burst").items():
            nodes = (entry["backing"] or {}).get("node_bytes")
            expect(nodes, f"{name}: {entry['backing']}")
            nodes = (nodes + [0, 0])[:2]
            # Of a process's mappings before Linux 6.7 only a part is known to be an object's: shares tell.
            off = max(abs(here / sum(nodes) - there / whole) for here, there in zip(nodes, expected[name]))
            expect(off <= 0.05, f"{name} has {nodes} bytes in the nodes, not {expected[name]}")

    def other_node():
        text = results.ended("brief", stdout="[[latency.nodes]]")
        # Main, which measures, may be on either.
        expect(re.search(r"\[\[latency.nodes\]\]\nnode = [01]\n", text), text[-1500:])

    return [
        ("the_program_runs_by_itself", lambda: results.ended("native")),
        ("bursts_tell_which_misses_are_remote", remote_parts),
        ("pages_that_another_node_uses_are_misplaced", misplaced),
        ("the_kernel_says_where_objects_lie", where_objects_lie),
        ("reports_show_it", lambda: results.ended("report", stdout="on node 0")),
        ("the_other_nodes_latency_is_measured", other_node),
        ("the_doctor_tells_of_nodes", lambda: results.ended("doctor", stdout="2 (nodes 0, 1); the kernel says")),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    need(COMPILER, "gcc")
    need(EMULATOR, "qemu-system-x86")
    need("apt-get", "apt, or run this on a Debian")
    machine = equipped(arguments.folder, arguments.memlens)
    machine.run(emulator(), COMMANDS, LIMIT_S, APPEND)
    sys.exit(run_each(checks(Nodes(machine.out, arguments.memlens))))


if __name__ == "__main__":
    main()

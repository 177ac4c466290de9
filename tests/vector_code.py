#!/usr/bin/env python3
"""Vector instructions stand where they are used.

    tests/vector_code.py --memlens FILE

A function of core::arch that is called, not inlined, in a loop over all accesses makes it slower by a tenth and more, and
nothing else tells: its caller was compiled for fewer instruction sets than it needs (`#[target_feature]` names too few, or
a closure went to an iterator). This reads the built program's machine code for such calls.
"""

import argparse
import re
import shutil
import subprocess
import sys

# Other crates' functions that have them.
OTHERS = re.compile(r"zlib_rs|std_detect")


def called_intrinsics(memlens):
    """(caller, callee) of every call of a function of core::arch."""
    command = ["objdump", "-d", "--no-show-raw-insn", memlens]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as objdump:
        caller, functions = "", 0
        for line in objdump.stdout:
            if line.endswith(">:\n"):
                caller, functions = line.split("<", 1)[1][:-3], functions + 1
            elif "core_arch" in line and "call" in line:
                yield caller, line.rsplit("<", 1)[1].strip(">\n")
    if objdump.returncode != 0 or functions < 1000:
        sys.exit(f"vector_code: {memlens} was not read: {functions} functions, exit code {objdump.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", required=True, metavar="FILE")
    memlens = parser.parse_args().memlens
    if not shutil.which("objdump"):
        print("left out for want of objdump: vector_code")
        return
    ours = sorted({call for call in called_intrinsics(memlens) if not OTHERS.search(call[0])})
    for caller, callee in ours:
        print(f"FAILED  {caller} calls {callee}")
    if ours:
        sys.exit(1)
    print("ok      no vector instruction is called as a function")


if __name__ == "__main__":
    main()

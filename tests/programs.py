#!/usr/bin/env python3
"""Compiles tests/programs/* and two examples, and holds memlens's counts against those derived in their comments.

    tests/programs.py [--memlens FILE | --native] [--level -O2] [--keep FOLDER] [--jobs N] [NAME...]

Each program says at its top what must be found, in lines that this script reads:

    prints: TEXT              the last line of standard output
    exit: CODE, signal: NUMBER        how it ends; default: exit code 0
    flags: -static ...        for the compiler
    args: 5 7                 its arguments
    levels: -O2               optimisation levels, when not both -O0 and -O2
    requires: avx2            a flag of /proc/cpuinfo; without it the program is skipped
    memlens: --cache ...      options of `memlens run`
    expect KIND NAME: key=value ...   an object of the report with this kind and name has these values
    named: 99                 at least so many percent of all loads and stores belong to objects that are
                              not of kind unknown and have a name
    expect[-O0] ...           the same, at this level only
    field KIND NAME FIELD: key=value ...      a field of the structures that such an object consists of; field[-O0] …
    expect-absent KIND NAME   there is no such object, or nobody accessed it

KIND * means any kind, NAME * the sum over all objects of the kind. A value is a number, or an interval
LEAST..MOST of which MOST may be missing; that of `pattern` is a word: the kind with most of the object's
waiting. Two expectations of one kind and name must be met by two different objects.

--native runs without memlens and checks only output and end. Exit code 0 when nothing failed; the last
line is `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import Failure
from side_by_side import side_by_side

HERE = Path(__file__).resolve().parent
EXAMPLES = [HERE.parent / "examples" / name for name in ("bfs/bfs.c", "kernels/fivearrays.c")]
COMPILERS = {
    ".c": ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-function"],
    ".cpp": ["c++", "-std=c++17", "-Wall", "-Wextra"],
    ".f90": ["gfortran"],
    ".rs": ["rustc", "--edition", "2024"],
}
DIRECTIVE = re.compile(r"^(?:/\*|\*|//|!)?\s*(prints|exit|signal|flags|args|levels|requires|memlens|named):\s*(.*)$")
EXPECT = re.compile(r"^(?:/\*|\*|//|!)?\s*expect(?:\[(-O\d)\])? (\S+) (.+?):(?= |$)\s*(.*)$")
FIELD = re.compile(r"^(?:/\*|\*|//|!)?\s*field(?:\[(-O\d)\])? (\S+) (.+?) (\S+):(?= |$)\s*(.*)$")
ABSENT = re.compile(r"^(?:/\*|\*|//|!)?\s*expect-absent (\S+) (.+)$")


class Program:
    def __init__(self, path):
        self.path = path
        self.directives = {}
        self.expectations = []
        self.absent = []
        self.fields = []
        for line in path.read_text().splitlines():
            line = line.strip()
            if match := DIRECTIVE.match(line):
                self.directives[match[1]] = match[2].strip()
            elif match := EXPECT.match(line):
                values = dict(pair.split("=", 1) for pair in match[4].split())
                self.expectations.append((match[1], match[2], match[3], values))
            elif match := FIELD.match(line):
                values = dict(pair.split("=", 1) for pair in match[5].split())
                self.fields.append((match[1], match[2], match[3], match[4], values))
            elif match := ABSENT.match(line):
                self.absent.append((match[1], match[2]))

    def words(self, directive):
        return self.directives.get(directive, "").split()

    def missing(self, cpu_flags):
        """Why it cannot be built or run here, or None."""
        compiler = COMPILERS[self.path.suffix][0]
        if not shutil.which(compiler):
            return f"no {compiler}"
        for flag in self.words("requires"):
            if flag not in cpu_flags:
                return f"the processor has no {flag}"
        return None

    def build(self, level, folder):
        output = folder / f"{self.path.stem}{level}"
        command = list(COMPILERS[self.path.suffix])
        if self.path.suffix == ".rs":
            command += ["-g", f"-Copt-level={level[2:]}"]
        else:
            command += ["-g", level, "-pthread"]
        command += [*self.words("flags"), "-o", str(output), str(self.path)]
        if self.path.suffix == ".c":
            command.append("-ldl")
        built = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if built.returncode != 0:
            raise Failure(f"does not compile:\n{built.stderr}")
        return output

    def check_end(self, run):
        lines = run.stdout.splitlines()
        last = lines[-1] if lines else ""
        if last != self.directives.get("prints", ""):
            raise Failure(f"printed {last!r}, not {self.directives.get('prints')!r}; stderr: {run.stderr[-500:]}")
        # A shell's convention serves for memlens, which cannot die by the program's signal in every case.
        signal = int(self.directives.get("signal", 0))
        wanted = {-signal, 128 + signal} if signal else {int(self.directives.get("exit", 0))}
        if run.returncode not in wanted:
            raise Failure(f"ended with {run.returncode}, not {min(wanted)}; stderr: {run.stderr[-500:]}")


def in_interval(text, value):
    if value is None:
        return False
    if isinstance(value, str):
        return value == text
    least, dots, most = text.partition("..")
    if not dots:
        return value == int(text)
    return int(least) <= value and (not most or value <= int(most))


def mismatches(values, found):
    return [f"{key} is {found.get(key)}, not {value}" for key, value in values.items()
            if not in_interval(value, found.get(key))]


def candidates(objects, kind, name):
    of_kind = [o for o in objects if kind in ("*", o["kind"])]
    if name != "*":
        return [o for o in of_kind if o["name"] == name]
    total = {}
    for found in of_kind:
        for key, value in found.items():
            if isinstance(value, int):
                total[key] = total.get(key, 0) + value
    return [total]


def named_percent(report):
    """Share of loads and stores that go to objects with a name, in percent."""
    accesses = lambda counts: counts["loads"] + counts["stores"]
    named = sum(accesses(o) for o in report["objects"] if o["kind"] != "unknown" and o["name"])
    return 100 * named / max(1, accesses(report["totals"]))


def check_report(program, level, report):
    problems, taken = [], set()
    for found in report["objects"]:
        shares = found.get("patterns") or [{"kind": "none", "share": 0}]
        found["pattern"] = max(shares, key=lambda pattern: pattern["share"])["kind"]
    if least := program.directives.get("named"):
        if (percent := named_percent(report)) < float(least):
            problems.append(f"{percent:.2f} % of accesses have a named object, not {least}")
    for only_level, kind, name, values in program.expectations:
        if only_level not in (None, level):
            continue
        found = [o for o in candidates(report["objects"], kind, name) if id(o) not in taken]
        if not found:
            problems.append(f"no object {kind} {name}")
            continue
        best = min(found, key=lambda o: len(mismatches(values, o)))
        taken.add(id(best))
        if wrong := mismatches(values, best):
            problems.append(f"{kind} {name}: " + ", ".join(wrong))
    for only_level, kind, name, field, values in program.fields:
        if only_level not in (None, level):
            continue
        of_objects = [f for o in candidates(report["objects"], kind, name) for f in o["fields"] or []]
        found = [f for f in of_objects if f["name"] == field]
        if not found:
            problems.append(f"{kind} {name} has no field {field}, only {[f['name'] for f in of_objects]}")
            continue
        best = min(found, key=lambda f: len(mismatches(values, f)))
        if wrong := mismatches(values, best):
            problems.append(f"{field} of {kind} {name}: " + ", ".join(wrong))
    for kind, name in program.absent:
        for found in candidates(report["objects"], kind, name):
            if found["loads"] or found["stores"]:
                problems.append(f"{kind} {name} has accesses")
    if problems:
        names = ", ".join(sorted({f"{o['kind']} {o['name']}" for o in report["objects"]}))
        raise Failure("; ".join(problems) + f" (objects: {names[:600]})")


def run_one(program, level, memlens, folder, timeout):
    binary = program.build(level, folder)
    if memlens is None:
        run = subprocess.run([binary, *program.words("args")], capture_output=True, text=True, timeout=timeout, cwd=folder)
        program.check_end(run)
        return
    profile = folder / f"{binary.name}.profile"
    options = ["--mode", "exact", "--quiet", "--out", str(profile), *program.words("memlens")]
    run = subprocess.run([memlens, "run", *options, "--", str(binary), *program.words("args")],
                         capture_output=True, text=True, timeout=timeout, cwd=folder)
    program.check_end(run)
    if not (program.expectations or program.absent or program.fields) and not program.words("named"):
        return
    report = subprocess.run([memlens, "report", str(profile), "--format", "json"], capture_output=True, text=True,
                            timeout=timeout, cwd=folder)
    if report.returncode != 0:
        raise Failure(f"memlens report: {report.stderr[-500:]}")
    check_report(program, level, json.loads(report.stdout))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(HERE.parent / "target/release/memlens"))
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--level", action="append", choices=["-O0", "-O1", "-O2", "-O3"])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="build and profile here, and leave it")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many programs at a time")
    parser.add_argument("names", nargs="*", metavar="NAME")
    # A level looks like an option to argparse: `--level -O2` needs joining.
    words = sys.argv[1:]
    for at in range(len(words) - 1, 0, -1):
        if words[at - 1] == "--level":
            words[at - 1:at + 1] = [f"--level={words[at]}"]
    options = parser.parse_args(words)
    memlens = None if options.native else options.memlens
    if memlens and not shutil.which(memlens):
        sys.exit(f"programs.py: no memlens at {memlens}: build it (cargo build --release), or give --native")
    memlens = memlens and str(Path(shutil.which(memlens)).resolve())
    sources = sorted(p for p in (HERE / "programs").iterdir() if p.suffix in COMPILERS) + EXAMPLES
    if unknown := set(options.names) - {p.stem for p in sources}:
        sys.exit(f"programs.py: no such program: {', '.join(sorted(unknown))}")
    cpu_flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    counts = {"passed": 0, "failed": 0, "skipped": 0}

    def note(result, what, why=""):
        counts[result] += 1
        if result != "passed":
            print(f"{result:8}{what}: {why}", flush=True)

    def checked(item):
        """The result and the reason for it."""
        program, level = item
        try:
            run_one(program, level, memlens, folder, options.timeout)
            return "passed", ""
        except Failure as failure:
            return "failed", failure
        except subprocess.TimeoutExpired:
            return "failed", f"not done after {options.timeout:.0f} s"
        except (ValueError, KeyError, TypeError) as error:
            return "failed", f"the report is not as documented: {error!r}"

    with tempfile.TemporaryDirectory(prefix="memlens-programs.") as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        wanted = []
        for path in sources:
            if options.names and path.stem not in options.names:
                continue
            program = Program(path)
            if why := program.missing(cpu_flags):
                note("skipped", path.name, why)
                continue
            wanted += [(program, level) for level in options.level or program.words("levels") or ["-O0", "-O2"]]
        side_by_side(checked, wanted, options.jobs,
                     lambda item, result: note(result[0], f"{item[0].path.name} {item[1]}", result[1]))
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

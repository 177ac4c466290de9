#!/usr/bin/env python3
"""Runs the programs of transparency.toml with and without memlens and compares what they do.

    tests/transparency.py [--memlens FILE | --native] [--mode exact|sample|burst] [--short] [--follow] [--attribution]
                          [--jobs N] [--timeout-factor X] [--list] [NAME...]

Compared are standard output, standard error, and the exit code or signal; see the head of
transparency.toml for what a program may leave out. NAME picks programs whose name contains it.

--mode sample samples them at the highest rate that the kernel allows (perf_event_max_sample_rate), with --short
at 10,000 samples a second.
--short takes small inputs: two minutes on two cores in exact mode.
--follow records the children of those programs whose entry says so; without it children run natively.
--attribution also asks each profile which share of the accesses has an object of a known kind, and fails
where it is less than 95 %; most of these programs are stripped. --native runs each twice without memlens,
which shows that the table itself is sound. Everything is made in a temporary folder that goes at the end.

Exit code 0 when nothing failed; the last line is `N passed, N failed`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from side_by_side import side_by_side

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit("transparency.py: needs Python 3.11 or later (tomllib)")

HERE = Path(__file__).resolve().parent
TABLE = HERE / "transparency.toml"
# The process groups that run, and whether no more are to be started.
RUNNING = set()
INTERRUPTED = threading.Event()


def kill(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Skipped(Exception):
    pass


class Failed(Exception):
    pass


def find_python():
    """The interpreter itself, not a wrapper script; one that has its own test suite if there is one."""
    found = []
    for name in ("python3", "/usr/bin/python3"):
        probe = subprocess.run([name, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
        path = probe.stdout.strip()
        if probe.returncode == 0 and path:
            tests = subprocess.run([path, "-c", "import test.test_json"], capture_output=True)
            if tests.returncode == 0:
                return path
            found.append(path)
    return found[0] if found else sys.executable


class Program:
    def __init__(self, entry, words, short):
        known = {"name", "command", "setup", "client", "stdin", "needs", "package", "needs_test", "sizes", "ignore",
                 "normalise", "follow", "timeout", "static", "long_when_exact"}
        if unknown := set(entry) - known:
            sys.exit(f"{TABLE}: {entry.get('name')}: unknown {', '.join(sorted(unknown))}")
        words = dict(words)
        for word, (small, full) in entry.get("sizes", {}).items():
            words[word] = str(small if short else full)

        def fill(text):
            for word, value in words.items():
                text = text.replace("{" + word + "}", value)
            return text

        self.name = entry["name"]
        self.command = [fill(word) for word in entry["command"]]
        self.setup = fill(entry.get("setup", ""))
        self.client = fill(entry.get("client", ""))
        self.stdin = entry.get("stdin")
        self.needs = entry.get("needs", [])
        self.needs_test = fill(entry.get("needs_test", ""))
        self.package = entry.get("package")
        self.ignore = entry.get("ignore", [])
        self.normalise = [re.compile(pattern.encode()) for pattern in entry.get("normalise", [])]
        self.follow = entry.get("follow", False)
        self.timeout = entry.get("timeout", 120)
        self.static = entry.get("static", False)
        self.long_when_exact = entry.get("long_when_exact", False)

    def check_needs(self):
        hint = f" (package {self.package})" if self.package else ""
        for need in self.needs:
            if not shutil.which(need):
                raise Skipped(f"no {need}{hint}")
        if self.needs_test and subprocess.run(["sh", "-c", self.needs_test], capture_output=True).returncode:
            raise Skipped(f"{self.needs_test}: fails{hint}")

    def run(self, folder, prefix, timeout):
        """What happened: a dictionary of what is compared, and the seconds it took."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        environment = {name: os.environ[name] for name in ("PATH", "RUSTUP_HOME", "CARGO_HOME", "HOME")
                       if name in os.environ}
        environment.update(LC_ALL="C", TZ="UTC", GIT_CONFIG_GLOBAL="/dev/null", PYTHONDONTWRITEBYTECODE="1",
                           PYTHONHASHSEED="0")
        if self.setup:
            made = subprocess.run(["sh", "-ec", self.setup], cwd=folder, env=environment, capture_output=True)
            if made.returncode:
                raise Failed(f"setup: {made.stderr.decode(errors='replace').strip()[-300:]}")
        command = [*prefix, *self.command]
        if INTERRUPTED.is_set():
            raise Failed("interrupted")
        with open(folder / self.stdin if self.stdin else os.devnull, "rb") as stdin:
            start = time.monotonic()
            process = subprocess.Popen(command, cwd=folder, env=environment, stdin=stdin, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, start_new_session=True)
            client = None
            RUNNING.add(process.pid)
            if self.client:
                client = subprocess.Popen(["sh", "-c", self.client], cwd=folder, env=environment,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, start_new_session=True)
                RUNNING.add(client.pid)
            try:
                out, err = process.communicate(timeout=timeout)
                seconds = time.monotonic() - start
                client_out = client.communicate(timeout=timeout)[0] if client else b""
            except subprocess.TimeoutExpired:
                raise Failed(f"not done after {timeout:.0f} s") from None
            finally:
                for group in filter(None, (process, client)):
                    kill(group.pid)
                    group.wait()
                    RUNNING.discard(group.pid)
        streams = {"stdout": out, "stderr": err}
        seen = {name: self.normalised(text) for name, text in streams.items() if name not in self.ignore}
        seen["client"] = client_out
        code = process.returncode
        # memlens may die by the program's signal or exit as a shell would.
        seen["end"] = 128 - code if code < 0 else code
        return seen, seconds

    def normalised(self, text):
        for pattern in self.normalise:
            text = pattern.sub(b"", text)
        return text


def difference(native, other):
    for name, value in native.items():
        if value == other[name]:
            continue
        if isinstance(value, int):
            return f"{name} {other[name]}, not {value}; stderr: {other.get('stderr', b'')[-300:]!r}"
        before, after = value.splitlines(), other[name].splitlines()
        line = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))
        pick = lambda lines: lines[line][:120] if line < len(lines) else b"(end)"
        return f"{name} differs at line {line + 1}: {pick(after)!r}, not {pick(before)!r}"
    return None


def attributed_percent(memlens, profile):
    """Share of accesses that have an object of a known kind, in percent."""
    report = subprocess.run([memlens, "report", str(profile), "--format", "json"], capture_output=True, text=True)
    if report.returncode:
        raise Failed(f"memlens report: {report.stderr[-300:]}")
    counts = json.loads(report.stdout)["attribution"]
    known, unknown = counts["attributed_accesses"], counts["unknown_accesses"]
    return 100 * known / max(1, known + unknown)


def highest_rate(short):
    """What memlens takes (100,000 at most) of what the kernel allows, in samples a second."""
    try:
        allowed = int(Path("/proc/sys/kernel/perf_event_max_sample_rate").read_text())
    except (OSError, ValueError):
        allowed = 4000
    return min(10_000 if short else 100_000, allowed)


def mode_words(options):
    further = {
        "exact": [],
        "sample": ["--frequency", str(highest_rate(options.short))],
        # As often as ticks come, and one burst behind the other until a system call.
        "burst": ["--frequency", "10000", "--overhead", "100%"],
    }
    return ["--mode", options.mode, *further[options.mode]]


def compare(program, folder, memlens, options):
    program.check_needs()
    if program.static and options.mode == "burst":
        raise Skipped("no bursts in static programs")
    if program.long_when_exact and options.mode == "exact" and options.short:
        raise Skipped("takes half a minute and more in exact mode: left to the full form")
    work = folder / "work"
    native, native_seconds = program.run(work, [], program.timeout * options.timeout_factor)
    prefix, profile = [], folder / "profile"
    if memlens:
        follow = ["--follow", "children"] if options.follow and program.follow else []
        prefix = [memlens, "run", *mode_words(options), "--quiet", *follow, "--out", str(profile), "--"]
    other, seconds = program.run(work, prefix, program.timeout * options.timeout_factor)
    if why := difference(native, other):
        raise Failed(why)
    if memlens and not profile.exists():
        raise Failed("memlens wrote no profile")
    percent = attributed_percent(memlens, profile) if memlens and options.attribution else None
    if percent is not None and percent < 95:
        raise Failed(f"{percent:.2f} % of accesses attributed, less than 95")
    return native_seconds, seconds, percent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(HERE.parent / "target/release/memlens"), metavar="FILE")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--mode", choices=("exact", "sample", "burst"), default="exact")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--attribution", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--timeout-factor", type=float, default=5, metavar="X",
                        help="multiplies every time limit; 5, so that only what hangs meets one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N",
                        help="so many programs at a time; 1 for ratios that mean something")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.mode != "exact" and (options.follow or options.attribution):
        parser.error("--follow and --attribution are exact mode's")
    words = {"programs": str(HERE / "programs"), "python": find_python()}
    programs = [Program(entry, words, options.short) for entry in tomllib.loads(TABLE.read_text())["program"]]
    programs = [p for p in programs if not options.names or any(name in p.name for name in options.names)]
    if not programs:
        sys.exit("transparency.py: no such program; --list shows them")
    if options.list:
        print("\n".join(program.name for program in programs))
        return 0
    memlens = None if options.native else options.memlens
    if memlens:
        found = shutil.which(memlens)
        if not found:
            sys.exit(f"transparency.py: no memlens at {memlens}: build it (cargo build --release), or give --native")
        memlens = str(Path(found).resolve())
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    print(f"{'program':<50} {'native':>9} {'memlens':>9} {'ratio':>7}"
          + ("  attributed" if options.attribution else ""))
    # Ends by these still clean up.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))

    def result(program):
        """What became of it, and its line of the table after the name."""
        folder = Path(tempfile.mkdtemp(dir=temporary))
        try:
            native, other, percent = compare(program, folder, memlens, options)
            attributed = "" if percent is None else f" {percent:>9.2f} %"
            return "passed", f"{native:>7.2f} s {other:>7.2f} s {other / native:>7.1f}{attributed}"
        except Skipped as skip:
            return "skipped", f"skipped: {skip}"
        except Failed as failure:
            return "failed", f"FAILED: {failure}"
        except (OSError, ValueError, KeyError) as error:
            return "failed", f"FAILED: {error!r}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def tell(program, what_and_line):
        what, line = what_and_line
        counts[what] += 1
        print(f"{program.name:<50} {line}", flush=True)

    def interrupted():
        INTERRUPTED.set()
        for group in list(RUNNING):
            kill(group)

    with tempfile.TemporaryDirectory(prefix="memlens-transparency.") as temporary:
        side_by_side(result, programs, options.jobs, tell, interrupted)
    if counts["skipped"]:
        print("{skipped} skipped".format(**counts))
    print("{passed} passed, {failed} failed".format(**counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs test suites of other programs natively and with a burst every 100 µs in every thread, and compares test by test.

    tests/torture.py --hammer FILE [--work FOLDER] [--sources FOLDER] [--suite NAME]... [--seconds S] [--short] [NAME...]

--hammer is the example of memlens-agent-host that runs a program and all that it makes with bursts begun all the time:
`cargo build --release -p memlens-agent-host --example hammer`. Two forms take turns, from case to case: a burst of 200
accesses behind each 100 µs of a thread's own code, with a stretch that only counts; and one burst of 1,000 accesses behind
the other until a system call, interrupted by a tick each 100 µs.

Suites, as far as they are here:

    cpython   CPython's own tests, by module, with the Python that has them
    perl      perl's core tests (t/), with the perl that is installed      --sources: perl-*/
    tcl       Tcl's tests, with the tclsh that is installed                --sources: tcl8.6*/
    redis     redis's tests of data types, against its own server          --sources: redis-*/, built there (make)
    node      node compiling and running tests/torture/*.js; the TypeScript compiler if --sources has node_modules/
    luajit    LuaJIT running tests/torture/*.lua
    java      the JVM compiling and running tests/torture/*.java, with each of its collectors and compilers

--sources is a folder with unpacked sources, as `apt-get source perl tcl8.6 redis` makes them. A case's results are its
tests' and its exit code. Where one differs, the case is run natively three times more: a test that has not always had the
same result there, or that is a matter of time (so says a second run in bursts with the native result), is told apart
from a difference. --seconds ends after so much time, else each case is run once; processor time of all processes in
bursts is counted. --short: some small cases of cpython and luajit, one burst behind each 100 µs only.

Exit code 0: no difference. Everything is made in --work (default: a temporary folder).
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FORMS = [["--words", "200", "--share", "0.99"], ["--words", "1000"]]

CPYTHON = """
    json re dict list set sort heapq long float complex math cmath fractions random statistics unicode bytes string format
    fstring struct array memoryview pickle pickletools copy collections deque itertools functools generators coroutines
    exceptions grammar syntax compile ast tokenize dis peepholer types typing dataclasses enum descr class super weakref gc
    thread threading queue threadedtempfile signal os posix io fileio bufio zlib gzip bz2 lzma zipfile tarfile hashlib hmac
    base64 binascii csv xml_etree minidom sqlite3 datetime calendar ctypes mmap buffer unicodedata ucn codecs
    codeccallbacks multibytecodec email traceback inspect doctest contextlib decimal subprocess asyncgen
    concurrent_futures difflib textwrap shlex configparser argparse optparse plistlib html htmlparser urlparse locale
    operator ordered_dict bisect bool builtin call cmd_line code codeop compileall keyword opcodes patma pprint
    range raise reprlib richcmp scope slice tempfile threading_local time tuple unpack userdict with yield_from zipapp
""".split()
SHORT = {"cpython": ["bisect", "keyword", "threading_local"], "luajit": []}

# Runs a module's tests and writes each one's result; nothing of their time.
PYTHON_RUNNER = """
import json, sys, unittest
results = {}
class Result(unittest.TestResult):
    def note(self, test, what):
        results[test.id()] = what
    def addSuccess(self, test): self.note(test, "ok")
    def addError(self, test, error): self.note(test, "error " + error[0].__name__)
    def addFailure(self, test, error): self.note(test, "failure")
    def addSkip(self, test, reason): self.note(test, "skipped")
    def addExpectedFailure(self, test, error): self.note(test, "expected failure")
    def addUnexpectedSuccess(self, test): self.note(test, "unexpected success")
    def addSubTest(self, test, subtest, error):
        if error is not None: self.note(subtest, "failure in a part")
if __name__ == "__main__":
    name, file = sys.argv[1:]
    sys.argv[1:] = []
    unittest.defaultTestLoader.loadTestsFromName(name).run(Result())
    with open(file, "w") as out:
        json.dump(results, out)
"""


class Case:
    def __init__(self, suite, name, command, folder=None, parse=None, timeout=600):
        self.suite, self.name, self.command, self.folder = suite, name, command, folder
        self.parse = parse or whole_output
        self.timeout = timeout

    @property
    def title(self):
        return f"{self.suite}/{self.name}"


def whole_output(out, _folder):
    return {"output": hashlib.sha256(out).hexdigest()}


def tap(out, _folder):
    """Test Anything Protocol: number and result, in order."""
    lines = re.findall(rb"^(not ok|ok) (\d+)(?:[^#\n]*# *(TODO|SKIP))?", out, re.MULTILINE | re.IGNORECASE)
    return {number.decode(): f"{what.decode()} {how.decode()}".strip() for what, number, how in lines}


def tcltest(out, _folder):
    found = re.findall(rb"^(?:\+\+\+\+|====) (\S+) .*?(PASSED|FAILED|SKIPPED)", out, re.MULTILINE)
    return {name.decode(errors="replace"): what.decode() for name, what in found}


def redis_results(out, _folder):
    found = re.findall(rb"\[(ok|err|exception)\]: (.*?)(?: \(\d+ ms\)| in tests/|\n)", out)
    return {name.decode(errors="replace"): what.decode() for what, name in found}


def python_results(_out, folder):
    file = folder / "results.json"
    return json.loads(file.read_text()) if file.exists() else {}


def find_python():
    """The interpreter itself, with its own test suite."""
    for name in ("python3", "/usr/bin/python3"):
        probe = subprocess.run([name, "-c", "import sys, test.test_json; print(sys.executable)"], capture_output=True,
                               text=True)
        if probe.returncode == 0:
            return str(Path(probe.stdout.strip()).resolve())
    return None


def cpython(_sources, _work, short):
    python = find_python()
    if not python:
        return
    for module in SHORT["cpython"] if short else CPYTHON:
        yield Case("cpython", module, [python, "-c", PYTHON_RUNNER, f"test.test_{module}", "results.json"],
                   parse=python_results)


def perl(sources, work, _short):
    tree = next(iter(sorted(sources.glob("perl-*/t"))), None)
    if not tree or not shutil.which("perl"):
        return
    # The tests look for the library beside them: that of the installed perl.
    home = work / "perl"
    if not home.exists():
        shutil.copytree(tree, home / "t", symlinks=True)
        (home / "lib").mkdir()
        for version in ("/usr/share/perl/5.*", "/usr/lib/x86_64-linux-gnu/perl/5.*", "/usr/lib/x86_64-linux-gnu/perl-base"):
            subprocess.run(["sh", "-c", f"cp -rLf {version}/. {home}/lib/ 2>/dev/null"])
        (home / "t/perl").symlink_to(Path(shutil.which("perl")).resolve())
    for file in sorted(itertools.chain.from_iterable((home / "t").glob(f"{part}/*.t") for part in
                                                     ("base", "cmd", "op", "re", "uni", "mro", "class"))):
        name = str(file.relative_to(home / "t"))
        yield Case("perl", name, [str(Path(shutil.which("perl")).resolve()), name], folder=home / "t", parse=tap)


def tcl(sources, work, _short):
    tree = next(iter(sorted(sources.glob("tcl8*/tests"))), None)
    tclsh = shutil.which("tclsh8.6") or shutil.which("tclsh")
    if not tree or not tclsh:
        return
    home = work / "tcl"
    if not home.exists():
        shutil.copytree(tree, home)
    # These speak with the network or wait for the time of day.
    left_out = {"http.test", "http11.test", "httpold.test", "socket.test", "clock.test", "all.tcl", "httpPipeline.test"}
    for file in sorted(home.glob("*.test")):
        if file.name not in left_out:
            yield Case("tcl", file.stem, [str(Path(tclsh).resolve()), file.name, "-verbose", "pass body error skip"],
                       folder=home, parse=tcltest)


def redis(sources, work, _short):
    tree = next((tree for tree in sorted(sources.glob("redis-*")) if (tree / "src/redis-server").exists()), None)
    tclsh = shutil.which("tclsh8.6") or shutil.which("tclsh")
    if not tree or not tclsh:
        return
    for unit in ("type/list", "type/hash", "type/set", "type/zset", "type/string", "type/incr", "unit/sort", "unit/expire",
                 "unit/scan", "unit/bitops", "unit/hyperloglog", "unit/geo", "unit/scripting", "unit/dump", "unit/keyrange",
                 "unit/multi", "unit/quit", "unit/info", "type/stream"):
        unit = unit if unit.startswith("unit") else f"unit/{unit}"
        if (tree / "tests" / f"{unit}.tcl").exists():
            command = [str(Path(tclsh).resolve()), "tests/test_helper.tcl", "--single", unit, "--clients", "1",
                       "--timeout", "3000", "--dont-clean"]
            yield Case("redis", unit, command, folder=tree, parse=redis_results, timeout=1200)


def node(sources, _work, _short):
    program = shutil.which("node")
    if not program:
        return
    program = str(Path(program).resolve())
    for file in sorted((HERE / "torture").glob("*.js")):
        yield Case("node", file.stem, [program, str(file)])
    compiler = next(iter(sources.glob("node_modules/typescript/lib/_tsc.js")), None)
    if compiler:
        library = compiler.parent
        for name in ("lib.es5.d.ts", "lib.dom.d.ts", "typescript.d.ts"):
            yield Case("node", f"tsc {name}", [program, str(compiler), "--noEmit", "--listFiles", str(library / name)])
        yield Case("node", "tsc --checkJs", [program, str(compiler), "--noEmit", "--allowJs", "--checkJs",
                                             str(library / "typingsInstaller.js")])
        terser = sources / "node_modules/terser/bin/terser"
        if terser.exists():
            yield Case("node", "terser", [program, str(terser), str(library / "typingsInstaller.js"), "-c", "-m"])


def luajit(_sources, _work, _short):
    for program in ("luajit", "lua5.4"):
        if path := shutil.which(program):
            for file in sorted((HERE / "torture").glob("*.lua")):
                yield Case("luajit", f"{program} {file.stem}", [str(Path(path).resolve()), str(file)])


def java(_sources, _work, _short):
    program = shutil.which("java")
    if not program or not shutil.which("javac"):
        return
    forms = ["", "-Xint", "-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation"]
    forms += [f"-XX:+Use{name}GC" for name in ("Serial", "Parallel", "Z", "Shenandoah")]
    for file in sorted((HERE / "torture").glob("*.java")):
        for form in forms:
            words = [str(Path(program).resolve()), *form.split(), str(file)]
            yield Case("java", f"{file.stem} {form}".strip(), words)


SUITES = {"cpython": cpython, "perl": perl, "tcl": tcl, "redis": redis, "node": node, "luajit": luajit, "java": java}


class Torture:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.natives = {}
        self.seconds = {}
        self.tests = {}
        self.bursts = self.words = 0
        self.differences, self.flaky = [], []

    def environment(self, folder):
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
                       "PERL_HASH_SEED": "0", "TMPDIR": str(folder), "PERL_CORE": "1"}

    def run(self, case, words):
        """Results by test, with the exit code among them; and what the hammer says."""
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        stats = self.work / "stats.json"
        stats.unlink(missing_ok=True)
        command = [self.options.hammer, *words, "--stats", str(stats), "--", *case.command]
        # A group of its own, so that whatever stays is ended.
        with open(self.work / "output", "w+b") as output:
            process = subprocess.Popen(command, cwd=case.folder or folder, env=self.environment(folder),
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            try:
                code = process.wait(timeout=case.timeout if words == ["--native"] else 10 * case.timeout)
            except subprocess.TimeoutExpired:
                code = "timed out"
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            output.seek(0)
            out = output.read()
        results = case.parse(out, folder) | {"exit code": code}
        told = json.loads(stats.read_text()) if stats.exists() else {"seconds": 0, "bursts": 0, "words": 0}
        return results, told, out

    def native(self, case):
        if case.title not in self.natives:
            self.natives[case.title], *_ = self.run(case, ["--native"])
        return self.natives[case.title]

    def case(self, case, form):
        native = self.native(case)
        if native["exit code"] == "timed out":
            return print(f"{case.title}: takes too long natively", flush=True)
        results, told, out = self.run(case, form)
        self.count(case, told, len(results))
        different = self.compare(native, results)
        line = f"{case.title:<40} {len(results):>6} results {told['seconds']:>8.1f} s {told['bursts']:>9} bursts"
        if not different:
            return print(line, flush=True)
        # Who is it? Natively not always the same, or not always different here.
        unsteady = set()
        for _ in range(3):
            unsteady |= set(self.compare(native, self.run(case, ["--native"])[0]))
        again, told, _ = self.run(case, form)
        self.count(case, told, 0)
        steady = [test for test in different if test not in unsteady]
        kept = self.work / "differences" / f"{case.suite}-{case.name.replace('/', '-')}-{time.time():.0f}"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(out)
        for test in different:
            twice = again.get(test) != native.get(test)
            what = f"{case.title}: {test}: {results.get(test)}, natively {native.get(test)}"
            if test in unsteady or (test == "exit code" and not steady):
                self.flaky.append(what)
                print(f"flaky natively, too: {what}", flush=True)
            else:
                self.differences.append(what)
                print(f"DIFFERENCE ({'twice' if twice else 'not again'}; {kept.name}; {' '.join(form)}) {what}", flush=True)
        print(line, flush=True)

    def count(self, case, told, tests):
        self.seconds[case.suite] = self.seconds.get(case.suite, 0) + told["seconds"]
        self.tests[case.suite] = self.tests.get(case.suite, 0) + tests
        self.bursts += told["bursts"]
        self.words += told["words"]

    @staticmethod
    def compare(native, other):
        return [test for test in {**native, **other} if native.get(test) != other.get(test)]

    def summary(self):
        for suite, seconds in self.seconds.items():
            print(f"{suite:<10} {self.tests[suite]:>7} results, {seconds / 3600:.3f} thread-hours")
        hours = sum(self.seconds.values()) / 3600
        print(f"{hours:.3f} thread-hours with {self.bursts} bursts of {self.words} words; {len(self.flaky)} results differ "
              f"natively, too; {len(self.differences)} differences", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hammer", default=str(HERE.parent / "target/release/examples/hammer"), metavar="FILE")
    parser.add_argument("--work", type=Path, metavar="FOLDER")
    parser.add_argument("--sources", type=Path, default=Path("/nonexistent"), metavar="FOLDER")
    parser.add_argument("--suite", action="append", choices=SUITES, metavar="NAME")
    parser.add_argument("--seconds", type=float, metavar="S")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases whose name contains it")
    options = parser.parse_args()
    if not shutil.which(options.hammer):
        sys.exit(f"torture.py: no hammer at {options.hammer}: cargo build --release -p memlens-agent-host --example hammer")
    options.hammer = str(Path(options.hammer).resolve())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="memlens-torture.") as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        suites = options.suite or (list(SHORT) if options.short else list(SUITES))
        lists = [list(SUITES[name](options.sources.resolve(), work, options.short)) for name in suites]
        for name, cases in zip(suites, lists):
            print(f"{name}: {len(cases) or 'not here: no'} cases", flush=True)
        # Suites take turns, so that whenever it ends all have had some.
        cases = [case for turn in itertools.zip_longest(*lists) for case in turn if case]
        cases = [case for case in cases if not options.names or any(name in case.title for name in options.names)]
        if not cases:
            sys.exit("torture.py: nothing to run")
        torture = Torture(options, work)
        until = time.monotonic() + (options.seconds or float("inf"))
        try:
            for round_ in itertools.count() if options.seconds else range(1):
                for number, case in enumerate(cases):
                    if time.monotonic() > until:
                        break
                    torture.case(case, FORMS[0 if options.short else (number + round_) % len(FORMS)])
                if time.monotonic() > until:
                    break
        finally:
            torture.summary()
    return 1 if torture.differences else 0


if __name__ == "__main__":
    sys.exit(main())

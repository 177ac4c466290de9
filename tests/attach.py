#!/usr/bin/env python3
"""Attaches memlens to servers under load, again and again, and looks whether they or their clients notice.

    tests/attach.py [--memlens FILE] [--times N] [--seconds S] [--short] [NAME...]

The servers are a redis-server with threads for input and output, and a Python web server with a thread a request.
Clients ask without a pause while `memlens record --pid` comes and goes, in sample and burst mode by turns (100 times,
0.3 s each; --short: 8 and 4 times, 0.1 s). Then

- every request was answered, and every answer is the one expected;
- the agent was let in each time;
- the server ends with exit code 0 and has said what it says without memlens;
- the recordings are not empty.

Exit code 0 when all is so; the last line is `N passed, N failed`.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Failed(Exception):
    pass


def real_python():
    """The interpreter itself: the command may be a script that starts it."""
    return os.path.realpath(sys.executable)


class Server:
    """Something that answers; started when made."""

    def __init__(self, folder, command):
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)

    def end(self):
        """Its exit code and its output, after it was asked to end."""
        try:
            output = self.process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            raise Failed("it did not end") from None
        return self.process.returncode, output.decode(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Redis(Server):
    short = 8
    name, needs = "redis-server", ("redis-benchmark", "redis-cli")

    def __init__(self, folder):
        self.socket = str(folder / "socket")
        # Debian's redis-tools has the server under another name; it goes by the one it is called by.
        (folder / "redis-server").symlink_to(shutil.which("redis-server") or shutil.which("redis-check-rdb"))
        super().__init__(folder, ["./redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "",
                                  "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning",
                                  "--io-threads", "2", "--io-threads-do-reads", "yes"])
        for _ in range(600):
            if self.cli("ping") == "PONG":
                return
            time.sleep(0.05)
        self.kill()
        raise Failed("it does not answer")

    def cli(self, *words):
        return subprocess.run(["redis-cli", "-s", self.socket, *words], capture_output=True,
                              text=True).stdout.strip()

    def load(self, stop):
        """Counts from 0 until told to stop; redis-benchmark beside it keeps the server busy."""
        asked = 0
        noise = subprocess.Popen(["redis-benchmark", "-s", self.socket, "-q", "-l", "-t", "set,get,lpush", "-r", "1000"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self.socket)
                answers = connection.makefile("rb")
                while not stop.is_set():
                    connection.sendall(b"*2\r\n$4\r\nINCR\r\n$7\r\ncounter\r\n")
                    asked += 1
                    if answers.readline() != b":%d\r\n" % asked:
                        raise Failed(f"request {asked} was lost")
            if noise.poll() is not None:
                raise Failed(f"redis-benchmark ended: {noise.stderr.read()!r}")
        finally:
            noise.kill()
            noise.communicate()
        if self.cli("get", "counter") != str(asked):
            raise Failed("the counter is wrong")
        return asked

    def stop(self):
        self.cli("shutdown", "nosave")

    def said(self, output):
        # Its process id, the time and its role stand before each message.
        return re.sub(r"pid=\d+", "", re.sub(r"^.*? [#*.-] ", "", output, flags=re.MULTILINE))


class Web(Server):
    short = 4
    name, needs = "python3 web server", ()
    answered = 0

    def __init__(self, folder):
        super().__init__(folder, [real_python(), str(HERE / "programs/web_server.py"), str(folder / "port")])
        for _ in range(600):
            with contextlib.suppress(OSError, ValueError):
                self.port = int((folder / "port").read_text())
                return
            time.sleep(0.05)
        self.kill()
        raise Failed("it does not answer")

    def load(self, stop):
        """Three clients at a time."""
        counts, problems = [0] * 3, []

        def ask(client):
            try:
                while not stop.is_set():
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                    connection.request("GET", f"/{counts[client] % 50}")
                    answer = connection.getresponse().read()
                    wanted = sum(i * i for i in range(counts[client] % 50 * 100))
                    if json.loads(answer) != wanted:
                        raise Failed(f"{answer!r} instead of {wanted}")
                    counts[client] += 1
                    connection.close()
            except (OSError, ValueError, http.client.HTTPException, Failed) as error:
                problems.append(error)

        clients = [threading.Thread(target=ask, args=(client,)) for client in range(3)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        if problems:
            raise Failed(f"a request was lost: {problems[0]!r}")
        self.answered = sum(counts)
        return self.answered

    def stop(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", "/end")
            connection.getresponse().read()

    def said(self, output):
        return output.replace(f"{self.answered} answered", "all answered")


def record(memlens, server, profile, seconds, mode):
    """What one recording of the server has: samples, or accesses in bursts."""
    words = [memlens, "record", "--pid", str(server.process.pid), "--mode", mode, "--duration", str(seconds), "--quiet",
             "--frequency", "500", "--out", str(profile)]
    recorded = subprocess.run(words, capture_output=True, text=True)
    if recorded.returncode:
        raise Failed(f"memlens ended with {recorded.returncode}: {recorded.stderr.strip()}")
    report = subprocess.run([memlens, "report", str(profile), "--format", "json"], capture_output=True, text=True)
    if report.returncode:
        raise Failed(f"memlens report: {report.stderr.strip()}")
    shutil.rmtree(profile)
    report = json.loads(report.stdout)
    notes = " ".join(report["run"].get("notes") or [])
    if "while the process ran" not in notes:
        raise Failed(f"the agent was not let in: {notes}")
    totals = report["totals"]
    return totals["samples"] if mode == "sample" else totals["loads"] + totals["stores"]


def undisturbed(kind, folder):
    """Exit code and output of a server that nobody asks anything."""
    server = kind(folder)
    try:
        server.stop()
        code, output = server.end()
    finally:
        server.kill()
    return code, server.said(output)


def check(kind, memlens, folder, times, seconds):
    """Requests answered and samples taken."""
    for part in ("undisturbed", "recorded"):
        (folder / part).mkdir()
    expected = undisturbed(kind, folder / "undisturbed")
    server = kind(folder / "recorded")
    stop, outcome = threading.Event(), {}

    def load():
        try:
            outcome["answered"] = server.load(stop)
        except Failed as failure:
            outcome["failure"] = failure

    client = threading.Thread(target=load)
    client.start()
    samples = {"sample": [], "burst": []}
    try:
        for number in range(times):
            mode = ("sample", "burst")[number % 2]
            samples[mode].append(record(memlens, server, folder / "profile", seconds, mode))
            if server.process.poll() is not None:
                raise Failed(f"it ended with {server.process.returncode} in recording {number + 1}")
        # Threads that live for a request only reach no tick: on a busy machine it takes a while until others do.
        for mode, taken in samples.items():
            while sum(taken) == 0 and len(taken) < times + 60:
                taken.append(record(memlens, server, folder / "profile", seconds, mode))
    finally:
        stop.set()
        client.join()
        server.stop()
        try:
            code, output = server.end()
        finally:
            server.kill()
    if "failure" in outcome:
        raise outcome["failure"]
    if (code, server.said(output)) != expected:
        raise Failed(f"it ended with {code} and says {output!r}, not {expected}")
    for mode, taken in samples.items():
        if sum(taken) == 0:
            raise Failed(f"the recordings in {mode} mode are empty")
    return outcome["answered"], samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", default=str(HERE.parent / "target/release/memlens"), metavar="FILE")
    parser.add_argument("--times", type=int, metavar="N")
    parser.add_argument("--seconds", type=float, metavar="S")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only servers whose name contains it")
    options = parser.parse_args()
    seconds = options.seconds or (0.1 if options.short else 0.3)
    memlens = str(Path(options.memlens).resolve())
    if not shutil.which(memlens):
        sys.exit(f"attach.py: no memlens at {options.memlens}: build it (cargo build --release)")
    passed = failed = 0
    for kind in (Redis, Web):
        if options.names and not any(name in kind.name for name in options.names):
            continue
        if missing := [need for need in kind.needs if not shutil.which(need)]:
            print(f"{kind.name}: skipped: no {', '.join(missing)}")
            continue
        with tempfile.TemporaryDirectory(prefix="memlens-attach.") as folder:
            try:
                times = options.times or (kind.short if options.short else 100)
                answered, samples = check(kind, memlens, Path(folder), times, seconds)
                passed += 1
                print(f"{kind.name}: {times} recordings, {answered} requests answered, none lost; "
                      f"{sum(samples['sample'])} samples, {sum(samples['burst'])} accesses in bursts", flush=True)
            except Failed as failure:
                failed += 1
                print(f"{kind.name}: FAILED: {failure}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

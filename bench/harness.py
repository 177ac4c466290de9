"""What benches share: runs that are timed, means, and the conditions they were made under."""

import datetime
import hashlib
import math
import os
import platform
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

from programs import ROOT


def start(workload, folder, prefix, environment, stdout):
    shutil.rmtree(folder / "profile", ignore_errors=True)
    (folder / "profile").unlink(missing_ok=True)
    stdin = open(folder / workload.stdin, "rb") if workload.stdin else subprocess.DEVNULL
    try:
        return subprocess.Popen([*prefix, *workload.command], cwd=folder, stdin=stdin, stdout=stdout,
                                stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C", **environment})
    finally:
        if workload.stdin:
            stdin.close()


def run_once(workload, folder, prefix, environment, watch=None):
    """Seconds, and what came out: its digest and the exit code. `watch` gets the process id."""
    with open(folder / "stdout", "w+b") as stdout:
        began = time.monotonic()
        process = start(workload, folder, prefix, environment, stdout)
        if watch:
            watcher = threading.Thread(target=watch, args=(process.pid,))
            watcher.start()
        errors = process.communicate()[1]
        seconds = time.monotonic() - began
        if watch:
            watcher.join()
        stdout.seek(0)
        digest = hashlib.file_digest(stdout, "sha256").hexdigest()
    return seconds, (digest, process.returncode), errors.decode(errors="replace")


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def command_output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip().split("\n")[0]
    except OSError:
        return ""


def conditions():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown processor")
    return {
        "date": datetime.date.today().isoformat(),
        "processor": f"{model}, {os.cpu_count()} logical",
        "kernel": platform.release(),
        "compiler": command_output("cc", "--version"),
        "valgrind": command_output("valgrind", "--version"),
        "commit": command_output("git", "rev-parse", "--short", "HEAD") or "none",
    }


def cell(value, digits=2):
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def print_conditions(**more):
    where = {**conditions(), **more}
    print("\n".join(f"- {key}: {value}" for key, value in where.items()) + "\n")
    return where

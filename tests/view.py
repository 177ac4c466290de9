#!/usr/bin/env python3
"""`memlens view` in a pseudo-terminal: what is on the screen after keys, and that the terminal is given back as it was.

    tests/view.py [--memlens FILE]
    tests/view.py --memlens FILE --look PROFILE KEYS [COLUMNS LINES]    prints the screen after these keys

A key is a letter, or a word in angle brackets: <enter>, <down>, <esc> … The last line is `N passed, N failed`.
"""

import argparse
import codecs
import csv
import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
from functools import partial
from pathlib import Path

from checks import Failure, expect, run_each

ROOT = Path(__file__).resolve().parent.parent
KEYS = {
    "enter": "\r", "esc": "\x1b", "tab": "\t", "backtab": "\x1b[Z", "backspace": "\x7f", "space": " ",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
    "home": "\x1b[H", "end": "\x1b[F", "pgup": "\x1b[5~", "pgdn": "\x1b[6~", "ctrl-c": "\x03", "ctrl-z": "\x1a",
}
# A sequence that steers the terminal, or one character.
PIECE = re.compile(r"\x1b\[([?>]?)([0-9;]*)([@-~])|\x1b[@-Z\\-_=>]|\x1b\][^\x07]*\x07|(.)", re.DOTALL)
# The begin of one at the end of what was read.
CUT = re.compile(r"\x1b(\[[?>]?[0-9;]*)?\Z")


class Screen:
    """As much of a terminal as a program needs that places its texts by row and column."""

    def __init__(self, columns, lines):
        self.modes, self.style, self.codes, self.rest = set(), (), set(), ""
        self.resize(columns, lines)

    def resize(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.row = self.column = 0
        self.clear()

    def clear(self):
        self.cells = [[" "] * self.columns for _ in range(self.lines)]
        self.styles = [[()] * self.columns for _ in range(self.lines)]

    def feed(self, text):
        text = self.rest + text
        # What is cut off goes on with what comes next.
        cut = CUT.search(text)
        text, self.rest = (text[: cut.start()], cut.group()) if cut else (text, "")
        for piece in PIECE.finditer(text):
            private, numbers, command, letter = piece.groups()
            if letter:
                self.put(letter)
            elif command:
                self.obey(private, [int(number or 0) for number in numbers.split(";")], command)

    def put(self, letter):
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.row = min(self.row + 1, self.lines - 1)
        elif letter >= " ":
            wide = 2 if unicodedata.east_asian_width(letter) in "WF" else 1
            if self.row < self.lines and self.column + wide <= self.columns:
                self.cells[self.row][self.column] = letter
                self.styles[self.row][self.column] = self.style
                if wide == 2:
                    self.cells[self.row][self.column + 1] = ""
            self.column += wide

    def obey(self, private, numbers, command):
        if private == "?" and command in "hl":
            for number in numbers:
                (self.modes.add if command == "h" else self.modes.discard)(number)
        elif command == "H":
            self.row, self.column = numbers[0] - 1, (numbers[1] if len(numbers) > 1 else 1) - 1
        elif command == "J":
            self.clear()
        elif command == "m":
            self.codes.update(numbers)
            for number in numbers:
                self.style = () if number == 0 else tuple(set(self.style) - {7}) if number == 27 else (*self.style, number)

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def selected(self):
        """The line that is reversed, but for the last one, which always is."""
        for row, styles in list(zip(self.cells, self.styles))[3:-1]:
            if 7 in styles[0]:
                return "".join(row).rstrip()
        return None


class View:
    """`memlens view` at the other end of a terminal, or another command."""

    def __init__(self, memlens, profile, *words, columns=120, lines=32, environment=(), command=None):
        self.screen, self.decoder = Screen(columns, lines), codecs.getincrementaldecoder("utf-8")("replace")
        ours, theirs = pty.openpty()
        self.terminal, self.theirs = ours, theirs
        self.size(columns, lines)
        self.before = termios.tcgetattr(theirs)
        variables = {**os.environ, "TERM": "xterm-256color", **dict(environment)}
        for name in ("COLUMNS", "LINES", *(() if "NO_COLOR" in dict(environment) else ("NO_COLOR",))):
            variables.pop(name, None)

        def begin():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        command = command or list(map(str, [memlens, "view", profile, *words]))
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, preexec_fn=begin)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.terminal)
        os.close(self.theirs)

    def size(self, columns, lines):
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns, lines):
        self.screen.resize(columns, lines)
        self.size(columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def read(self, quiet=0.05):
        """Takes what comes until nothing does for a moment."""
        while select.select([self.terminal], [], [], quiet)[0]:
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                return
            if not data:
                return
            self.screen.feed(self.decoder.decode(data))

    def wait(self, holds, what, seconds=8):
        """Reads until something holds of the screen's text."""
        end = time.monotonic() + seconds
        while True:
            self.read()
            if holds(self.screen.text()):
                return self.screen.text()
            if time.monotonic() > end:
                raise Failure(f"{what} is not on the screen:\n{self.screen.text()}")

    def see(self, *words):
        return self.wait(lambda text: all(word in text for word in words), " ".join(words))

    def select(self, holds, what):
        """Reads until something holds of the selected row, which is returned."""
        self.wait(lambda _: self.screen.selected() is not None and holds(self.screen.selected()), f"a selected row with {what}")
        return self.screen.selected()

    def press(self, *keys):
        for key in keys:
            os.write(self.terminal, KEYS.get(key, key).encode())
            if key == "esc":
                # A terminal's own sequences begin with it, too.
                self.read()
        self.read()

    def end(self, seconds=5):
        """The exit code, or less than 0 for a signal; the terminal has to be as it was before."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"it does not end:\n{self.screen.text()}") from None
        self.read()
        expect(termios.tcgetattr(self.theirs) == self.before, "the terminal's settings are not as before")
        expect(1049 not in self.screen.modes, "the alternate screen is not left")
        expect(25 in self.screen.modes, "the cursor is not shown")
        expect(not {1000, 1006} & self.screen.modes, "the mouse is not given back")
        return code

    def mouse(self, button, text):
        """A button at the line with a text, in the words of xterm's mode 1006: 0 is the left one, 64 and 65 are the wheel."""
        line = next(at for at, line in enumerate(self.screen.text().splitlines(), 1) if text in line)
        self.press(*(f"\x1b[<{button};9;{line}{end}" for end in ("M" if button >= 64 else "Mm")))


class Profiles:
    """Profiles of one program, each recorded when a check first wants it."""

    def __init__(self, memlens, folder):
        self.memlens, self.folder = memlens, folder

    def program(self):
        program = self.folder / "records"
        if not program.exists():
            command = ["cc", "-O1", "-g", "-o", program, ROOT / "tests/page/records.c"]
            subprocess.run(list(map(str, command)), check=True)
        return program

    def of(self, mode):
        profile = self.folder / f"{mode}.memlens"
        if not profile.exists():
            # Samples need some time; counts of exact mode do not.
            words = ["argument", "400"] if mode == "sample" else ["argument"]
            command = [self.memlens, "record", "--mode", mode, "-q", "--out", profile, "--", self.program(), *words]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        return profile

    def view(self, mode, *words, **how):
        view = View(self.memlens, self.of(mode), *words, **how)
        try:
            view.see("? keys")
        except BaseException:
            view.__exit__()
            raise
        return view

    def report(self, mode, *words, columns=120):
        command = list(map(str, [self.memlens, "report", self.of(mode), *words]))
        environment = {**os.environ, "COLUMNS": str(columns)}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    def rows(self, mode, *words):
        return list(csv.DictReader(io.StringIO(self.report(mode, "--format", "csv", *words))))

    def names(self, mode, *words):
        return [row["name"] for row in self.rows(mode, *words)]


def the_table_is_that_of_the_report(profiles):
    with profiles.view("exact") as view:
        table = profiles.report("exact", "--top", "all").splitlines()
        first = next(row for row in table if " records " in row)
        text = view.see("records argument", "exact mode")
        expect(first in text.splitlines(), f"{first}\nis not in\n{text}")
        view.select(lambda row: row in table, "what the table has")
        # What was never accessed is in no table.
        count = sum(int(row["accesses"]) > 0 for row in profiles.rows("exact", "--top", "all"))
        expect(f" 1 of {count} " in text, f"{count}: {text}")


def keys_lead_to_other_rows(profiles):
    with profiles.view("exact") as view:
        view.press("right", "right")
        functions = profiles.names("exact", "--by", "function")
        view.select(lambda row: f" {functions[0]} " in row, functions[0])
        lines = profiles.names("exact", "--by", "line", "--top", "all")
        view.press("4")
        view.see(lines[0], f"1 of {len(lines)}")
        view.press("end")
        view.see(f"{len(lines)} of {len(lines)}")
        # Of a long name the end stays.
        end = lines[-1].rsplit(":", 1)[-1]
        view.select(lambda row: f"{end} " in row, lines[-1])
        view.press("g", "tab", "backtab", "j", "down", "k")
        view.see(f" 2 of {len(lines)}")


def a_column_is_chosen(profiles):
    with profiles.view("exact") as view:
        view.press("s")
        view.see("as usual", "accesses weighted by the latency")
        view.press("esc", ">")
        view.wait(lambda text: "as usual" not in text, "the table")
        # The next one to the right of the first share.
        view.press("s", *["down"] * 60, "home", "enter")
        view.see("by stall_share" if "stall" in profiles.report("exact") else "by share")
    by_loads = profiles.names("exact", "--sort", "loads")
    with profiles.view("exact", "--sort", "loads") as view:
        view.see("by loads")
        view.select(lambda row: f" {by_loads[0]} " in row, by_loads[0])


def rows_are_filtered(profiles):
    with profiles.view("exact") as view:
        view.see(" records ")
        view.press(*"/TWINS")
        text = view.see("/TWINS", "Enter keeps them")
        expect(" twins " in text and " records " not in text, text)
        view.press("enter")
        view.see("with ‘TWINS’")
        view.press("esc")
        view.see(" records ")


def rows_lead_on_and_back(profiles):
    with profiles.view("exact") as view:
        view.press(*"/ records ", "enter", "enter")
        text = view.see("by object › #", "allocated at", "touched by")
        # Its calls, its fields, the code that touches it.
        view.press("tab")
        code = re.compile(r" (records\.c:\d+)  main ")
        line = code.search(view.select(code.search, "a line of main")).group(1)
        view.press("enter")
        view.see("in function", "source", f"› {line}")
        view.press("q")
        view.see("allocated at")
        for key, word in (("f", " function\n"), ("i", " instructions\n"), ("l", " lines\n")):
            view.press(key, "end")
            view.see(word)
        view.press("c")
        view.see("reached by", "1 call path")
        # The path leads to other data, too, but here it is that of the records.
        view.press("enter")
        view.see("call path", "as far as it touches records", "1 object\n", "called from")
        view.press("esc", "esc")
        view.see("with ‘ records ’")


def a_structure_and_its_fields_are_shown(profiles):
    with profiles.view("exact", columns=140, lines=60) as view:
        view.press(*"/ records ", "enter", "enter")
        view.see("fields of", "price", "count")


def advice_is_that_of_advise(profiles):
    advise = [profiles.memlens, "advise", profiles.of("exact"), "--top", "99"]
    told = subprocess.run(list(map(str, advise)), check=True, capture_output=True, text=True).stdout
    title = next(line for line in told.splitlines() if line.startswith("1. "))
    with profiles.view("exact", columns=200) as view:
        view.press("a")
        view.see("what to do", title[:60])
        view.press("q", "n")
        view.see("machine", "attributed")
        view.press("q", "?")
        view.see("choose a column to sort by")


def samples_have_callers_and_no_advice(profiles):
    with profiles.view("sample", columns=140) as view:
        view.see("sample mode", "estimated", "caller")
        view.press("a")
        view.see("Samples of time count no misses")
        view.press("q", "enter", "c")
        view.see("called from")
        view.press("q", "q")
        expect(view.end() == 0, "another exit code")


def another_size_is_laid_out_anew(profiles):
    with profiles.view("exact") as view:
        selected = view.screen.selected().split()
        for columns, lines in ((80, 20), (160, 50)):
            view.resize(columns, lines)
            view.see("total", "? keys")
            rows = view.screen.text().splitlines()
            expect(len(rows[-1]) <= columns and "? keys" in rows[-1], f"{rows[-1]}")
            view.select(lambda row: row.split()[:2] == selected[:2], " ".join(selected))
        view.resize(30, 5)
        view.see("too small")
        view.resize(120, 32)
        view.see("total")


def the_terminal_is_given_back(profiles):
    for how, code in (("q", 0), ("ctrl-c", 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)):
        with profiles.view("exact") as view:
            expect(1049 in view.screen.modes and 25 not in view.screen.modes, "the alternate screen is not taken")
            expect(termios.tcgetattr(view.theirs) != view.before, "keys are not read one by one")
            if isinstance(how, str):
                view.press(how)
            else:
                view.process.send_signal(how)
            found = view.end()
            expect(found == code, f"after {how} it ends with {found}, not {code}")


def the_mouse_is_taken_where_it_is_wanted(profiles):
    with profiles.view("exact") as view:
        expect(1000 not in view.screen.modes, "the mouse is taken though nobody asked for it")
        view.press("m")
        view.see("m gives the mouse back")
        expect({1000, 1006} <= view.screen.modes and not {1002, 1003} & view.screen.modes, f"{view.screen.modes}")
        view.mouse(65, " total")
        view.see(" 4 of ")
        view.mouse(64, " total")
        view.see(" 1 of ")
        view.press("down", "down")
        third = view.screen.selected()
        view.press("home")
        view.select(lambda row: row != third, "the first")
        view.mouse(0, third)
        view.select(lambda row: row == third, "the third")
        view.mouse(0, third)
        view.see("by object › ", "touched by")
        view.press("q", "m")
        view.see("the mouse selects text again")
        expect(not {1000, 1006} & view.screen.modes, "the mouse is not given back")
        view.press("m")
        view.process.send_signal(signal.SIGTERM)
        expect(view.end() == -signal.SIGTERM, "another end")


def children_of(process):
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def in_a_shell_it_stops_and_goes_on(profiles):
    """Ctrl-Z, and stops from elsewhere, where a shell gets the terminal meanwhile."""
    shells = [["sh", "-i"], ["bash", "--norc", "--noprofile", "-i"]]
    for shell in shells:
        if not shutil.which(shell[0]):
            continue
        variables = {"PS1": "ready> ", "ENV": "", "HISTFILE": ""}
        with View(None, None, command=shell, environment=variables.items()) as view:
            def is_the_shells():
                view.wait(lambda text: not {1000, 1049} & view.screen.modes and 25 in view.screen.modes, "the shell's screen and mouse")
                view.screen.clear()
                view.screen.row = 0
                # What the shell's commands find; its own lines may be edited letter by letter.
                view.press("stty -a | tr ' ' '\\n' | grep -cx 'icanon;*\\|echo;*\\|isig;*' | sed s,^,usual:,\n")
                view.see("usual:3")

            view.see("ready>")
            view.press(f"'{profiles.memlens}' view '{profiles.of('exact')}'\n")
            view.see("? keys")
            view.press("m", "down", "down")
            selected = view.screen.selected()
            for how in ("ctrl-z", "ctrl-z", signal.SIGTSTP, signal.SIGSTOP, "bg", "ctrl-z"):
                if isinstance(how, str):
                    view.press("ctrl-z")
                    is_the_shells()
                    if how == "bg":
                        # It wants the terminal, which the shell has: it is stopped again.
                        view.press("bg\n")
                        time.sleep(0.5)
                        is_the_shells()
                else:
                    os.kill(children_of(view.process.pid)[0], how)
                    time.sleep(0.3)
                    view.read()
                view.screen.clear()
                view.press("fg\n")
                view.see("memlens ", "? keys", "total")
                view.select(lambda row: row == selected, selected)
                expect({1000, 1049} <= view.screen.modes and 25 not in view.screen.modes, f"{shell[0]}, {how}: the screen is not taken again")
                view.press("up", "down")
                view.select(lambda row: row == selected, selected)
            view.press("q")
            is_the_shells()
            view.press("exit\n")
            view.process.wait(5)


def where_nobody_could_go_on_it_does_not_stop(profiles):
    # The terminal's only process: no shell would get it back.
    with profiles.view("exact") as view:
        view.press("down", "ctrl-z", "down")
        view.see(" 3 of ")
        view.press("q")
        expect(view.end() == 0, "another exit code")


def colours_are_left_out_where_nobody_wants_them(profiles):
    coloured = set(range(30, 48)) - {39}
    with profiles.view("exact") as view:
        expect(coloured & view.screen.codes, f"no colours: {view.screen.codes}")
    with profiles.view("exact", environment={"NO_COLOR": "1"}.items()) as view:
        expect(not coloured & view.screen.codes and {1, 7} <= view.screen.codes, f"{view.screen.codes}")


def a_recording_is_followed(profiles):
    """The states that a recording writes: its folder is locked, and its profile is replaced while it is shown."""
    whole, live = profiles.of("exact"), profiles.folder / "live.memlens"
    shutil.copytree(whole, live)
    manifest = live / "profile.json"

    def write(**changes):
        document = json.loads(manifest.read_text())
        document.update(changes)
        document["run"].update({"wall_seconds": document["generation"] * 1000.0})
        new = live / "profile.json.new"
        new.write_text(json.dumps(document))
        new.rename(manifest)

    write(complete=False, generation=7)
    lock = os.open(live, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with View(profiles.memlens, live, "--by", "line") as view:
        view.see("● recording, loaded", " 4 line")
        view.press("down", "down")
        view.see(" 3 of ")
        selected = view.screen.selected()
        before = view.screen.text().splitlines()[1]
        # What cannot be read leaves the last state in sight.
        manifest.rename(live / "away")
        time.sleep(1.3)
        view.press("up", "down")
        view.select(lambda row: row == selected, selected)
        (live / "away").rename(manifest)
        write(complete=False, generation=8)
        view.wait(lambda text: text.splitlines()[1] != before and "● recording" in text, "the next state")
        view.select(lambda row: row == selected, selected)
        write(complete=True, generation=9)
        os.close(lock)
        view.see("the recording has ended: this is all")
        view.wait(lambda text: "● recording" not in text and "partial" not in text, "the end")
        view.select(lambda row: row == selected, selected)


def a_profile_is_loaded_again(profiles):
    copy = profiles.folder / "copy.memlens"
    shutil.copytree(profiles.of("exact"), copy)
    manifest = copy / "profile.json"
    with View(profiles.memlens, copy) as view:
        view.see("? keys")
        view.press("down", "r")
        view.see("loaded again")
        selected = view.screen.selected()
        manifest.rename(copy / "away")
        view.press("r")
        view.see("cannot open the profile")
        view.select(lambda row: row == selected, selected)
        (copy / "away").rename(manifest)
        view.press("r")
        view.see("loaded again")


def a_recording_that_was_killed_says_so(profiles):
    killed = profiles.folder / "killed.memlens"
    # A state every moment, of a program that does not end by itself.
    command = [profiles.memlens, "record", "--mode", "exact", "-q", "--flush-every", "1", "--out", killed, "--", "sh", "-c", "while :; do :; done"]
    recording = subprocess.Popen(list(map(str, command)), start_new_session=True)
    try:
        end = time.monotonic() + 60
        while not (killed / "profile.json").exists():
            expect(time.monotonic() < end, "nothing is recorded in a minute")
            time.sleep(0.1)
        with View(profiles.memlens, killed) as view:
            view.see("● recording, loaded")
            recording.kill()
            recording.wait()
            view.see("partial: the end of the run is missing", "the recording has ended early")
            view.press("enter")
            view.see("by object › ", "partial: the end of the run is missing")
        with View(profiles.memlens, killed) as view:
            view.see("partial: the end of the run is missing")
    finally:
        # The program goes on without memlens.
        os.killpg(recording.pid, signal.SIGKILL)
        recording.wait()


def where_nothing_happens_nothing_is_done(profiles):
    with profiles.view("exact") as view:
        def ticks():
            # utime and stime of proc_pid_stat(5).
            return sum(map(int, Path(f"/proc/{view.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:13]))

        before = ticks()
        time.sleep(1.5)
        expect(ticks() - before <= 2, f"{ticks() - before} ticks of processor time in 1.5 s")


def without_a_terminal_it_says_so(profiles):
    command = list(map(str, [profiles.memlens, "view", profiles.of("exact")]))
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    expect(result.returncode == 64 and result.stdout == "", f"{result}")
    expect("view needs a terminal" in result.stderr and "memlens report " in result.stderr, result.stderr)
    with View(profiles.memlens, profiles.of("exact"), environment={"TERM": "dumb"}.items()) as view:
        view.see("view needs a terminal, and TERM names none")
        expect(view.process.wait(5) == 64, "another exit code")
    for words, message in ((["--by", "process"], "--by process: the profile has nothing of that kind"), (["--by", "field2"], "field2")):
        with View(profiles.memlens, profiles.of("exact"), *words) as view:
            view.see(message)
            expect(view.process.wait(5) == 64, f"{words}: another exit code")
    with View(profiles.memlens, profiles.folder / "none") as view:
        view.see("cannot open the profile")
        expect(view.process.wait(5) == 66, "another exit code")


CHECKS = [
    the_table_is_that_of_the_report,
    keys_lead_to_other_rows,
    a_column_is_chosen,
    rows_are_filtered,
    rows_lead_on_and_back,
    a_structure_and_its_fields_are_shown,
    advice_is_that_of_advise,
    samples_have_callers_and_no_advice,
    another_size_is_laid_out_anew,
    the_terminal_is_given_back,
    the_mouse_is_taken_where_it_is_wanted,
    in_a_shell_it_stops_and_goes_on,
    where_nobody_could_go_on_it_does_not_stop,
    colours_are_left_out_where_nobody_wants_them,
    a_recording_is_followed,
    a_profile_is_loaded_again,
    a_recording_that_was_killed_says_so,
    where_nothing_happens_nothing_is_done,
    without_a_terminal_it_says_so,
]


def look(memlens, profile, keys, columns, lines):
    with View(memlens, profile, columns=columns, lines=lines) as view:
        view.see("? keys")
        for key, letter in re.findall(r"<([a-z-]+)>|(.)", keys):
            view.press(key or letter)
        time.sleep(0.2)
        view.read()
        print(view.screen.text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", type=Path, default=ROOT / "target/release/memlens")
    parser.add_argument("--look", nargs="+", metavar="WORD")
    arguments = parser.parse_args()
    memlens = arguments.memlens.resolve()
    if arguments.look:
        profile, keys, *size = [*arguments.look, ""] if len(arguments.look) == 1 else arguments.look
        look(memlens, profile, keys, *map(int, size or [120, 32]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        profiles = Profiles(memlens, Path(folder))
        return run_each((check.__name__, partial(check, profiles)) for check in CHECKS)


if __name__ == "__main__":
    sys.exit(main())

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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEYS = {
    "enter": "\r", "esc": "\x1b", "tab": "\t", "backtab": "\x1b[Z", "backspace": "\x7f", "space": " ",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
    "home": "\x1b[H", "end": "\x1b[F", "pgup": "\x1b[5~", "pgdn": "\x1b[6~", "ctrl-c": "\x03",
}
# A sequence that steers the terminal, or one character.
PIECE = re.compile(r"\x1b\[([?>]?)([0-9;]*)([@-~])|\x1b[@-Z\\-_=>]|\x1b\][^\x07]*\x07|(.)", re.DOTALL)


CUT = re.compile(r"\x1b(\[[?>]?[0-9;]*)?\Z")


class Failure(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failure(message)


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
    """`memlens view` at the other end of a terminal."""

    def __init__(self, memlens, profile, *words, columns=120, lines=32, environment=()):
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

        command = list(map(str, [memlens, "view", profile, *words]))
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
        return code


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
        return look(memlens, profile, keys, *map(int, size or [120, 32]))


if __name__ == "__main__":
    sys.exit(main())

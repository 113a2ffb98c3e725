"""A terminal with a program in it: keys go in, a screen comes out, and the window can be closed."""

import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

# A session of its own with this terminal as the controlling one: only then is Ctrl-C a signal.
IN_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
CTRL_C = b"\x03"
OVERWRITTEN = re.compile(r"[^\n]*\x1b\[2K")  # what a spinner had on its line before
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs `command` until `close`."""

    def __init__(self, command: list[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, *command],
            cwd=cwd,
            env={**env, "TERM": "xterm", "COLUMNS": "200"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self._output = b""
        self._open = True
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def screen(self) -> str:
        """Everything shown so far, without colours and spinners."""
        shown = OVERWRITTEN.sub("", self._output.decode(errors="replace"))
        return ESCAPES.sub("", shown).replace("\r", "")

    def expect(self, pattern: str, *, seconds: float = 60) -> re.Match[str]:
        """Wait until `pattern` is on the screen."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.screen)):
            assert time.monotonic() < end, f"{pattern!r} not within {seconds} s:\n{self.screen}"
            assert self._reader.is_alive(), f"ended without {pattern!r}:\n{self.screen}"
            time.sleep(0.05)
        return match

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._master, keys)

    def ends(self, *, seconds: float = 45) -> int:
        """Wait for the program's end and the last of its output; returns its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def hang_up(self) -> None:
        """Close the window."""
        self._open = False
        self._reader.join()  # a descriptor in use by a read would stay open
        os.close(self._master)

    def close(self) -> None:
        """End the program, whatever it does."""
        self.process.kill()
        self.process.wait()
        if self._open:
            self.hang_up()

    def _read(self) -> None:
        while self._open:
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                fresh = os.read(self._master, 65536)
            except OSError:  # Linux's end of file: no program has the terminal open any more
                return
            if not fresh:  # macOS's
                return
            self._output += fresh

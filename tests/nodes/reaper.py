"""Outlive the test run by a moment, to end what it leaves behind.

Run as a script by `sessions.Reaper`. Reads "+PID" and "-PID" lines; when the pipe closes, because the
test run ended or was killed, every process group still listed gets SIGKILL. A closed pipe needs no
cooperation from the dying side, and works the same on Linux and macOS.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        change = groups.add if line.startswith(b"+") else groups.discard
        change(int(line[1:]))
    for group in groups:
        # PermissionError: macOS, for a group in which only a zombie is left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()

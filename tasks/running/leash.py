"""Run a command that dies with its parent: `python leash.py PARENT_PID SIGNAL COMMAND...`.

The command replaces this process, so it keeps the pid. On Linux the kernel sends it SIGNAL (a number) once
its parent is gone, even if that was SIGKILLed and could tell nobody. Other systems have no such call: there
the command simply runs, and the next start looks for leftovers (`tasks.running.instance`).

A program of its own, not a `preexec_fn`: that would run Python between fork and exec, which is unsafe as soon
as the parent has a second thread. It imports nothing but the standard library, so it costs some 20 ms.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def _die_with(parent: int, signum: int) -> None:
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signum) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before the call above, so no signal will ever come
        sys.exit(f"leash: the parent {parent} is gone")


def main(argv: list[str]) -> None:
    """Become the command; returns only by exception, if it cannot be started."""
    parent, signum, *command = argv
    _die_with(int(parent), int(signum))
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])

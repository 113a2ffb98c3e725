"""A memory cgroup: what the kernel does to a process that takes too much."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.nodes.missing import missing
from tests.nodes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path("/sys/fs/cgroup")


class MemoryLimit:
    """One cgroup of its own. Only what a process takes from when it was put in is counted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, pid: int) -> None:
        """Let the limit hold for a process."""
        (self._directory / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int:
        """How many processes the kernel has killed for it."""
        for file in ("memory.events", "memory.oom_control"):
            if (self._directory / file).exists():
                facts = dict(line.split() for line in (self._directory / file).read_text().splitlines())
                return int(facts.get("oom_kill", 0))
        return 0


@contextlib.contextmanager
def memory_limit(megabytes: int) -> Iterator[MemoryLimit]:
    """A limit, in whichever version of cgroups this machine has; skip where there is none to be had."""
    is_v2 = "memory" in _read(_ROOT / "cgroup.controllers")
    directory = (_ROOT if is_v2 else _ROOT / "memory") / f"celery-lease-{uuid.uuid4().hex[:8]}"
    try:
        if is_v2:
            (_ROOT / "cgroup.subtree_control").write_text("+memory")
        directory.mkdir()
    except OSError as error:
        missing(f"no memory cgroup can be made here ({error})")
    try:
        limit = "memory.max" if is_v2 else "memory.limit_in_bytes"
        (directory / limit).write_text(str(megabytes << 20))
        if is_v2 and (directory / "memory.swap.max").exists():
            (directory / "memory.swap.max").write_text("0")
        yield MemoryLimit(directory)
    finally:
        wait_until(lambda: not _read(directory / "cgroup.procs"))
        directory.rmdir()


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""

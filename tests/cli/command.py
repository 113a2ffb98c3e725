"""`celery lease …` as an operator types it, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.workers import ROOT

CELERY = [sys.executable, "-m", "celery", "-A"]
COMMAND = [*CELERY, "tests.support.probe", "lease"]


class Done(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed for machines."""
        return json.loads(self.out)


class Lease:
    """Runs the command for one installation of the probe app."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **environment}

    def __call__(self, *arguments: str, **environment: str) -> Done:
        """Run `lease` with these arguments, and wait for its end."""
        return self._run([*COMMAND, *arguments], environment)

    def application(self, *arguments: str) -> Done:
        """The same for the application itself."""
        return self._run([*CELERY, "tasks", "lease", *arguments], {})

    def _run(self, command: list[str], environment: Mapping[str, str]) -> Done:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=30,
            cwd=ROOT,
            env={**self.environment, **environment},
        )
        return Done(done.returncode, done.stdout, done.stderr)

"""Fresh Python processes that run a text."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def text(*parts: str) -> str:
    """The parts as one script, each written with an indentation of its own."""
    return "\n".join(dedent(part) for part in parts)


def ended(
    setup: str, script: str, *arguments: str, warnings: str = "default"
) -> subprocess.CompletedProcess[str]:
    """Run the script after its setup to its end, however it ends."""
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", text(setup, script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answer_of(script: str, *arguments: str, setup: str = "") -> Any:
    """Run the script, warnings being errors; what it printed, as JSON."""
    done = ended(setup, script, *arguments, warnings="error")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

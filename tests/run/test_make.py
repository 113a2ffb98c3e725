import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make(*arguments: str) -> str:
    answer = subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return answer.stdout


def test_make_without_a_target_explains_every_target() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets
    assert re.findall(r"^  make (\w+) ", make(), re.MULTILINE) == targets[1].split()


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    arguments = ["make", "run", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}"]
    answer = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert f"{old} does not start or is older than 3.11" in answer.stdout

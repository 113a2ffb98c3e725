"""The suite is the same with and without pytest-celery, and needs no Docker either way."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
NEED_PYTEST_CELERY = [TESTS / name for name in ("compose", "integration", "nodes")]

# As if neither were installed: their entry points are not loaded, and importing them fails.
WITHOUT_PYTEST_CELERY = """
import sys
import pytest

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("docker", "pytest_celery", "pytest_docker_tools"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
sys.exit(pytest.main(["-p", "no:celery", "-p", "no:docker_tools", *sys.argv[1:]]))
"""
# What each test would set up, without running it: every fixture is looked up.
PLAN = ["--setup-plan", "--quiet", "-p", "no:cacheprovider", str(TESTS)]


def plan(*command: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, *command, *PLAN],
        cwd=ROOT,
        # Options for the tests that run now, such as for a list of the slowest, are not for these.
        env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    # Addresses differ between any two runs, and the last line has the time.
    return re.sub("0x[0-9a-f]+", "0x", run.stdout).splitlines()[:-1]


def test_the_suite_is_the_same_with_and_without_pytest_celery() -> None:
    ignored = [f"--ignore={directory}" for directory in NEED_PYTEST_CELERY]
    with_it = plan("-m", "pytest", *ignored)
    without_it = plan("-c", WITHOUT_PYTEST_CELERY)
    assert with_it == without_it
    assert any("::test_" in line for line in with_it)


def fixtures_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and any(
            "fixture" in ast.unparse(d) for d in node.decorator_list
        ):
            yield node.name


def test_only_nodes_and_their_users_take_a_fixture_name_of_pytest_celery() -> None:
    # Above all not celery_worker: a node for pytest-celery, a thread for celery.contrib.pytest.
    elsewhere = [
        f"{file}: {name}"
        for file in TESTS.rglob("*.py")
        if not any(file.is_relative_to(directory) for directory in NEED_PYTEST_CELERY)
        for name in fixtures_of(file)
        if name.startswith(("celery_", "default_", "docker_"))
    ]
    everywhere = [f"{file}" for file in TESTS.rglob("*.py") if "celery_worker" in fixtures_of(file)]
    assert elsewhere + everywhere == []

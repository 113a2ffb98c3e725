"""The lock files in requirements/, which `make` installs from."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
RUN, DEV = ROOT / "requirements/run.txt", ROOT / "requirements/dev.txt"
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)", re.MULTILINE)


def pins(lock: Path) -> dict[str, str]:
    return {match["name"]: match["version"] for match in PIN.finditer(lock.read_text())}


def wanted(group: str) -> set[str]:
    """The distributions a dependency group names, without the project itself."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    named = [Requirement(entry) for entry in groups[group] if isinstance(entry, str)]
    return {str(canonicalize_name(requirement.name)) for requirement in named} - {"celery-lease"}


@pytest.mark.parametrize("lock", [RUN, DEV], ids=lambda path: path.name)
def test_a_lock_names_no_place_to_download_from(lock: Path) -> None:
    assert not re.search(r"https?:|file:|find-links|index-url|@ ", lock.read_text())


@pytest.mark.parametrize("lock", [RUN, DEV], ids=lambda path: path.name)
def test_every_pin_has_hashes(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text())
    assert all("--hash=sha256:" in entry for entry in entries if not entry.startswith("#"))


def test_what_runs_is_pinned_as_it_was_tested() -> None:
    assert pins(RUN).items() <= pins(DEV).items()


def test_every_dependency_of_the_project_is_locked() -> None:
    assert wanted("app") <= pins(RUN).keys()
    assert wanted("dev") <= pins(DEV).keys()

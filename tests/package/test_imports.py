"""Who may import whom, and what of the library is public: read from its files."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import celery_lease

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "src" / "celery_lease"
FILES = sorted(LIBRARY.rglob("*.py"))

PUBLIC_NAMES = {
    "leased_task",
    "LeasedTask",
    "Lease",
    "hold",
    "current_lease",
    "Skipped",
    "SKIPPED",
    "LeaseLost",
    "LeaseError",
}
#: Beside the package itself. `cli` is Celery's to load, by an entry point.
PUBLIC_MODULES = {"beat", "cli", "metrics", "testing", "watchdog", "web"}
NEVER_IMPORTED = {"tasks", "tests", "benchmarks", "beat_schedule", "celeryconfig"}


def imports_of(file: Path, *, at_import_only: bool = False) -> Iterator[str]:
    """The modules that a file imports; on demand only those without which it cannot be imported."""
    tree = ast.parse(file.read_text(), str(file))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        is_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        is_optional = isinstance(node, ast.Try) and "except ImportError" in ast.unparse(node)
        if at_import_only and (is_later or is_for_types or is_optional):
            skipped.update(ast.walk(node))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute here"
            assert node.module
            yield node.module


def root_of(module: str) -> str:
    return module.partition(".")[0]


def declared(*extras: str) -> set[str]:
    """The import packages that the project's metadata names, and those of the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in optional.get(extra, []))]
    distributions = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower() for requirement in wanted}
    packages = importlib.metadata.packages_distributions()
    return {name for name, owners in packages.items() if distributions & {owner.lower() for owner in owners}}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(LIBRARY)))
def test_the_library_knows_nothing_of_the_application_and_of_its_tests(file: Path) -> None:
    assert not {root_of(module) for module in imports_of(file)} & NEVER_IMPORTED


def test_the_application_uses_the_library_by_its_public_names() -> None:
    for file in [*(ROOT / "tasks").rglob("*.py"), ROOT / "celeryconfig.py", ROOT / "beat_schedule.py"]:
        private = [module for module in imports_of(file) if module.startswith("celery_lease._")]
        assert not private, file


def test_the_core_imports_only_what_the_project_declares() -> None:
    allowed = declared() | set(sys.stdlib_module_names) | {"celery_lease"}
    optional = {"web", "metrics", "testing"}
    for file in FILES:
        if file.relative_to(LIBRARY).parts[0].removesuffix(".py") in optional:
            continue
        imported = {root_of(module) for module in imports_of(file, at_import_only=True)}
        assert imported <= allowed, file.relative_to(LIBRARY)


def test_the_public_names_are_the_documented_ones() -> None:
    assert set(celery_lease.__all__) == PUBLIC_NAMES
    for name in PUBLIC_NAMES:
        thing = getattr(celery_lease, name)
        assert isinstance(thing, str) or thing.__doc__, f"{name} has no docstring"


def test_every_other_name_of_the_package_is_private_or_a_public_module() -> None:
    found = {name for name in vars(celery_lease) if not name.startswith("_")}
    assert found - PUBLIC_NAMES <= PUBLIC_MODULES


def test_modules_are_private_but_for_the_public_ones() -> None:
    modules = {
        path.stem for path in LIBRARY.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    public = {module for module in modules if not module.startswith("_")}
    assert public <= PUBLIC_MODULES


@pytest.mark.parametrize("module", sorted(PUBLIC_MODULES))
def test_a_public_module_says_what_is_public_in_it(module: str) -> None:
    if not any((LIBRARY / name).exists() for name in (f"{module}.py", f"{module}/__init__.py")):
        pytest.skip(f"there is no celery_lease.{module} yet")
    loaded = importlib.import_module(f"celery_lease.{module}")
    assert loaded.__doc__
    assert loaded.__all__
    assert not [name for name in loaded.__all__ if name.startswith("_") or not hasattr(loaded, name)]


def test_what_can_be_raised_and_stored_is_found_under_its_public_name() -> None:
    for name in ("LeaseError", "LeaseLost", "Skipped"):
        assert getattr(celery_lease, name).__module__ == "celery_lease"


def test_importing_the_library_starts_nothing_and_loads_no_server() -> None:
    script = (
        "import sys, threading, celery_lease; "
        "print(threading.active_count(), [name for name in sys.modules if name.split('.')[0] in "
        "('fastapi', 'flower', 'apprise', 'prometheus_client', 'sqlalchemy', 'tasks', 'tests')])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "1 []\n"

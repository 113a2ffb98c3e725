"""pytest-celery with or without Docker: `--celery-nodes=auto|docker|process`.

The same test files run on containers where there is an engine and on local processes where there is
none. Processes share the machine: no isolation of network, files or users, no memory limits, no
`pause`. What needs those, or an image that nothing here stands for, is skipped with the reason, and
fails in CI.

Reading order: `client.py` (what replaces the Docker client), `container.py` (a container that is a
process), `recipes.py` (how a container's command becomes a local one), `sessions.py` (how a process
ends with all its descendants).
"""

import os
from importlib import import_module
from pathlib import Path

import pytest

# The directories of tests that need pytest-celery, or the Docker SDK that comes with it.
_NEED_PYTEST_CELERY = [Path(__file__).parents[1] / name for name in ("compose", "integration", "nodes")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("celery").addoption(
        "--celery-nodes",
        choices=("auto", "docker", "process"),
        default=os.environ.get("CELERY_NODES", "auto"),
        help="run pytest-celery's nodes as Docker containers, as local processes, or as containers only "
        "if an engine answers (default: auto, or $CELERY_NODES)",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # Of two fixtures with one name the later plugin's wins, so these register last, whichever way and
    # however early this plugin was loaded.
    if _has_pytest_celery(config):
        config.pluginmanager.register(import_module("tests.nodes.fixtures"), "celery-nodes-fixtures")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what cannot work without pytest-celery; the other tests do not need it."""
    if collection_path in _NEED_PYTEST_CELERY and not _has_pytest_celery(config):
        return True
    return None


def pytest_report_header(config: pytest.Config) -> str:
    if _has_pytest_celery(config):
        return f"celery nodes: {config.getoption('--celery-nodes')}"
    left_out = ", ".join(directory.name for directory in _NEED_PYTEST_CELERY)
    return f"celery nodes: none, for want of pytest-celery; left out: {left_out}"


def _has_pytest_celery(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin("celery")

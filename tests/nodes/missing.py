"""What to do when this machine cannot run something."""

import importlib.util
import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test; in CI, where everything must be installed, fail it."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def needs_package(name: str) -> None:
    """For what only a Python package can do that the tests do not import themselves."""
    if importlib.util.find_spec(name) is None:
        missing(f"the package {name!r} is not installed")


def needs_engine(what: str) -> NoReturn:
    """For what only containers can do."""
    missing(f"{what} needs a Docker engine: no local process stands for it")

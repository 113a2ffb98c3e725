"""What these tests need of the machine, or are skipped for want of."""

import shutil

import pytest

from tests.nodes.missing import missing


@pytest.fixture(scope="session")
def redis_program() -> str:
    """A Redis that speaks TLS and knows Sentinel and Cluster: the system's own, not the embedded one."""
    return shutil.which("redis-server") or missing("no redis-server on PATH")

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.client import ProcessClient


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ProcessClient]:
    client = ProcessClient(tmp_path / "nodes")
    yield client
    client.close()

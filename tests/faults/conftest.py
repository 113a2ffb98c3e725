"""The stage of every fault run: the leases on a server of their own, everything else on a calm one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stage import Stage
from tests.support.servers import Server
from tests.support.site import Site


@pytest.fixture
def set_up(
    redis_url: str, start_server: Callable[..., Server], start_site: Callable[..., Site], tmp_path: Path
) -> Callable[..., Stage]:
    """Set up a stage, with the default lease unless the test needs a short one."""

    def set_up(
        *server_options: str, lease_seconds: float = 300, persistent: bool = False, **conf: Any
    ) -> Stage:
        store = start_server(*server_options, persistent=persistent)
        conf = {"worker_prefetch_multiplier": 1, "lease_history": 100_000, **conf}
        site = start_site(redis_url, leases=store.url, conf=conf)
        return Stage(site, store, tmp_path / "stage", lease_seconds=lease_seconds)

    return set_up

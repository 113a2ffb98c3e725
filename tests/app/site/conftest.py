from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.store import Store
from tests.app.site.served import Served, curate_what_is_shipped
from tests.nodes.sessions import Reaper

Serve = Callable[[str], Served]


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory, reaper: Reaper) -> Iterator[Serve]:
    """Start the site over a database."""
    running: list[Served] = []

    def start(database_url: str) -> Served:
        running.append(Served(database_url, tmp_path_factory.mktemp("site"), reaper))
        return running[-1]

    yield start
    for served in running:
        served.close()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def shipped_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with the answers for all shipped labels; only for reading."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('shipped') / 'tasks.sqlite3'}"
    else:
        url = request.getfixturevalue("postgres").database()
    with Store.open(url) as store:
        curate_what_is_shipped(store)
    return url


@pytest.fixture(scope="session")
def site(shipped_url: str, serve: Serve) -> Served:
    """The site over that database."""
    return serve(shipped_url)


@pytest.fixture(scope="session")
def shipped_names(shipped_url: str) -> list[str]:
    """What there is an answer for."""
    with Store.open(shipped_url, read_only=True) as store:
        return [answer.ingredient for answer in store.answers()]


@pytest.fixture(scope="session")
def pages(site: Served) -> dict[str, str]:
    """The page of every address in the sitemap."""
    return {path: site.text(path) for path in site.entries()}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Store]:
    """An empty database of the test's own, at `own_url`."""
    with Store.open(f"sqlite:///{tmp_path / 'tasks.sqlite3'}") as store:
        yield store


@pytest.fixture
def own_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tasks.sqlite3'}"

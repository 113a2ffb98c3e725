"""What is shipped: the wheel holds the library, all of it and nothing else, and works alone."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.nodes.missing import missing

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "src" / "celery_lease"

ONE_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import redis
from celery import Celery
import celery_lease
assert celery_lease.__file__.startswith(sys.argv[1]), celery_lease.__file__
app = Celery(broker=sys.argv[2], set_as_current=False)
with redis.Redis.from_url(sys.argv[2]) as client:
    with celery_lease.hold("job", app=app) as lease:
        assert lease.check()
        assert client.exists("cron:{job}")
        try:
            with celery_lease.hold("job", app=app):
                raise AssertionError("entered")
        except celery_lease.Skipped as skipped:
            print(skipped.reason)
    assert not client.exists("cron:{job}")
    print(client.hget("cron:{job}:ledger", "total:ran").decode())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("build", "hatchling"):
        if importlib.util.find_spec(needed) is None:
            missing(f"building the wheel needs {needed}")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_everything_of_the_library_is_in_the_wheel(contents: set[str]) -> None:
    source = {
        f"celery_lease/{path.relative_to(LIBRARY)}"
        for path in LIBRARY.rglob("*")
        if path.is_file()
        and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(LIBRARY).parts)
    }
    assert source <= contents
    assert "celery_lease/py.typed" in contents
    scripts = {name for name in contents if name.endswith(".lua")}
    assert {f"celery_lease/lua/{name}.lua" for name in ("common", "acquire", "renew", "release")} <= scripts


def test_nothing_else_is_in_the_wheel(contents: set[str]) -> None:
    tops = {name.split("/")[0] for name in contents}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"celery_lease"}
    assert len(tops) == 2
    assert not [name for name in contents if "__pycache__" in name]
    assert [name for name in contents if name.endswith("licenses/LICENSE")]


def test_the_wheel_alone_takes_a_lease_and_gives_it_back(wheel: Path, tmp_path: Path, redis_url: str) -> None:
    if importlib.util.find_spec("pip") is None:
        missing("installing the wheel needs pip")
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", str(target), str(wheel)], check=True)
    # -I: neither the working directory nor PYTHONPATH, which lead to the sources.
    done = subprocess.run(
        [sys.executable, "-I", "-c", ONE_RUN, str(target), redis_url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["locked", "1"]

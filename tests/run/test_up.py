"""`python -m tasks up` as a person uses it: real processes in a real terminal."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from tasks.running import embedded
from tasks.up import Plan, _services
from tests.nodes.missing import missing
from tests.nodes.waiting import wait_until
from tests.run.terminal import CTRL_C, Terminal

ROOT = Path(__file__).parents[2]
UP = [sys.executable, "-m", "tasks", "up"]
READY = "to stop +Ctrl-C"

Start = Callable[..., Terminal]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    for process in working_on(folder):
        process.kill()


@pytest.fixture
def make_run(data: Path) -> Iterator[Terminal]:
    if Path(sys.prefix) != ROOT / ".venv":
        missing("only under `make test` is the virtual environment the one of `make run`")
    options = f"--data {data} --flower-port {embedded.free_port(0)}"
    terminal = Terminal(["make", "run", f"UP={options}"], cwd=ROOT, env=os.environ)
    yield terminal
    if terminal.process.poll() is None:
        terminal.press(CTRL_C)
        terminal.ends()
    terminal.close()


@pytest.fixture
def up(data: Path) -> Iterator[Start]:
    terminals = []

    def start(*options: str, **env: str) -> Terminal:
        clean = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
        terminal = Terminal(
            [*UP, "--data", str(data), "--flower-port", str(embedded.free_port(0)), *options],
            cwd=ROOT,
            env={**clean, **env},
        )
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()


def working_on(data: Path) -> list[psutil.Process]:
    """Processes that have the data folder in their command, environment or working directory."""
    return [process for process in psutil.process_iter() if str(data) in traces(process)]


def traces(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), process.cwd(), *process.environ().values()])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def pids(data: Path) -> dict[str, int]:
    return {entry["name"]: entry["pid"] for entry in json.loads((data / "run.json").read_text())}


def flower_tasks(terminal: Terminal) -> list[dict[str, object]]:
    address = terminal.expect(r"http://127.0.0.1:\d+")[0]
    # What its page loads; the API proper wants a login.
    query = (
        "draw=1&start=0&length=10&search[value]=&order[0][column]=0&order[0][dir]=asc&columns[0][data]=name"
    )
    with urllib.request.urlopen(f"{address}/tasks/datatable?{query}", timeout=5) as answer:  # noqa: S310 - http, ours
        return list(json.load(answer)["data"])


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - http, ours
        return str(answer.read().decode())


def assert_announced_is_what_is_new(terminal: Terminal) -> None:
    """Answers, sitemap and announcements agree, and each announced address has its page."""
    site = terminal.expect(r"the answers +(http://\S+)/answers")[1]
    announced = json.loads(get(terminal.expect(r"announced +(http://\S+)")[1]))["announced"]
    urls = {each["url"] for each in announced}
    in_sitemap = set(re.findall(r"<loc>(.*?)</loc>", get(f"{site}/sitemap.xml")))
    assert urls == in_sitemap - {f"{site}/answers"}
    assert len(urls) > 10
    assert "Not medical advice" in get(urls.pop())


def status_page(address: str, password: str) -> str:
    login = base64.b64encode(f"anybody:{password}".encode()).decode()
    request = urllib.request.Request(address, headers={"Authorization": f"Basic {login}"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - http, ours
        return str(answer.read().decode())


def test_up_curates_and_shows_it_a_second_up_is_refused_and_ctrl_c_stops_all(up: Start, data: Path) -> None:
    first = up()
    first.expect(READY)
    assert "curation just now: " in first.screen
    assert "answers so far" in first.screen
    assert_announced_is_what_is_new(first)
    wait_until(lambda: ("curation", "SUCCESS") in {(t["name"], t["state"]) for t in flower_tasks(first)})

    address, password = first.expect(r"status page +(http://\S+)  any user, password: (\S+)").groups()
    assert "curation" in status_page(address, password)
    assert '<a href="/answers">' in status_page(address, password)
    assert (data / "cron-secret").stat().st_mode & 0o777 == 0o600

    second = up()
    assert second.ends() == 75
    assert f"already running in {data} (pid {first.process.pid})" in second.screen
    assert "http://127.0.0.1:" in second.screen
    assert first.process.poll() is None
    assert flower_tasks(first)

    first.press(CTRL_C)
    assert first.ends() == 130
    assert "stopped; the data stays in" in first.screen
    assert working_on(data) == []


def test_announcements_go_where_the_environment_says_and_no_receiver_is_started_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def plan(receiver_port: int | None) -> Plan:
        return Plan(tmp_path, "", 1, 2, receiver_port, "", 1)

    assert plan(3).env == {
        "SITE_URL": "http://127.0.0.1:2",
        "INDEXNOW_ENDPOINT": "http://127.0.0.1:3/indexnow",
    }
    assert "receiver" in {service.name for service in _services(plan(3))}
    monkeypatch.setenv("SITE_URL", "https://food.example")
    assert plan(None).env == {"SITE_URL": "https://food.example"}
    assert "receiver" not in {service.name for service in _services(plan(None))}


def test_fresh_without_a_terminal_needs_a_yes(data: Path) -> None:
    earlier = data / "redis"
    earlier.mkdir(parents=True)
    answer = subprocess.run(
        [*UP, "--data", str(data), "--fresh"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert "say --yes" in answer.stderr
    assert earlier.exists()


def test_fresh_asks_and_deletes_only_what_up_made(up: Start, data: Path) -> None:
    (data / "redis").mkdir(parents=True)
    (data / "redis" / "earlier").touch()
    (data / "mine.txt").touch()
    terminal = up("--fresh")
    terminal.expect(r"Delete the queue and the answers in .*\[y/N\]")
    assert (data / "redis" / "earlier").exists()
    terminal.press(b"y\n")
    terminal.expect(READY)
    assert not (data / "redis" / "earlier").exists()
    assert (data / "mine.txt").exists()
    terminal.press(CTRL_C)
    assert terminal.ends() == 130


def test_a_killed_up_leaves_nothing_behind(up: Start, data: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux can end a process with its parent")
    terminal = up()
    terminal.expect(READY)
    assert len(working_on(data)) >= 5  # up, server, worker and its children, beat, flower
    terminal.process.kill()
    wait_until(lambda: not working_on(data))


def test_a_given_server_is_used_and_left_running(up: Start, data: Path, redis_url: str) -> None:
    terminal = up(REDIS_URL=redis_url)
    terminal.expect(READY)
    assert "curation just now: " in terminal.screen
    assert set(pids(data)) == {"up", "worker", "beat", "flower", "web", "receiver"}
    terminal.process.terminate()
    assert terminal.ends() == 128 + signal.SIGTERM
    assert working_on(data) == []
    assert embedded.answers(redis_url)


def test_a_redis_url_that_does_not_answer_is_named_without_its_password(up: Start, data: Path) -> None:
    port = embedded.free_port(0)
    terminal = up(REDIS_URL=f"redis://:hunter2@127.0.0.1:{port}/0")
    assert terminal.ends() == 1
    assert f"127.0.0.1:{port}" in terminal.screen
    assert "hunter2" not in terminal.screen
    assert working_on(data) == []


def test_a_first_curation_that_is_skipped_is_explained_and_the_services_go_on(
    up: Start, redis_url: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("cron:{curation}", "a lock of an older kind")
    terminal = up(REDIS_URL=redis_url)
    terminal.expect(READY)
    assert re.search(r"the first curation ended as SKIPPED: .*locked", terminal.screen)
    assert terminal.process.poll() is None


def test_the_end_of_one_service_ends_the_rest_and_is_explained(up: Start, data: Path) -> None:
    terminal = up()
    terminal.expect(READY)
    os.kill(pids(data)["beat"], signal.SIGKILL)
    assert terminal.ends() == 128 + signal.SIGKILL
    assert "beat ended by itself (exit code 137)" in terminal.screen
    assert working_on(data) == []


def test_a_closed_terminal_stops_everything(up: Start, data: Path) -> None:
    terminal = up()
    terminal.expect(READY)
    terminal.hang_up()
    assert terminal.ends() == 128 + signal.SIGHUP
    assert working_on(data) == []


def test_ctrl_c_during_the_start_stops_what_has_started(up: Start, data: Path) -> None:
    terminal = up()
    wait_until(lambda: (data / "run.json").exists() and len(pids(data)) > 1)
    terminal.press(CTRL_C)
    assert terminal.ends() == 130
    assert working_on(data) == []


def test_labels_that_cannot_be_loaded_end_the_start_with_the_reason(up: Start, data: Path) -> None:
    terminal = up(DATABASE_URL="sqlite:////dev/null/tasks.sqlite3")
    assert terminal.ends() == 1
    assert "load failed" in terminal.screen
    assert "DATABASE_URL=sqlite:////dev/null/tasks.sqlite3: " in terminal.screen
    assert working_on(data) == []


def test_a_busy_flower_port_is_refused_before_anything_starts(up: Start, data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        terminal = up("--flower-port", str(port))
        assert terminal.ends() == 2
    assert f"port {port} is in use" in terminal.screen
    assert not (data / "run.json").exists()


def test_make_run_installs_nothing_that_is_there_and_ends_with_ctrl_c(make_run: Terminal, data: Path) -> None:
    make_run.expect(READY)
    assert "pip install" not in make_run.screen
    make_run.press(CTRL_C)
    assert make_run.ends() in {2, 128 + signal.SIGINT, -signal.SIGINT}
    assert "stopped; the data stays in" in make_run.screen
    assert working_on(data) == []

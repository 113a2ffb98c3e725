"""docker-compose.yml works, although there may be no Docker here: each of its commands is run."""

import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery.states import UNREADY_STATES
from redis import Redis

from tasks.settings import Settings
from tests.compose.compose_file import ROOT, Service, in_start_order, read_compose_file, seconds, services
from tests.compose.stack import Stack
from tests.nodes.client import ProcessClient
from tests.nodes.waiting import wait_until

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
SERVICES = list(services().values())
LONG_RUNNING = [service for service in SERVICES if not service.runs_once]

# https://github.com/compose-spec/compose-spec/blob/main/spec.md
TOP_LEVEL = {"configs", "include", "name", "networks", "secrets", "services", "volumes"}
OF_A_SERVICE = {
    *("build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "init", "logging"),
    *("ports", "read_only", "restart", "security_opt", "stop_grace_period", "tmpfs", "volumes"),
}
OF_A_HEALTH_CHECK = {"interval", "retries", "start_period", "test", "timeout"}
SECRET = re.compile("SECRET|PASSWORD|KEY|TOKEN|AUTH")


def named(service: Service) -> str:
    return service.name


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    client = ProcessClient(tmp_path)
    yield Stack(client)
    client.close()


def outcome_of(store: Redis, task_id: str) -> dict[str, Any]:
    """Wait until the task has ended, and return its stored result."""

    def stored() -> dict[str, Any]:
        meta: dict[str, Any] = json.loads(str(store.get(f"celery-task-meta-{task_id}") or "{}"))
        return meta

    wait_until(lambda: stored().get("status", "PENDING") not in UNREADY_STATES, seconds=60)
    return stored()


def call(stack: Stack, job: str) -> dict[str, Any]:
    """Run a job now; how it ended."""
    code, task_id = stack.containers["worker"].exec_run(f"celery -A tasks call {job}")
    assert code == 0, task_id
    with Redis(port=stack.port("valkey", 6379), decode_responses=True) as store:
        return outcome_of(store, task_id.decode().strip())


def test_every_service_gets_healthy_does_its_part_and_stops_in_order(stack: Stack) -> None:
    # Without beat for now: at a quarter of an hour it would send the same job.
    stack.start("worker")
    outcome = call(stack, "curation")
    assert outcome["status"] == "SUCCESS", stack.containers["worker"].logs().decode()
    assert outcome["result"]["worked"] > 0
    with Redis(port=stack.port("valkey", 6379), decode_responses=True) as store:
        assert store.exists("cron:{curation}") == 0
    stack.start()
    announced = call(stack, "sitemap")
    assert announced["status"] == "SUCCESS", announced
    assert announced["result"]["urls"] > 10
    # uvicorn shuts down in order, and then ends by the very signal that asked for it.
    ended = dict.fromkeys(("web", "receiver"), 128 + signal.SIGTERM)
    assert stack.stop() == dict.fromkeys(services(), 0) | ended
    assert "Application shutdown complete" in stack.containers["web"].logs().decode()
    assert "Warm shutdown" in stack.containers["worker"].logs().decode()


def test_what_valkey_holds_is_still_there_after_a_restart(stack: Stack) -> None:
    stack.start("valkey")
    with Redis(port=stack.port("valkey", 6379), decode_responses=True) as store:
        store.set("kept", "yes")
        stack.containers["valkey"].restart()
        stack.wait_until_healthy("valkey")
        assert store.get("kept") == "yes"


@pytest.mark.parametrize("name", ["worker", "beat", "flower", "web", "receiver"])
def test_a_health_check_notices_a_service_that_hangs(stack: Stack, name: str) -> None:
    stack.start(name)
    stack.containers[name].kill("SIGSTOP")
    assert not stack.is_healthy(name)
    stack.containers[name].kill("SIGCONT")
    stack.wait_until_healthy(name)


def test_the_file_has_only_known_keys() -> None:
    content = read_compose_file()
    assert {key for key in content if not key.startswith("x-")} <= TOP_LEVEL
    for service in SERVICES:
        assert service.settings.keys() <= OF_A_SERVICE
        assert service.settings.get("healthcheck", {}).keys() <= OF_A_HEALTH_CHECK


def test_every_volume_is_declared_and_every_needed_service_is_there() -> None:
    content = read_compose_file()
    for service in SERVICES:
        assert service.volumes.keys() <= content["volumes"].keys()
        assert service.needs.keys() <= content["services"].keys()


def test_no_service_waits_for_itself() -> None:
    order = [service.name for service in in_start_order()]
    for service in SERVICES:
        assert all(order.index(needed) < order.index(service.name) for needed in service.needs)


@pytest.mark.parametrize("service", SERVICES, ids=named)
def test_images_are_pinned(service: Service) -> None:
    tag = service.image.rpartition("/")[2].partition(":")[2]
    assert tag
    assert "latest" not in tag
    assert "build" in service.settings or re.match(r"\d+\.\d+\.\d+", tag)


@pytest.mark.parametrize("service", LONG_RUNNING, ids=named)
def test_every_service_is_checked_and_restarted(service: Service) -> None:
    check = service.settings["healthcheck"]
    assert check.keys() == OF_A_HEALTH_CHECK
    assert seconds(check["timeout"]) < seconds(check["interval"])
    assert service.settings["restart"] == "unless-stopped"
    assert service.grace_seconds >= 10


@pytest.mark.parametrize("service", SERVICES, ids=named)
def test_ports_are_open_to_this_machine_only(service: Service) -> None:
    assert {address for address, _outside, _inside in service.published_ports} <= {"127.0.0.1"}


@pytest.mark.parametrize(
    "service", [service for service in SERVICES if "build" in service.settings], ids=named
)
def test_the_application_knows_every_variable_it_is_given(service: Service) -> None:
    given = {name for name in service.settings["environment"] if not name.startswith("FLOWER_")}
    assert given <= {name.upper() for name in Settings.model_fields}


@pytest.mark.parametrize(
    "service", [service for service in SERVICES if "build" in service.settings], ids=named
)
def test_nothing_is_announced_outside_unless_somebody_says_so(service: Service) -> None:
    assert urlsplit(service.environment["INDEXNOW_ENDPOINT"]).hostname in services()


@pytest.mark.parametrize("service", SERVICES, ids=named)
def test_no_secret_is_written_down(service: Service) -> None:
    assert not [name for name in service.environment if SECRET.search(name)]


def dockerfile_words(instruction: str) -> list[list[str]]:
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text()).splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{instruction} ")]


def test_the_base_image_is_pinned() -> None:
    [[argument]] = [words for words in dockerfile_words("ARG") if words[0].startswith("PYTHON_IMAGE")]
    assert re.fullmatch(r"PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim-\w+", argument)
    assert {words[0] for words in dockerfile_words("FROM")} == {"${PYTHON_IMAGE}"}


def test_what_the_image_copies_exists_and_reaches_the_build() -> None:
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    sources = {
        word for words in dockerfile_words("COPY") if "--from=build" not in words for word in words[:-1]
    }
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_does_not_run_as_root() -> None:
    assert dockerfile_words("USER") == [["10001:10001"]]


def test_what_the_image_installs_is_locked() -> None:
    [install] = [words for words in dockerfile_words("RUN") if "--require-hashes" in words]
    assert install[-1] == "requirements/run.txt"
    lock = re.sub(r"\\\n", " ", (ROOT / install[-1]).read_text())
    packages = [line for line in lock.splitlines() if line and not line.startswith("#")]
    assert packages
    assert all("==" in package and "--hash=sha256:" in package for package in packages)

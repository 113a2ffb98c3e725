"""What pytest-celery may rely on when a container is a local process."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from docker.errors import APIError, NotFound
from pytest_docker_tools.wrappers import Container

from tests.nodes.client import ProcessClient
from tests.nodes.container import ProcessContainer
from tests.nodes.waiting import wait_until

PRINT_AND_WAIT = "import signal; print('up', flush=True); signal.pause()"
# Both processes print their pid; the first one ends politely on SIGTERM, the second one does not.
PARENT_AND_CHILD = """
import os, signal
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"pid={os.getpid()}", flush=True)
while True:
    signal.pause()
"""


def run_python(nodes: ProcessClient, code: str, **options: Any) -> ProcessContainer:
    return nodes.containers.run("python:3", ["python", "-c", code], **options)


def wait_for_log(container: ProcessContainer, text: str, times: int = 1) -> None:
    wait_until(lambda: container.logs().count(text.encode()) >= times)


def wait_for_status(container: ProcessContainer, status: str) -> None:
    def reached() -> bool:
        container.reload()
        return container.status == status

    wait_until(reached)


def processes_of(container: ProcessContainer) -> list[psutil.Process]:
    wait_for_log(container, "pid=", times=2)
    pids = [int(line.removeprefix(b"pid=")) for line in container.logs().split()]
    return [psutil.Process(pid) for pid in pids]


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_status_changes_only_on_reload(nodes: ProcessClient) -> None:
    container = run_python(nodes, PRINT_AND_WAIT)
    assert container.status == "created"
    container.reload()
    assert container.status == "running"
    container.kill()
    assert container.status == "running"
    container.reload()
    assert container.status == "exited"


@pytest.mark.parametrize("sigkill", [None, 9, "9", "KILL", "SIGKILL"])
def test_sigkill_ends_every_process_of_the_container(nodes: ProcessClient, sigkill: str | int | None) -> None:
    container = run_python(nodes, PARENT_AND_CHILD)
    processes = processes_of(container)
    container.kill(sigkill)
    wait_until(lambda: all(map(is_gone, processes)))
    assert container.wait()["StatusCode"] == 137


def test_another_signal_reaches_the_first_process_only(nodes: ProcessClient) -> None:
    container = run_python(
        nodes,
        "import os, signal\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print(f'got={os.getpid()}', flush=True))\n"
        + PARENT_AND_CHILD,
    )
    assert len(processes_of(container)) == 2
    container.reload()
    container.kill("SIGUSR1")
    wait_for_log(container, f"got={container.attrs['State']['Pid']}")
    container.kill()
    assert container.logs().count(b"got=") == 1


def test_when_the_first_process_ends_the_others_end_with_it(nodes: ProcessClient) -> None:
    container = run_python(nodes, PARENT_AND_CHILD)
    processes = processes_of(container)
    container.kill("SIGTERM")
    wait_for_status(container, "exited")
    wait_until(lambda: all(map(is_gone, processes)))


def test_a_command_that_ignores_sigterm_is_killed_after_the_timeout(nodes: ProcessClient) -> None:
    container = run_python(
        nodes, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + PRINT_AND_WAIT
    )
    wait_for_log(container, "up")
    container.stop(timeout=0.1)
    assert container.wait()["StatusCode"] == 137


def test_the_exit_code_is_known_after_the_command_has_ended(nodes: ProcessClient) -> None:
    container = run_python(nodes, "raise SystemExit(3)")
    assert container.wait(timeout=10)["StatusCode"] == 3
    container.reload()
    assert container.attrs["State"]["ExitCode"] == 3


def test_logs_survive_a_restart(nodes: ProcessClient) -> None:
    container = run_python(nodes, PRINT_AND_WAIT)
    wait_for_log(container, "up")
    container.restart()
    wait_for_log(container, "up", times=2)


def test_starting_a_running_container_changes_nothing(nodes: ProcessClient) -> None:
    container = run_python(nodes, PRINT_AND_WAIT)
    container.reload()
    pid = container.attrs["State"]["Pid"]
    container.start()
    container.reload()
    assert container.attrs["State"]["Pid"] == pid


def test_a_stopped_container_cannot_be_signalled_or_entered(nodes: ProcessClient) -> None:
    container = run_python(nodes, "pass")
    container.wait(timeout=10)
    with pytest.raises(APIError, match="409"):
        container.kill()
    with pytest.raises(APIError, match="409"):
        container.exec_run("true")


def test_only_force_removes_a_running_container(nodes: ProcessClient) -> None:
    container = run_python(nodes, PRINT_AND_WAIT, name="busy")
    assert nodes.containers.get("busy") is container
    with pytest.raises(APIError, match="409"):
        container.remove()
    container.remove(force=True)
    with pytest.raises(NotFound):
        nodes.containers.get("busy")


def test_a_container_that_never_started_can_be_removed_but_not_awaited(nodes: ProcessClient) -> None:
    container = nodes.containers.create("scratch")
    with pytest.raises(APIError, match="not started"):
        container.wait()
    container.stop()
    container.remove()
    assert nodes.containers.list() == []


def test_a_wait_can_time_out(nodes: ProcessClient) -> None:
    container = run_python(nodes, PRINT_AND_WAIT)
    with pytest.raises(subprocess.TimeoutExpired):
        container.wait(timeout=0.01)


def test_a_published_port_is_reachable_and_keeps_its_number(nodes: ProcessClient) -> None:
    container = nodes.containers.run("redis:7", ports={"6379/tcp": None})
    wrapper = Container(container)
    assert wrapper.ready()
    port = wrapper.ports["6379/tcp"]
    container.restart()
    wait_until(wrapper.ready)
    assert wrapper.ports["6379/tcp"] == port


def test_the_host_name_leads_to_the_published_port(nodes: ProcessClient) -> None:
    container = nodes.containers.create("redis:7", ports={"6379/tcp": "16379"})
    assert container.attrs["Config"]["Hostname"] == "localhost:16379"


def test_a_container_without_ports_is_named_by_its_id(nodes: ProcessClient) -> None:
    container = run_python(nodes, "import os, sys; print(sys.argv[1], os.environ['HOSTNAME'])")
    assert container.attrs["Config"]["Hostname"] == container.short_id
    named = nodes.containers.run("python:3", ["python", "-c", "import sys; print(sys.argv[1])", "me@%h"])
    named.wait(timeout=10)
    assert named.logs().decode().strip() == f"me@{named.short_id}"


def test_the_host_environment_stays_outside(nodes: ProcessClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://production")
    container = run_python(
        nodes,
        "import os; print(os.environ.get('REDIS_URL'), os.environ['GIVEN'])",
        environment={"GIVEN": "1"},
    )
    container.wait(timeout=10)
    assert container.logs().split() == [b"None", b"1"]


def test_paths_inside_the_container_lead_to_the_bound_directory(nodes: ProcessClient, tmp_path: Path) -> None:
    container = run_python(
        nodes,
        "import os, sys; print(sys.argv[1:], os.environ['URL'])",
        volumes={str(tmp_path): {"bind": "/data"}},
        environment={"URL": "sqlite:////data/a.db"},
    )
    container.wait(timeout=10)
    assert f"sqlite:///{tmp_path}/a.db" in container.logs().decode()


@pytest.mark.parametrize("path", ["/srv/data", "/database", "data", "/data.old"])
def test_paths_that_only_resemble_the_bound_one_stay_as_they_are(
    nodes: ProcessClient, tmp_path: Path, path: str
) -> None:
    container = run_python(
        nodes,
        "import os; print(os.environ['PLACE'])",
        volumes={str(tmp_path): {"bind": "/data"}},
        environment={"PLACE": path},
    )
    container.wait(timeout=10)
    assert container.logs().decode().strip() == path


def test_exec_run_sees_the_environment_and_files_of_the_container(
    nodes: ProcessClient, tmp_path: Path
) -> None:
    (tmp_path / "note").write_text("hello")
    container = run_python(
        nodes,
        PRINT_AND_WAIT,
        environment={"COLOUR": "amber"},
        volumes={str(tmp_path): {"bind": "/data"}},
    )
    assert container.exec_run("cat /data/note") == (0, b"hello")
    code, output = container.exec_run(
        ["python", "-c", "import os; print(os.environ['COLOUR'], os.environ['SIZE']); exit(4)"],
        environment={"SIZE": "5"},
    )
    assert (code, output.split()) == (4, [b"amber", b"5"])


def test_exec_run_reaches_the_server_of_its_container(nodes: ProcessClient) -> None:
    container = nodes.containers.run("valkey/valkey:8", ports={"6379/tcp": None})
    assert container.exec_run("valkey-cli ping") == (0, b"PONG\n")


def test_an_archive_goes_in_and_comes_out_again(nodes: ProcessClient) -> None:
    nodes.volumes.create("files")
    container = nodes.containers.create("scratch", volumes={"files": {"bind": "/data", "mode": "rw"}})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("folder/note.txt")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))
    packed.seek(0)
    assert container.put_archive("/data", packed)
    assert Container(container).get_text("/data/folder") == {"folder": None, "folder/note.txt": "hello"}


def test_a_missing_path_is_not_found(nodes: ProcessClient) -> None:
    container = nodes.containers.create("scratch")
    with pytest.raises(NotFound):
        container.get_archive("/nothing/here")


def test_an_archive_cannot_write_outside_its_volume(nodes: ProcessClient) -> None:
    nodes.volumes.create("files")
    container = nodes.containers.create("scratch", volumes={"files": {"bind": "/data"}})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../escaped"))
    with pytest.raises(tarfile.OutsideDestinationError):
        container.put_archive("/data", packed.getvalue())

"""A container that is a local process.

`ProcessContainer` is the part of `docker.models.containers.Container` that pytest-celery and
pytest-docker-tools use, with Docker's own habits: facts are those of the last `reload()`, SIGKILL ends
everything inside, other signals reach the first process only, logs outlive a restart.
"""

import io
import os
import re
import secrets
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any, BinaryIO, NamedTuple

from docker.errors import APIError, NotFound

from tests.nodes import recipes
from tests.nodes.dockerfile import Image
from tests.nodes.ports import free_port, is_listening
from tests.nodes.sessions import Reaper, Session

# A container sees nothing of its host's environment. These few let a local process find its
# libraries, files and language; PATH and PYTHONPATH are put together in `_environment`.
_SHARED_WITH_HOST = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")


class ExecResult(NamedTuple):
    """As `docker.models.containers.ExecResult`."""

    exit_code: int
    output: bytes


@dataclass(frozen=True)
class Options:
    """What a container is created with; an option that is not here needs a Docker engine."""

    command: str | Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    network: str | None = None
    ports: Mapping[str, int | str | None] = field(default_factory=dict)
    binds: Mapping[str, Path] = field(default_factory=dict)  # path in the container: path here


class ProcessContainer:
    """One local command that answers like a container."""

    def __init__(self, image: Image, options: Options, *, root: Path, reaper: Reaper) -> None:
        self.id = secrets.token_hex(32)
        self.short_id = self.id[:12]
        self.name = options.name or f"process-{self.short_id}"
        self.labels = dict(options.labels)
        self.directory = root / self.short_id
        self.directory.mkdir(parents=True)
        self._image = image
        self._options = options
        self._ports = {port: int(local or free_port()) for port, local in options.ports.items()}
        self._reaper = reaper
        self._session: Session | None = None
        self._log = self.directory / "container.log"
        self._log.touch()
        self.attrs = self._describe()
        self.removed = False

    # What a recipe needs

    def port(self, published: str) -> int:
        """Return the local port that stands for a port of the container."""
        if published not in self._ports:
            self._ports[published] = free_port()
        return self._ports[published]

    def place(self, inside: str) -> Path:
        """Return the directory that stands for one in the container: a bound one, else its own."""
        here = Path(self._local(inside))
        bound = any(here.is_relative_to(there) for there in self._options.binds.values())
        return here if bound else self.directory

    # State

    @property
    def status(self) -> str:
        """As of the last `reload()`."""
        return str(self.attrs["State"]["Status"])

    def reload(self) -> None:
        """Look at the process again."""
        if self._session is None:
            return
        code = self._session.exit_code()
        self.attrs["State"] = {
            "Status": "running" if code is None else "exited",
            "Running": code is None,
            "ExitCode": code or 0,
            "Pid": self._session.pid if code is None else 0,
        }

    def starting(self) -> bool:
        """Tell whether the command runs and still has ports to open."""
        return self._running() and not all(map(is_listening, self._ports.values()))

    def start(self) -> None:
        """Start the command; nothing happens if it already runs."""
        if self._running():
            return
        launch = recipes.launch(self, self._argv())
        with self._log.open("ab") as log:
            self._session = Session(
                launch.argv,
                environment=self._environment(launch.environment),
                directory=self.place(self._image.directory),
                output=log,
                reaper=self._reaper,
            )

    def kill(self, signal: str | int | None = None) -> None:
        """Send a signal: SIGKILL to all processes, another one to the first."""
        session = self._live_session()
        number = _signal_number(signal)
        if number == SIGKILL:
            session.kill()
        else:
            session.send(number)

    def stop(self, timeout: float = 10) -> None:
        """End the first process politely, all of them after the timeout."""
        if not self._running() or self._session is None:
            return
        self._session.send(SIGTERM)
        try:
            self._session.wait(timeout)
        except subprocess.TimeoutExpired:
            self._session.kill()

    def restart(self, timeout: float = 10) -> None:
        """Stop and start; ports, files and logs stay."""
        self.stop(timeout)
        self.start()

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the command's own end."""
        if self._session is None:
            raise _conflict(f"container {self.name} was not started")
        return {"StatusCode": self._session.wait(timeout), "Error": None}

    def remove(self, *, force: bool = False, v: bool = False) -> None:  # noqa: ARG002 - volumes go with the test
        """End the container for good; a running one only by force."""
        if self._running() and not force:
            raise _conflict(f"container {self.name} is running: stop it or force the removal")
        if self._session is not None:
            self._session.kill()
        self.removed = True

    # Content

    def logs(self) -> bytes:
        """Return everything the command wrote, over all its starts."""
        return self._log.read_bytes()

    def exec_run(
        self,
        cmd: str | Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """Run another command with the container's files and environment."""
        session = self._live_session()
        argv = shlex.split(cmd) if isinstance(cmd, str) else list(cmd)
        if any(argument.startswith("/proc/net/") for argument in argv):
            return ExecResult(0, self._socket_table())
        argv = recipes.local_command(self, [self._local(argument) for argument in argv])
        with tempfile.TemporaryFile() as output:
            extra = Session(
                argv,
                environment=self._environment({"NODE_SESSION": str(session.pid), **(environment or {})}),
                directory=self.place(self._image.directory),
                output=output,
                reaper=self._reaper,
            )
            code = extra.wait()
            output.seek(0)
            return ExecResult(code, output.read())

    def put_archive(self, path: str, data: bytes | BinaryIO) -> bool:
        """Unpack a tar file into a bound directory."""
        stream = io.BytesIO(data) if isinstance(data, bytes) else data
        with tarfile.open(fileobj=stream) as archive:
            archive.extractall(self._existing(path), filter="data")
        return True

    def get_archive(self, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        """Return a tar file of the path, and what is known about it."""
        source = self._existing(path)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(source, arcname=source.name)
        return iter([packed.getvalue()]), {"name": source.name, "size": source.stat().st_size}

    # Inside

    def _running(self) -> bool:
        return self._session is not None and self._session.exit_code() is None

    def _live_session(self) -> Session:
        if self._session is None or self._session.exit_code() is not None:
            raise _conflict(f"container {self.name} is not running")
        return self._session

    def _argv(self) -> list[str]:
        given = self._options.command
        command = shlex.split(given) if isinstance(given, str) else list(given or self._image.command)
        argv = [*self._image.entrypoint, *command] or recipes.command_of(self._image.name)
        return [self._local(word).replace("%h", self.short_id) for word in argv]

    def _local(self, text: str) -> str:
        """Replace paths inside the container by the paths that stand for them here."""
        for inside, here in self._options.binds.items():
            # Whole paths only, also those in a URL with an empty host: sqlite:////data/file.
            path = re.compile(rf"(?:(?<![\w./-])|(?<=///)){re.escape(inside)}(?![\w.-])")
            text = path.sub(partial(_constant, str(here)), text)
        return text

    def _existing(self, path: str) -> Path:
        here = Path(self._local(path.rstrip("/")))
        if not here.exists():
            raise NotFound(f"404 Not Found: no {path} in container {self.name}")
        return here

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        host = {name: os.environ[name] for name in _SHARED_WITH_HOST if name in os.environ}
        declared = {**self._image.environment, **self._options.environment}
        own = {name: self._local(str(value)) for name, value in declared.items()}
        # The environment the tests run in takes the place of the image's installed packages.
        own["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        python_path = filter(None, (own.get("PYTHONPATH"), os.environ.get("PYTHONPATH")))
        own["PYTHONPATH"] = os.pathsep.join(python_path)
        return {**host, "HOSTNAME": self.short_id, **own, **extra}

    def _socket_table(self) -> bytes:
        """Answer `cat /proc/net/tcp` with the published ports only, under their numbers inside.

        pytest-docker-tools takes a container for ready once its ports are in state 0A, LISTEN.
        """
        listening = [int(port.split("/")[0]) for port, local in self._ports.items() if is_listening(local)]
        return "".join(f"0: 00000000:{port:04X} 00000000:0000 0A\n" for port in listening).encode()

    def _describe(self) -> dict[str, Any]:
        published = {
            port: [{"HostIp": "127.0.0.1", "HostPort": str(local)}] for port, local in self._ports.items()
        }
        environment = {**self._image.environment, **self._options.environment}
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Mounts": [],
            "Config": {
                "Hostname": self._hostname(),
                "Image": self._image.name,
                "Labels": self.labels,
                "Env": [f"{name}={value}" for name, value in environment.items()],
            },
            "HostConfig": {"PortBindings": published},
            "State": {"Status": "created", "Running": False, "ExitCode": 0, "Pid": 0},
            "NetworkSettings": {
                "Networks": {self._options.network or "bridge": {"IPAddress": "127.0.0.1"}},
                "Ports": published,
            },
        }

    def _hostname(self) -> str:
        """Give peers an address: on a Docker network they use the host name and the default port.

        With the port inside the "name", `redis://{hostname}/0` works as it stands.
        """
        if len(self._ports) == 1:
            return f"localhost:{next(iter(self._ports.values()))}"
        return self.short_id


def _constant(text: str, _found: re.Match[str]) -> str:
    return text  # as it stands: a replacement string would have its backslashes read


def _signal_number(given: str | int | None) -> int:
    if given is None:
        return SIGKILL
    if isinstance(given, int) or given.isdigit():
        return int(given)
    return Signals[given if given.startswith("SIG") else f"SIG{given}"]


def _conflict(reason: str) -> APIError:
    return APIError(f"409 Conflict: {reason}")

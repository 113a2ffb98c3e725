"""A Docker client whose containers are local processes.

pytest-celery and pytest-docker-tools reach Docker through one object. Replacing it leaves every class
and every fixture of theirs, and every container a test defines itself, exactly as they are.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import celery
from docker.errors import NotFound

from tests.nodes.container import Options, ProcessContainer
from tests.nodes.dockerfile import Image, read_dockerfile
from tests.nodes.missing import needs_engine
from tests.nodes.sessions import Reaper

# Callers ask for readiness once a second; a server that starts in 50 ms should not cost that second.
_HEAD_START_SECONDS = 3.0


class ProcessClient:
    """The part of `docker.DockerClient` that pytest-docker-tools uses."""

    def __init__(self, root: Path) -> None:
        self.images = Images()
        self.networks = Networks()
        self.volumes = Volumes(root / "volumes")
        self._reaper = Reaper()
        self.containers = Containers(self.images, self.volumes, root / "containers", self._reaper)

    def ping(self) -> bool:
        """Answer as an engine does."""
        return True

    def close(self) -> None:
        """End every container."""
        for container in self.containers.list():
            container.remove(force=True)
        self._reaper.close()


class Images:
    """Images are names; a built one also knows what its Dockerfile starts."""

    def __init__(self) -> None:
        self._built: dict[str, Image] = {}

    def build(
        self,
        *,
        path: str | Path,
        tag: str | None = None,
        dockerfile: str = "Dockerfile",
        buildargs: Mapping[str, str] | None = None,
        target: str | None = None,
        rm: bool = True,  # noqa: ARG002 - nothing is left to remove
    ) -> tuple["ImageHandle", Iterator[dict[str, str]]]:
        """Read the Dockerfile; the environment of the tests stands for what it installs."""
        arguments = buildargs or {}
        _require_same_celery(arguments.get("CELERY_VERSION", ""))
        name = tag or f"built:{path}"
        file = Path(path, dockerfile)
        self._built[name] = read_dockerfile(file, name=name, arguments=arguments, target=target)
        return ImageHandle(name), iter(())

    def pull(self, repository: str, tag: str | None = None) -> "ImageHandle":
        """Take any name: whether it can be started shows at the start."""
        return ImageHandle(f"{repository}:{tag}" if tag else repository)

    def get(self, name: str) -> "ImageHandle":
        """Take any name, as `pull`."""
        return ImageHandle(name)

    def described(self, name: str) -> Image:
        """Return what is known about how the image starts."""
        return self._built.get(name, Image(name=name))


class ImageHandle:
    """The part of `docker.models.images.Image` that is used: its names."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.tags = [name]


class Containers:
    """All containers of one client."""

    def __init__(self, images: Images, volumes: "Volumes", root: Path, reaper: Reaper) -> None:
        self._images, self._volumes = images, volumes
        self._root, self._reaper = root, reaper
        self._all: list[ProcessContainer] = []

    def create(
        self,
        image: str | ImageHandle,
        command: str | list[str] | None = None,
        *,
        volumes: Mapping[str, Mapping[str, str]] | None = None,
        detach: bool = True,
        **options: Any,
    ) -> ProcessContainer:
        """Create a container without starting it."""
        unknown = options.keys() - Options.__dataclass_fields__.keys()
        if unknown or not detach:
            needs_engine(f"a container with {', '.join(sorted(unknown)) or 'detach=False'}")
        given = {name: value for name, value in options.items() if value is not None}
        name = image if isinstance(image, str) else image.id
        container = ProcessContainer(
            self._images.described(name),
            Options(command=command, binds=self._volumes.binds(volumes or {}), **given),
            root=self._root,
            reaper=self._reaper,
        )
        self._all.append(container)
        return container

    def run(
        self, image: str | ImageHandle, command: str | list[str] | None = None, **options: Any
    ) -> ProcessContainer:
        """Create and start a container, and give it a moment to open its ports."""
        container = self.create(image, command, **options)
        container.start()
        deadline = time.monotonic() + _HEAD_START_SECONDS
        while container.starting() and time.monotonic() < deadline:
            time.sleep(0.01)
        return container

    def get(self, reference: str) -> ProcessContainer:
        """Find a container by id, short id or name."""
        for container in self.list():
            if reference in (container.id, container.short_id, container.name):
                return container
        raise NotFound(f"404 Not Found: no container {reference}")

    def list(self, *, all: bool = True, ignore_removed: bool = True) -> list[ProcessContainer]:  # noqa: A002, ARG002
        """Return all containers that were not removed."""
        self._all = [container for container in self._all if not container.removed]
        return list(self._all)


class Networks:
    """Networks are names: local processes all share one."""

    def __init__(self) -> None:
        self._all: dict[str, Resource] = {}

    def create(self, name: str, *, labels: Mapping[str, str] | None = None) -> "Resource":
        """Remember the name."""
        self._all[name] = Resource(name, labels or {})
        return self._all[name]

    def get(self, name: str) -> "Resource":
        """Return the network of that name."""
        if name not in self._all:
            raise NotFound(f"404 Not Found: no network {name}")
        return self._all[name]


class Volumes:
    """Volumes are directories."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._all: dict[str, Resource] = {}

    def create(self, name: str, *, labels: Mapping[str, str] | None = None) -> "Resource":
        """Make the directory."""
        self.path(name).mkdir(parents=True)
        self._all[name] = Resource(name, labels or {})
        return self._all[name]

    def get(self, name: str) -> "Resource":
        """Return the volume of that name."""
        if name not in self._all:
            raise NotFound(f"404 Not Found: no volume {name}")
        return self._all[name]

    def path(self, name: str) -> Path:
        """Return the directory of the volume."""
        return self._root / name

    def binds(self, volumes: Mapping[str, Mapping[str, str]]) -> dict[str, Path]:
        """Return the local directory for each path inside; a source with a slash is a host path."""
        return {
            spec["bind"].rstrip("/"): Path(source) if "/" in source else self.path(source)
            for source, spec in volumes.items()
        }


class Resource:
    """A network or a volume, as far as it is used."""

    def __init__(self, name: str, labels: Mapping[str, str]) -> None:
        self.id = self.name = name
        self.attrs = {"Name": name, "Labels": dict(labels)}

    def remove(self, _force: bool = False) -> None:
        """Do nothing: directories go with pytest's own temporary ones."""


def _require_same_celery(version: str) -> None:
    if version not in ("", celery.__version__):
        needs_engine(f"a worker with Celery {version} (here: {celery.__version__})")

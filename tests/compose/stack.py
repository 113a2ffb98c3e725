"""The services of docker-compose.yml as local processes, on the nodes that pytest-celery's tests use.

Commands, health checks, environments, volumes, start order and grace periods are those of the file. Two
things are translated, because local processes share one network: `service:port` becomes the local port of
that service, and a service's own port becomes a free one.
"""

import re

from docker.errors import APIError

from tests.compose.compose_file import ROOT, Service, in_start_order, seconds, services
from tests.nodes.client import ProcessClient
from tests.nodes.container import ProcessContainer
from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until

_RUN_ONCE_SECONDS = 60
_HEALTHY, _COMPLETED = "service_healthy", "service_completed_successfully"


class Stack:
    """Everything `docker compose up` would start."""

    def __init__(self, client: ProcessClient) -> None:
        self.containers: dict[str, ProcessContainer] = {}
        self._client = client
        self._services = services()
        self._ports = {
            (service.name, port): free_port()
            for service in self._services.values()
            for port in self._ports_of(service)
        }
        for volume in {name for service in self._services.values() for name in service.volumes}:
            client.volumes.create(volume)

    def start(self, *names: str) -> None:
        """Start these services (all, if none is named) and what they need, and wait until all are there.

        What was started before is left as it is.
        """
        for service in in_start_order(*names):
            if service.name in self.containers:
                continue
            for needed, condition in service.needs.items():
                self._wait_for(needed, condition)
            self.containers[service.name] = self._run(service)
        for name in self.containers:
            self._wait_for(name, _COMPLETED if self._services[name].runs_once else _HEALTHY)

    def is_healthy(self, name: str) -> bool:
        """Run the service's health check."""
        code, _output = self.containers[name].exec_run(self._translated(name, self._services[name].check))
        return code == 0

    def wait_until_healthy(self, name: str) -> None:
        """Run the check until it succeeds, as long as the file gives the service to start."""
        allowed = seconds(self._services[name].settings["healthcheck"]["start_period"])
        try:
            wait_until(lambda: self.is_healthy(name), seconds=allowed)
        except (APIError, TimeoutError):  # it has ended, or takes too long
            log = self.containers[name].logs().decode()
            raise AssertionError(f"{name} is not healthy:\n{log}") from None

    def stop(self) -> dict[str, int]:
        """Stop every service before those it needs, and return their exit codes."""
        for service in reversed(list(in_start_order(*self.containers))):
            if not service.runs_once:
                self.containers[service.name].stop(timeout=service.grace_seconds)
        return {name: container.wait()["StatusCode"] for name, container in self.containers.items()}

    def port(self, name: str, inside: int) -> int:
        """Return the local port of a service."""
        return self._ports[name, inside]

    def _run(self, service: Service) -> ProcessContainer:
        build = service.settings.get("build")
        if build:
            self._client.images.build(
                path=ROOT / build["context"], dockerfile=build["dockerfile"], tag=service.image
            )
        environment = {name: self._peers_translated(value) for name, value in service.environment.items()}
        volumes = {name: {"bind": inside} for name, inside in service.volumes.items()}
        return self._client.containers.run(
            service.image,
            self._translated(service.name, service.command),
            name=service.name,
            environment=environment,
            ports={f"{inside}/tcp": self.port(service.name, inside) for inside in self._ports_of(service)},
            volumes={**volumes, str(ROOT): {"bind": "/srv"}},
        )

    def _wait_for(self, name: str, condition: str) -> None:
        if condition == _HEALTHY:
            self.wait_until_healthy(name)
            return
        assert condition == _COMPLETED
        container = self.containers[name]
        assert container.wait(timeout=_RUN_ONCE_SECONDS)["StatusCode"] == 0, container.logs().decode()

    def _ports_of(self, service: Service) -> set[int]:
        """Return the ports it publishes, and those at which others look for it."""
        values = [value for other in self._services.values() for value in other.environment.values()]
        addressed = re.findall(rf"\b{service.name}:(\d+)", " ".join(values))
        return {inside for _address, _outside, inside in service.published_ports} | set(map(int, addressed))

    def _peers_translated(self, text: str) -> str:
        for (name, inside), local in self._ports.items():
            text = re.sub(rf"\b{name}:{inside}\b", f"localhost:{local}", text)
        return text

    def _translated(self, name: str, words: list[str]) -> list[str]:
        for inside in self._ports_of(self._services[name]):
            words = [re.sub(rf"\b{inside}\b", str(self.port(name, inside)), word) for word in words]
        return words

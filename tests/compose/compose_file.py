"""docker-compose.yml, read as far as its services can be run without Docker."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Service:
    """One service, with Compose's short forms resolved."""

    name: str
    settings: Mapping[str, Any]

    @property
    def image(self) -> str:
        return str(self.settings["image"])

    @property
    def command(self) -> list[str]:
        return [_plain(word) for word in self.settings["command"]]

    @property
    def environment(self) -> dict[str, str]:
        """Variables with a value; those without one come from the caller's shell."""
        given = self.settings.get("environment", {})
        return {name: _plain(value) for name, value in given.items() if value is not None}

    @property
    def check(self) -> list[str]:
        """The health check as a command."""
        kind, *words = self.settings["healthcheck"]["test"]
        return [_plain(word) for word in words] if kind == "CMD" else ["sh", "-c", _plain(words[0])]

    @property
    def volumes(self) -> dict[str, str]:
        """Named volumes, each with its place in the container."""
        return dict(mount.split(":")[:2] for mount in self.settings.get("volumes", []))

    @property
    def published_ports(self) -> list[tuple[str, int, int]]:
        """(address, port outside, port inside) of each."""
        split = [mapping.rsplit(":", 2) for mapping in self.settings.get("ports", [])]
        return [(address, int(outside), int(inside)) for address, outside, inside in split]

    @property
    def needs(self) -> dict[str, str]:
        """The services that come first, each with the condition to wait for."""
        return {name: need["condition"] for name, need in self.settings.get("depends_on", {}).items()}

    @property
    def runs_once(self) -> bool:
        return bool(self.settings.get("restart") == "no")

    @property
    def grace_seconds(self) -> float:
        return seconds(self.settings["stop_grace_period"])


def read_compose_file() -> dict[str, Any]:
    """Return the file as it is written."""
    content: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return content


def services() -> dict[str, Service]:
    """Return all services by name."""
    return {name: Service(name, settings) for name, settings in read_compose_file()["services"].items()}


def in_start_order(*names: str) -> Iterator[Service]:
    """Yield these services (all, if none is named), each after those it needs."""
    known = services()
    seen: set[str] = set()

    def with_needs(name: str) -> Iterator[Service]:
        if name not in seen:
            seen.add(name)
            for needed in known[name].needs:
                yield from with_needs(needed)
            yield known[name]

    for name in names or known:
        yield from with_needs(name)


def seconds(duration: str) -> float:
    """Convert Compose's `1m30s`."""
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smh])", duration))


def _plain(value: object) -> str:
    """Resolve what Compose would, as if nothing were set: `$$` and `${NAME:-default}`."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)).replace("$$", "\0")
    if "$" in text:
        raise ValueError(f"a variable that Compose would fill in: {value}")
    return text.replace("\0", "$")

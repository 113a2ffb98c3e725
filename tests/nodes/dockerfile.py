"""The few lines of a Dockerfile that say how its image starts."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True)
class Image:
    """What a container inherits from its image."""

    name: str
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "/"


def read_dockerfile(
    path: Path, *, name: str, arguments: Mapping[str, str] | None = None, target: str | None = None
) -> Image:
    """Read the image's start from the file; everything it would install is ignored."""
    reader = _Reader(dict(arguments or {}))
    for instruction, rest in _instructions(path.read_text()):
        if instruction == "FROM" and target is not None and reader.stage == target:
            break
        reader.read(instruction, rest)
    return replace(reader.image, name=name)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    without_comments = re.sub(r"(?m)^\s*#.*\n?", "", text)
    for line in re.sub(r"\\\n", " ", without_comments).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        yield instruction.upper(), rest.strip()


class _Reader:
    def __init__(self, arguments: dict[str, str]) -> None:
        self.image = Image(name="")
        self.stage = ""
        self._stages: dict[str, Image] = {}
        self._given = arguments
        self._known: dict[str, str] = {}

    def read(self, instruction: str, rest: str) -> None:
        match instruction:
            case "FROM":
                self._start_stage(rest)
            case "ARG":
                name, _, default = rest.partition("=")
                self._known[name] = self._given.get(name, self._expand(default.strip("\"'")))
            case "ENV":
                self._set_environment(rest)
            case "WORKDIR":
                self.image = replace(self.image, directory=self._expand(rest))
            case "CMD":
                self.image = replace(self.image, command=self._words(rest))
            case "ENTRYPOINT":
                self.image = replace(self.image, entrypoint=self._words(rest))

    def _start_stage(self, rest: str) -> None:
        self._stages[self.stage] = self.image
        base, *alias = rest.split()  # base [AS name]; a base may be an earlier stage
        self.stage = alias[-1] if alias else ""
        inherited = self._stages.get(base, Image(name=""))
        self.image = replace(inherited, environment=dict(inherited.environment))

    def _set_environment(self, rest: str) -> None:
        old_form = "=" not in rest.split(maxsplit=1)[0]  # ENV NAME all the rest
        for pair in [rest.replace(" ", "=", 1)] if old_form else shlex.split(rest):
            name, _, value = pair.partition("=")
            self.image.environment[name] = self._expand(value)

    def _words(self, rest: str) -> list[str]:
        if rest.startswith("["):  # exec form: no shell, so nothing is expanded
            return [str(word) for word in json.loads(rest)]
        return [self._expand(word) for word in shlex.split(rest)]

    def _expand(self, text: str) -> str:
        values = {**self._known, **self.image.environment}
        return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: values.get(found[1] or found[2], ""), text)

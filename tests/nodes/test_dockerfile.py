"""How an image starts, read from its Dockerfile."""

from pathlib import Path

import pytest

from tests.nodes.dockerfile import Image, read_dockerfile

TWO_STAGES = """
ARG PYTHON=3.13
FROM python:$PYTHON AS build
ENV PATH=/venv/bin COLOUR=amber
WORKDIR /src
RUN pip install \\
      something
FROM build AS run
# CMD ["commented", "out"]
ARG LEVEL="INFO"
ENV NAME worker one
ENV LOG_LEVEL=${LEVEL}
WORKDIR /srv
ENTRYPOINT ["tini", "--"]
CMD celery -A app worker \\
    --loglevel=$LOG_LEVEL
"""


@pytest.fixture
def dockerfile(tmp_path: Path) -> Path:
    return tmp_path / "Dockerfile"


def test_the_last_stage_says_how_the_image_starts(dockerfile: Path) -> None:
    dockerfile.write_text(TWO_STAGES)
    assert read_dockerfile(dockerfile, name="us/app:1") == Image(
        name="us/app:1",
        entrypoint=["tini", "--"],
        command=["celery", "-A", "app", "worker", "--loglevel=INFO"],
        environment={
            "PATH": "/venv/bin",
            "COLOUR": "amber",
            "NAME": "worker one",
            "LOG_LEVEL": "INFO",
        },
        directory="/srv",
    )


def test_a_build_argument_replaces_its_default(dockerfile: Path) -> None:
    dockerfile.write_text(TWO_STAGES)
    image = read_dockerfile(dockerfile, name="app", arguments={"LEVEL": "DEBUG"})
    assert image.command[-1] == "--loglevel=DEBUG"


def test_a_target_ends_the_build_at_that_stage(dockerfile: Path) -> None:
    dockerfile.write_text(TWO_STAGES)
    image = read_dockerfile(dockerfile, name="app", target="build")
    assert (image.directory, image.command) == ("/src", [])
    assert image.environment == {"PATH": "/venv/bin", "COLOUR": "amber"}


def test_the_exec_form_is_not_expanded(dockerfile: Path) -> None:
    dockerfile.write_text('FROM python:3\nENV NAME=x\nCMD ["echo", "$NAME"]\n')
    assert read_dockerfile(dockerfile, name="app").command == ["echo", "$NAME"]

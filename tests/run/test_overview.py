import io
import re
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from tasks.facts import State
from tasks.running import overview


def text(*things: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(*things, sep="\n", soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_counts_of_a_run_are_shown_and_nothing_else_of_it() -> None:
    result = {"worked": 3, "backlog": 0, "done": True, "model": "offline"}
    outcome = {"job": "curation", "state": "SUCCESS", "result": result}
    assert text(overview.how_it_ended(outcome)) == "curation just now: 3 worked, 0 backlog\n"


def test_a_run_that_takes_long_is_not_called_a_failure() -> None:
    shown = text(overview.how_it_ended({"job": "curation", "state": "STARTED", "result": None}))
    assert "not finished (STARTED); it goes on" in shown


def test_a_failed_run_says_why() -> None:
    shown = text(
        overview.how_it_ended({"job": "curation", "state": "FAILURE", "result": "ValueError: [no] model"})
    )
    assert "ended as FAILURE: ValueError: [no] model" in shown


def test_a_folder_that_is_just_being_used_needs_no_details() -> None:
    assert "already running in /tmp/data;" in text(*overview.what_runs_already([], Path("/tmp/data")))  # noqa: S108


def test_the_command_for_the_jobs_can_be_pasted_as_it_stands(redis_url: str) -> None:
    places = overview.Places("http://127.0.0.1:5555", "http://127.0.0.1:8080", "", "", Path(".dev"))
    shown = text(*overview.where_to_look({"REDIS_URL": redis_url}, places))
    command = re.search(r"the jobs +(.*)", shown)
    assert command
    done = subprocess.run(command[1], shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.returncode == 0, done.stderr
    assert "curation" in done.stdout


def test_the_web_apps_own_secret_is_shown_and_a_given_one_is_not() -> None:
    def shown(secret: str) -> str:
        places = overview.Places("http://127.0.0.1:5555", "http://127.0.0.1:8080", "", secret, Path(".dev"))
        return text(*overview.where_to_look({}, places))

    assert "http://127.0.0.1:8080/  any user, password: made-for-this-machine" in shown(
        "made-for-this-machine"
    )
    assert "password: that of CRON_SECRET" in shown("")


def test_the_few_answers_shown_are_not_all_alike() -> None:
    many = [{"ingredient": f"water {number}", "state": "no trigger known"} for number in range(30)]
    shown = text(overview.some_answers([*many, {"ingredient": "wheat", "state": "avoid"}]))
    assert "31 answers so far" in shown
    assert re.search(r"wheat +avoid", shown)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_word_of_an_answer_is_whole_in_a_narrow_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    reason = "gluten unknown; FODMAP unknown; lactose depends on the product, and on more than that"
    names = ("salt", "a long name of an ingredient (with, its, own, parts)", "wheat")
    answers = [
        {"ingredient": name, "state": str(state), "reason": reason} for name in names for state in State
    ]
    console.print(overview.some_answers(answers))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for state in State:
        assert shown.count(f" {state} ") == len(names)


def test_a_receiver_elsewhere_has_no_place_here() -> None:
    def shown(receiver: str) -> str:
        places = overview.Places("http://127.0.0.1:5555", "http://127.0.0.1:8080", receiver, "", Path())
        return text(*overview.where_to_look({}, places))

    assert "http://127.0.0.1:8090/" in shown("http://127.0.0.1:8090")
    assert "announced" not in shown("")

"""The judge of fault runs finds every kind of broken promise, and nothing in a history that keeps them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes.waiting import wait_until
from tests.support.history import (
    FENCES_GROW,
    NO_STALE_WRITE,
    NO_TRIGGER_LOST,
    OLD_TERM_IS_OVER,
    ONE_HOLDER,
    ONE_OUTCOME,
    TRUE_RECORD,
    Event,
    Reader,
    judge,
)


class Story(list[Event]):
    """A history in the making: one event a second unless it says when."""

    def add(self, kind: str, run: str = "", said: str = "", name: str = "job", **about: float) -> "Story":
        """Append an event; a run is known by its letter, which is its token, its task and its fence."""
        at = about.pop("at", float(len(self)))
        fence = int(about.pop("fence", ord(run) if run else 0))
        until = about.pop("until", at)
        number = int(about.pop("number", len(self)))
        self.append(Event(kind, name, at, until, f"task {run}", fence, run, said, number))
        return self

    def run(self, run: str, *, said: str = "ran") -> "Story":
        """A whole run, as it should be."""
        self.add("sent", run).add("granted", run).add("entered", run).add("sample", run, "trusted")
        self.add("wrote", run, "accepted").add("renewed", run, "renewed").add("sample", run, "trusted")
        return self.add("left", run, "returned").add("released", run, said).add("recorded", run, said)

    def taken_over(self) -> "Story":
        """Run A is cut off, B takes over, A wakes up and learns that."""
        self.add("sent", "A").add("granted", "A").add("entered", "A").add("sample", "A", "trusted")
        self.add("sample", "A", "suspect").add("sent", "B").add("recorded", "A", "abandoned")
        self.add("granted", "B").add("entered", "B").add("sample", "B", "trusted")
        self.add("wrote", "B", "accepted")
        self.add("sample", "A", "suspect").add("renewed", "A", "lost").add("sample", "A", "lost")
        self.add("wrote", "A", "refused").add("left", "A", "returned").add("recorded", "A", "lost")
        return self.add("sample", "B", "trusted").add("left", "B", "returned").add("recorded", "B", "ran")

    @property
    def broken(self) -> list[str]:
        """The promises that the judge found broken."""
        return [violation.promise for violation in judge(self)]


def test_a_history_of_runs_one_after_the_other_is_good() -> None:
    assert Story().run("A").run("B").run("C", said="failed").broken == []


def test_a_takeover_that_everybody_noticed_in_time_is_good() -> None:
    assert Story().taken_over().broken == []


def test_nothing_at_all_is_good() -> None:
    assert judge([]) == []


def test_a_holder_that_trusts_its_lease_while_another_has_it_is_found() -> None:
    story = Story().taken_over().add("sample", "A", "trusted", at=12.5)
    [violation] = judge(story)
    assert violation.promise == ONE_HOLDER
    assert violation.what == (
        "fence 65 was trusted 1 times after fence 66 had been granted, the last time 5.500 s after"
    )


def test_trust_that_may_have_come_before_the_next_grant_is_not_held_against_anybody() -> None:
    assert Story().taken_over().add("sample", "A", "trusted", at=6.5, until=12).broken == []


def test_a_grant_that_left_no_trace_but_the_body_counts() -> None:
    story = Story().taken_over()
    story = Story(event for event in story if (event.kind, event.fence) != ("granted", ord("B")))
    assert story.add("sample", "A", "trusted", at=8.5).broken == [ONE_HOLDER]


def test_overlapping_leases_of_different_names_are_nobodys_business() -> None:
    story = Story().add("granted", "A", name="one").add("granted", "B", name="other")
    assert story.add("sample", "A", "trusted", name="one").broken == []


@pytest.mark.parametrize("name", ["", "job"])
def test_an_overlap_across_a_loss_of_data_is_forgiven(name: str) -> None:
    story = Story().taken_over().add("sample", "A", "trusted", at=12.5)
    story.append(Event("data_lost", name, 5.2, 5.8))
    assert story.broken == []


@pytest.mark.parametrize(("name", "at"), [("other", 5.2), ("", 0.5), ("", 8.0)])
def test_a_loss_of_data_elsewhere_or_at_another_time_excuses_nothing(name: str, at: float) -> None:
    story = Story().taken_over().add("sample", "A", "trusted", at=12.5)
    story.append(Event("data_lost", name, at, at))
    assert story.broken == [ONE_HOLDER]


@pytest.mark.parametrize("fence", [64, 65])
def test_a_fence_that_does_not_grow_is_found(fence: int) -> None:
    story = Story().add("granted", "A").add("granted", "B", fence=fence)
    assert story.broken == [FENCES_GROW]


def test_fences_that_go_back_are_found_across_a_loss_of_data_too() -> None:
    story = Story().add("granted", "B")
    story.append(Event("data_lost", "", 1, 1))
    assert story.add("granted", "A").broken == [FENCES_GROW]


def test_grants_that_were_asked_for_at_the_same_time_may_come_in_either_order() -> None:
    assert Story().add("granted", "B", at=1, until=3).add("granted", "A", at=2, until=4).broken == []


def test_the_same_grant_twice_is_a_repeated_answer() -> None:
    assert Story().add("granted", "A").add("granted", "A").broken == []


@pytest.mark.parametrize("said", ["renewed", "retaken"])
def test_a_renewal_of_a_lease_that_another_has_is_found(said: str) -> None:
    assert Story().taken_over().add("renewed", "A", said, at=15.5).broken == [OLD_TERM_IS_OVER]


def test_a_write_of_an_older_fence_that_lands_is_found() -> None:
    assert Story().taken_over().add("wrote", "A", "accepted").broken == [NO_STALE_WRITE]


def test_it_is_the_order_in_the_data_that_counts() -> None:
    assert Story().taken_over().add("wrote", "A", "accepted", number=3).broken == []


def test_a_write_under_a_borrowed_fence_is_found() -> None:
    assert Story().taken_over().add("wrote", "Z", "accepted", fence=ord("B")).broken == [NO_STALE_WRITE]


def test_a_trigger_without_an_outcome_is_found() -> None:
    assert Story().run("A").add("sent", "B").broken == [NO_TRIGGER_LOST]
    assert Story().run("A").add("sent", "B").add("state", "B", "SUCCESS").broken == [NO_TRIGGER_LOST]
    assert Story().add("sent", "A").add("recorded", "A", "retried").broken == [NO_TRIGGER_LOST]


@pytest.mark.parametrize("said", ["skipped_locked", "skipped_lock_unavailable", "skipped_already_done"])
def test_a_skip_is_an_outcome(said: str) -> None:
    assert Story().add("sent", "A").add("recorded", "A", said, fence=0).broken == []


@pytest.mark.parametrize("state", ["SKIPPED", "REVOKED", "FAILURE"])
def test_a_trigger_that_never_had_a_lease_may_end_in_a_state_alone(state: str) -> None:
    assert Story().add("sent", "A").add("state", "A", state).broken == []


@pytest.mark.parametrize("state", ["SKIPPED", "REVOKED", "FAILURE"])
def test_one_that_had_a_lease_may_not(state: str) -> None:
    story = Story().add("sent", "A").add("granted", "A").add("entered", "A").add("left", "A", "raised")
    assert story.add("state", "A", state).broken == [NO_TRIGGER_LOST]


def test_where_the_ledger_was_lost_too_the_state_alone_is_enough() -> None:
    story = Story().add("sent", "A").add("state", "A", "SUCCESS")
    story.append(Event("data_lost", "", 5, 5))
    assert story.broken == []
    assert Story([*Story().add("sent", "A"), Event("data_lost", "", 5, 5)]).broken == [NO_TRIGGER_LOST]


@pytest.mark.parametrize(("fence", "said"), [(66, "ran"), (66, "failed"), (0, "skipped_locked")])
def test_a_trigger_that_ends_twice_is_found(fence: int, said: str) -> None:
    story = Story().run("A").add("recorded", "A", said, fence=fence)
    assert story.broken == [ONE_OUTCOME]


@pytest.mark.parametrize("came_to_nothing", ["abandoned", "lost", "retried"])
def test_an_attempt_that_came_to_nothing_may_be_followed_by_another(came_to_nothing: str) -> None:
    story = Story().add("sent", "A").add("recorded", "A", came_to_nothing)
    assert story.add("recorded", "A", "ran", fence=66).broken == []


def test_of_a_run_the_last_record_counts() -> None:
    story = Story().run("A").add("recorded", "A", "failed")
    assert story.broken == []
    story = Story().add("sent", "A").add("recorded", "A", "abandoned").add("recorded", "A", "ran")
    assert story.broken == []


def test_a_record_of_a_body_that_never_returned_is_found() -> None:
    story = Story().add("sent", "A").add("granted", "A").add("entered", "A").add("sample", "A", "trusted")
    assert story.add("recorded", "A", "ran").broken == [TRUE_RECORD]


def test_what_a_killed_process_wrote_down_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, tests.support.recording as r; w = r.Recorder(pathlib.Path(sys.argv[1]))\n"
        "while True: w.record('sample', 'job', said='trusted')"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    reader = Reader(tmp_path)
    wait_until(lambda: len(reader.events()) > 100)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    [file] = tmp_path.iterdir()
    whole = Reader(tmp_path).events()
    assert reader.events() == whole
    assert [event.at for event in whole] == sorted(event.at for event in whole)
    with file.open("a") as end:
        end.write('{"kind": "sample", "na')
    assert len(reader.events()) == len(whole)
    with file.open("a") as end:
        end.write('me": "other"}\n')
    assert reader.events()[-1].name == "other"

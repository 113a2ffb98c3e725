"""What one beat sends, and when; its clock is set by the tests."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.beat import ScheduleEntry
from celery.schedules import crontab

from celery_lease import LeasedTask, LeaseError, beat
from tests.beat.conftest import START, Beat, slot_of
from tests.support.leases import make_app
from tests.support.servers import Server

MakeBeat = Callable[..., Beat]

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EVERY_MINUTE = {"task": "job", "schedule": 60}


def expiry_of(headers: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(headers["expires"])


def slot_time(headers: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(headers["lease_slot"], UTC)


def test_a_message_says_which_slot_of_which_entry_it_is_for(make_beat: MakeBeat) -> None:
    one = make_beat(
        {"every minute": EVERY_MINUTE, "hourly": {"task": "plain", "schedule": crontab(minute=1)}}
    )
    one.tick()
    one.tick(MINUTE)
    stamps = {headers["task"]: (headers["lease_entry"], headers["lease_slot"]) for headers in one.headers()}
    minute = int(datetime(2026, 9, 14, 12, 1, tzinfo=UTC).timestamp())
    assert stamps == {"job": ("every minute", minute), "plain": ("hourly", minute)}


def test_the_entry_itself_is_not_stamped(make_beat: MakeBeat) -> None:
    options = {"headers": {"of": "the user"}, "serializer": "json"}
    one = make_beat({"entry": {**EVERY_MINUTE, "options": options}})
    one.tick()
    one.tick(MINUTE)
    one.tick(MINUTE)
    assert one.scheduler.schedule["entry"].options == {"headers": {"of": "the user"}, "serializer": "json"}
    assert options == {"headers": {"of": "the user"}, "serializer": "json"}
    first, second = one.headers()
    assert (first["of"], second["of"]) == ("the user", "the user")
    assert second["lease_slot"] == first["lease_slot"] + 60


def test_an_interval_is_kept_on_the_grid_whenever_the_beat_was_started(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": EVERY_MINUTE})
    assert one.tick() == []
    assert one.tick(29 * SECOND) == []
    assert one.tick(SECOND) == ["12:01:00"]
    assert one.tick(59 * SECOND) == []
    assert one.tick(4 * SECOND) == ["12:02:00"]
    assert one.tick(57 * SECOND) == ["12:03:00"]


def test_the_next_look_is_when_something_is_due(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": {"task": "job", "schedule": 2}}, now=START)
    one.now += timedelta(milliseconds=500)
    assert one.scheduler.tick() == pytest.approx(1.5)


def test_nothing_is_sent_for_the_time_before_the_first_start(make_beat: MakeBeat) -> None:
    one = make_beat({"daily": {"task": "job", "schedule": crontab(0, 3)}, "entry": EVERY_MINUTE})
    assert one.tick() == []


def test_a_message_for_a_leased_task_expires_at_the_next_slot(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": {"task": "job", "schedule": crontab(minute="1,5")}})
    one.tick()
    one.tick(MINUTE)
    [headers] = one.headers()
    assert expiry_of(headers) == datetime(2026, 9, 14, 12, 5, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_the_expiry_does_not_depend_on_the_time_zone(make_beat: MakeBeat, zone: str) -> None:
    one = make_beat({"entry": EVERY_MINUTE}, timezone=zone)
    one.tick()
    one.tick(MINUTE)
    [headers] = one.headers()
    assert expiry_of(headers) == slot_time(headers) + MINUTE


def test_an_entry_may_say_itself_for_how_long_its_message_is_good(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": {**EVERY_MINUTE, "options": {"expires": 90}}})
    one.tick()
    one.tick(MINUTE + 20 * SECOND)
    [headers] = one.headers()
    assert expiry_of(headers) - slot_time(headers) == 90 * SECOND, "counted from the slot"


@pytest.mark.parametrize(("left", "expected"), [(HOUR, MINUTE), (50 * SECOND, 20 * SECOND)])
def test_an_entry_that_ends_at_some_time_sends_nothing_that_is_good_for_longer(
    make_beat: MakeBeat, left: timedelta, expected: timedelta
) -> None:
    one = make_beat({"entry": {**EVERY_MINUTE, "options": {"expires": START + left}}})
    one.tick()
    one.tick(MINUTE - 29 * SECOND)
    [headers] = one.headers()
    assert expiry_of(headers) - slot_time(headers) == expected


def test_a_message_for_another_task_has_only_the_stamps(make_beat: MakeBeat) -> None:
    plain = {"task": "plain", "schedule": 60, "args": [1]}
    one = make_beat(
        {"entry": plain, "limited": {**plain, "options": {"expires": 90}}, "unknown": {**plain, "task": "x"}}
    )
    one.tick()
    one.tick(MINUTE)
    by_entry = {headers["lease_entry"]: headers for headers in one.headers()}
    assert by_entry["entry"]["expires"] is None
    assert by_entry["unknown"]["expires"] is None
    sent_at = START + MINUTE
    assert abs(expiry_of(by_entry["limited"]) - sent_at - 90 * SECOND) < SECOND, (
        "as Celery has it: from the sending"
    )


def restart(make_beat: MakeBeat, before: Beat, later: timedelta) -> Beat:
    """Another beat takes over with the same schedule, after some time without any."""
    before.die()
    return make_beat(before.app.conf.beat_schedule, now=before.now + later)


def test_the_next_beat_sends_the_slot_that_was_missed(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": EVERY_MINUTE})
    one.tick()
    assert one.tick(MINUTE) == ["12:01:00"]
    two = restart(make_beat, one, 50 * SECOND)
    assert two.tick() == ["12:02:00"]
    assert two.tick() == []
    assert two.tick(MINUTE) == ["12:03:00"]


def test_a_slot_missed_before_anything_was_ever_sent_is_sent_too(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": EVERY_MINUTE})
    assert one.tick() == []
    two = restart(make_beat, one, MINUTE)
    assert two.tick() == ["12:01:00"]


def test_what_was_missed_longer_ago_has_expired(
    make_beat: MakeBeat, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_beat({"entry": EVERY_MINUTE})
    one.tick()
    two = restart(make_beat, one, 10 * MINUTE)
    assert two.tick() == ["12:10:00"]
    assert "slots of 'entry', from 2026-09-14 12:01:00+00:00 on, were missed and are over" in caplog.text


def test_all_missed_slots_that_have_not_expired_are_sent_oldest_first(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": {**EVERY_MINUTE, "options": {"expires": 180}}})
    one.tick()
    two = restart(make_beat, one, 10 * MINUTE)
    assert two.tick() == ["12:08:00", "12:09:00", "12:10:00"]


def test_a_missed_slot_that_has_expired_is_not_sent(
    make_beat: MakeBeat, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_beat({"entry": {**EVERY_MINUTE, "options": {"expires": 20}}})
    one.tick()
    two = restart(make_beat, one, 10 * MINUTE)
    assert two.tick() == []
    assert two.tick() == []
    assert caplog.text.count("were missed and are over") == 1
    assert two.tick(30 * SECOND) == ["12:11:00"]


def test_of_a_task_without_expiry_the_latest_missed_slot_is_sent(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": {"task": "plain", "schedule": crontab()}})
    one.tick()
    two = restart(make_beat, one, timedelta(days=400))
    assert two.tick() == ["12:00:00"]
    assert two.tick() == []


def test_a_slot_within_a_second_is_not_repeated_by_the_next_beat(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": {"task": "job", "schedule": 1.5}})
    one.tick()
    assert one.tick(1.6 * SECOND) == ["12:00:31"]  # and a half
    two = restart(make_beat, one, 0 * SECOND)
    assert two.tick() == []
    assert two.tick(1.5 * SECOND) == ["12:00:33"]


def test_a_clock_that_is_set_back_repeats_no_slot(make_beat: MakeBeat) -> None:
    one = make_beat({"entry": EVERY_MINUTE})
    one.tick()
    assert one.tick(MINUTE) == ["12:01:00"]
    assert one.tick(-MINUTE) == []
    assert one.tick(MINUTE) == []
    assert one.tick(MINUTE) == ["12:02:00"]


@pytest.mark.parametrize("day", ["2026-10-25", "2026-03-29"])
def test_a_night_of_the_clock_change_loses_and_repeats_nothing(make_beat: MakeBeat, day: str) -> None:
    one = make_beat(
        {
            "quarters": {"task": "job", "schedule": crontab(minute="*/15")},
            "interval": {"task": "job", "schedule": 20 * 60},
            "nightly": {"task": "job", "schedule": crontab(30, 2)},
            "plain": {"task": "plain", "schedule": crontab(minute="*/15")},
        },
        timezone="Europe/Berlin",
        now=datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=UTC) - HOUR,
    )
    for _ in range(5 * 12 + 1):
        one.tick()
        one.now += 5 * MINUTE
    by_entry: dict[str, list[str]] = {}
    for message in one.messages():
        by_entry.setdefault(message["headers"]["lease_entry"], []).append(slot_of(message))
    quarters, thirds = every(15 * MINUTE), every(20 * MINUTE)
    nightly = ["00:30:00"] if day.startswith("2026-10") else ["01:30:00"]
    assert by_entry == {"quarters": quarters, "plain": quarters, "interval": thirds, "nightly": nightly}


def every(step: timedelta) -> list[str]:
    """Five hours from 23:00 in steps, without the first."""
    begin = datetime(2026, 1, 1, 23, tzinfo=UTC)
    return [(begin + step * n).strftime("%H:%M:%S") for n in range(1, 5 * HOUR // step + 1)]


def test_what_could_not_be_sent_is_sent_a_little_later(
    make_beat: MakeBeat, start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beat, "_REST_SECONDS", 0.0)
    broker = start_server(persistent=True)
    one = make_beat({"entry": EVERY_MINUTE}, broker_url=broker.url, task_publish_retry=False)
    one.tick()
    assert one.tick(MINUTE) == ["12:01:00"]
    broker.stop()
    one.now += MINUTE
    one.scheduler.tick()
    broker.start()
    assert one.tick(SECOND) == ["12:02:00"]
    assert one.tick(SECOND) == []


class Broken(ScheduleEntry):
    """An entry that cannot tell when it is due."""

    def is_due(self) -> Any:
        raise ValueError("on purpose")


def test_an_entry_that_cannot_be_served_does_not_stop_the_others(
    make_beat: MakeBeat, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_beat({"entry": EVERY_MINUTE})
    broken = Broken(name="broken", task="job", schedule=60, app=one.app)  # type: ignore[arg-type]
    one.scheduler.schedule = {"broken": broken, **one.scheduler.schedule}
    one.tick()
    assert one.tick(MINUTE) == ["12:01:00"]
    assert caplog.text.count("entry 'broken' cannot be served") == 1, "it is left alone for a while"


def drum() -> None:
    """A task whose lease would be beat's own."""


def test_the_name_of_the_beats_lease_is_refused_for_a_task(redis_url: str) -> None:
    app = make_app(redis_url)
    app.task(name="drum", base=LeasedTask, lease="beat", shared=False)(drum)
    with pytest.raises(LeaseError, match="lease 'beat' of task 'drum'"):
        beat.LeasedScheduler(app)
    app.close()


def test_a_misspelt_setting_is_refused_at_the_start(make_beat: MakeBeat) -> None:
    with pytest.raises(LeaseError, match="did you mean 'lease_url'"):
        make_beat({}, lease_urls="redis://localhost")

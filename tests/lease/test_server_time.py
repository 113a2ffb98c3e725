"""The clock in common.lua: microseconds, and the same instant for people, for every day that there is."""

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

COMMON = (files("celery_lease") / "lua" / "common.lua").read_text()
ASKS = "redis.call('TIME')"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The first microsecond that a number of Lua cannot hold exactly: in the year 2255.
END = EPOCH + timedelta(microseconds=2**53 - 1)

instants = st.datetimes(EPOCH.replace(tzinfo=None), END.replace(tzinfo=None)).map(
    lambda moment: moment.replace(tzinfo=UTC)
)


def micros_of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def iso_of(micros: int) -> str:
    moment = EPOCH + timedelta(microseconds=micros)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_the_script_says(client: Any, moments: list[datetime]) -> list[tuple[int, str]]:
    """What `server_time` returns when the server's clock shows these instants."""
    assert COMMON.count(ASKS) == 1, "there is one place that reads the clock"
    script = f"""
        local shown
        {COMMON.replace(ASKS, "shown")}
        local said = {{}}
        for i = 1, #ARGV, 2 do
            shown = {{ARGV[i], ARGV[i + 1]}}
            local micros, iso = server_time()
            said[#said + 1] = string.format('%.0f', micros)
            said[#said + 1] = iso
        end
        return said
    """
    arguments = [part for moment in moments for part in divmod(micros_of(moment), 1_000_000)]
    said: Any = client.eval(script, 0, *arguments)
    return list(zip(map(int, said[::2]), said[1::2], strict=True))


def expected(moments: list[datetime]) -> list[tuple[int, str]]:
    return [(micros_of(moment), iso_of(micros_of(moment))) for moment in moments]


def test_the_scripts_read_the_servers_own_clock(client: Any) -> None:
    asks = COMMON + "\nlocal micros, iso = server_time()\nreturn {string.format('%.0f', micros), iso}"

    def now() -> int:
        seconds, micros = client.time()
        return int(seconds) * 1_000_000 + int(micros)

    for _ in range(50):
        before = now()
        micros, iso = client.eval(asks, 0)
        assert before <= int(micros) <= now()
        assert iso == iso_of(int(micros))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moments=st.lists(instants, min_size=1, max_size=50))
def test_any_instant_is_the_date_that_the_calendar_says(client: Any, moments: list[datetime]) -> None:
    assert as_the_script_says(client, moments) == expected(moments)


def test_every_day_of_four_hundred_years_is_the_date_that_the_calendar_says(client: Any) -> None:
    days = [EPOCH + timedelta(days=day) for day in range(400 * 366)]
    for first in range(0, len(days), 3000):
        some = days[first : first + 3000]
        assert as_the_script_says(client, some) == expected(some)


@pytest.mark.parametrize(
    "written",
    [
        "1970-01-01T00:00:00.000Z",
        "2000-02-29T23:59:59.999Z",
        "2000-03-01T00:00:00.000Z",
        "2024-02-29T12:00:00.000Z",
        "2026-09-14T12:15:03.123Z",
        "2100-02-28T23:59:59.999Z",
        "2100-03-01T00:00:00.000Z",
        "2400-02-29T00:00:00.001Z",
        "9999-12-31T23:59:59.999Z",
    ],
)
def test_the_ends_of_february_and_of_years_are_written_out_right(client: Any, written: str) -> None:
    [(_, said)] = as_the_script_says(client, [datetime.fromisoformat(written)])
    assert said == written

"""Months in UTC: where they begin, when they are closed."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tasks.periods import BadPeriod, Period, closed, latest_closed
from tests.app.months import at

SECOND = timedelta(seconds=1)


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_a_month_is_what_lies_between_two_first_moments_in_utc_wherever_the_machine_is(zone: str) -> None:
    period = Period(2000, 1)
    moment = datetime(2000, 1, 1, tzinfo=UTC)
    while period < Period(2099, 12):
        assert period.begins == moment
        for inside in (period.begins, period.ends - SECOND):
            assert Period.of(inside.isoformat(timespec="seconds")) == period
        assert period.next.previous == period
        moment, period = period.ends, period.next


@pytest.mark.parametrize(
    ("period", "ends", "closes"),
    [
        ("2024-02", "2024-03-01", "2024-03-02"),  # 29 days
        ("2023-02", "2023-03-01", "2023-03-02"),
        ("2025-12", "2026-01-01", "2026-01-02"),
        ("2026-03", "2026-04-01", "2026-04-02"),  # the clocks change
    ],
)
def test_a_month_is_closed_a_day_after_it_is_over(zone: str, period: str, ends: str, closes: str) -> None:
    month = Period.parse(period)
    assert (month.ends, month.closes) == (at(ends), at(closes))
    assert closed(month, at(closes) - SECOND) == []
    assert closed(month, at(closes)) == [month]
    assert latest_closed(at(closes)) == month
    assert latest_closed(at(closes) - SECOND) == month.previous


def test_closed_months_come_oldest_first() -> None:
    found = closed(Period(2025, 11), at("2026-03-01T12:00:00"))
    assert [str(period) for period in found] == ["2025-11", "2025-12", "2026-01"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026",
        "2026-1",
        "2026-00",
        "2026-13",
        "2026-10-01",
        "26-10",
        "1999-12",
        "2100-01",
        "٢٠٢٦-10",
        "2026-10\n",
    ],
)
def test_what_is_no_month_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadPeriod, match="write year and month: 2026-10") as refused:
        Period.parse(text)
    assert repr(text) in str(refused.value)

"""The incident of 2026-09-14 in compressed time: the lock of that day and a lease, side by side, live.

    python benchmarks/incident.py [PICTURE.svg]

A job that is due every 15 minutes is run by a real worker, once under a Redis lock that lives as long as the
job's worst case (three hours) and once under a lease. The run of 12:15 is cancelled by hand: Celery's
`revoke(terminate=True)` with SIGKILL, so that no `finally` runs.

A quarter of an hour lasts 3 s, and the lease of 5 minutes is 1 s. So is its grace, which is 10 s in reality:
the replay is harder on the lease than the day was.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script

import redis
from celery.result import AsyncResult

from benchmarks._incident_jobs import app
from tests.nodes.recipes import redis_server
from tests.nodes.sessions import Reaper
from tests.nodes.waiting import wait_until
from tests.support.servers import Server
from tests.support.workers import Worker

ROOT = Path(__file__).resolve().parents[1]
TICK_SECONDS = 3.0
TICKS = 15
CANCELLED = 1
NOON = datetime(2026, 9, 14, 12, 0)  # noqa: DTZ001 - a label
QUARTER = timedelta(minutes=15)
JOBS = ("old_lock", "lease")


class Tick(NamedTuple):
    """What became of one run."""

    at: str
    state: str
    worked: bool


def replay(server: Server, worker_log: Path, reaper: Reaper) -> dict[str, list[Tick]]:
    """Run both jobs through the day; what became of every run."""
    environment = {
        "INCIDENT_URL": server.url,
        "INCIDENT_LOCK_SECONDS": str(TICK_SECONDS * 12.5),  # on that day, too, a bit more than twelve ticks
        "INCIDENT_RUN_SECONDS": str(TICK_SECONDS / 3),
        "PYTHONPATH": str(ROOT),
    }
    app.conf.update(broker_url=server.url, result_backend=server.url)
    worker = Worker(
        "benchmarks._incident_jobs", environment, worker_log, reaper, name="incident", concurrency=4
    )
    try:
        sent = dict(_send_all())
        results = [result for row in sent.values() for result in row]
        wait_until(lambda: all(result.ready() for result in results), 30)
        with server.client() as client:
            return {
                job: [_tick(client, number, result) for number, result in enumerate(row)]
                for job, row in sent.items()
            }
    finally:
        worker.kill_tree()


def _send_all() -> Iterator[tuple[str, list[AsyncResult[Any]]]]:
    sent: dict[str, list[AsyncResult[Any]]] = {job: [] for job in JOBS}
    began = time.monotonic()
    for number in range(TICKS):
        _sleep_until(began + number * TICK_SECONDS)
        for job in JOBS:
            sent[job].append(app.send_task(job))
        if number == CANCELLED:
            runs = [sent[job][number] for job in JOBS]
            wait_until(lambda runs=runs: all(run.state == "STARTED" for run in runs))  # type: ignore[misc]
            for run in runs:
                run.revoke(terminate=True, signal="SIGKILL")
    yield from sent.items()


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _tick(client: redis.Redis, number: int, result: AsyncResult[Any]) -> Tick:
    at = f"{NOON + number * QUARTER:%H:%M}"
    return Tick(at, result.state, bool(client.sismember("worked", str(result.id))))


def lost(ticks: Sequence[Tick]) -> int:
    """Ticks without work after the one that was cancelled."""
    return sum(not tick.worked for tick in ticks[CANCELLED + 1 :])


def show(days: dict[str, list[Tick]]) -> None:
    """Print what Celery says and what was done, tick by tick."""
    print(f"{'':7}{'old lock':>24}{'lease':>26}")
    print(f"{'':7}{'Celery says':>14}{'work':>10}{'Celery says':>16}{'work':>10}")
    for old, new in zip(*days.values(), strict=True):
        done = ["done" if tick.worked else "none" for tick in (old, new)]
        print(f"{old.at:7}{old.state:>14}{done[0]:>10}{new.state:>16}{done[1]:>10}")
    counted = ", ".join(f"{job} {lost(ticks)}" for job, ticks in days.items())
    print(f"\nticks without work after the cancelled run: {counted}")


COLOURS = {
    "good": ("#2c7a52", "#ffffff"),
    "skip": ("#f3b53f", "#3a2500"),
    "bad": ("#b3261e", "#ffffff"),
    "none": ("#e7eae4", "#4d5752"),
}
SHOWN = {
    "SUCCESS": ("good", "\N{CHECK MARK}"),
    "SKIPPED": ("skip", "L"),
    "REVOKED": ("bad", "\N{MULTIPLICATION SIGN}"),
}
LEFT, CELL, ROW = 272, 46, 44


def picture(days: dict[str, list[Tick]]) -> str:
    """The same as an SVG: what was shown, and what was true."""
    old, new = days["old_lock"], days["lease"]
    rows = [
        ("Lock for three hours: Celery shows", [SHOWN.get(tick.state, ("bad", "?")) for tick in old]),
        ("and what was done", [_truth(tick) for tick in old]),
        ("Lease: Celery shows", [SHOWN.get(tick.state, ("bad", "?")) for tick in new]),
        ("and what was done", [_truth(tick) for tick in new]),
    ]
    parts = [_text(LEFT + (i + 0.5) * CELL, 58, tick.at, "axis") for i, tick in enumerate(old) if i % 2 == 0]
    for number, (label, cells) in enumerate(rows):
        y = 72 + number * ROW + (14 if number > 1 else 0)
        parts.append(_text(LEFT - 12, y + 22, label, "label"))
        parts += [_cell(LEFT + i * CELL, y, *cell) for i, cell in enumerate(cells)]
    said = (
        f"One run cancelled at 12:15. Ticks without work after it: {lost(old)} under the lock, "
        f"all shown as success; {lost(new)} under the lease."
    )
    width, height = LEFT + CELL * TICKS + 16, 72 + ROW * 4 + 34
    style = (
        "text{font:14px system-ui,'DejaVu Sans',sans-serif;fill:#1d2421}"
        ".axis{font-size:11px;text-anchor:middle;fill:#5b6661}.label{text-anchor:end}.cell{font-weight:700;text-anchor:middle}.title{font-weight:600}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(said)}"><style>{style}</style>'
        f'<rect width="{width}" height="{height}" fill="#fafaf7"/>'
        f"{_text(16, 28, said, 'title')}{''.join(parts)}</svg>\n"
    )


def _truth(tick: Tick) -> tuple[str, str]:
    return ("good", "work") if tick.worked else ("none", "none")


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _cell(x: float, y: float, colour: str, text: str) -> str:
    ground, ink = COLOURS[colour]
    middle = f'x="{x + CELL / 2 - 1:g}" y="{y + 22:g}"'
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{CELL - 2}" height="34" rx="3" fill="{ground}"/>'
        f'<text class="cell" {middle} style="fill:{ink}">{escape(text)}</text>'
    )


def main(picture_file: str = "") -> None:
    """Replay, print, and draw if there is a file to draw into."""
    reaper = Reaper()
    with tempfile.TemporaryDirectory() as directory:
        server = Server(redis_server(), Path(directory) / "server", reaper)
        try:
            days = replay(server, Path(directory) / "worker.log", reaper)
        finally:
            server.close()
            reaper.close()
    show(days)
    assert lost(days["lease"]) <= 1
    if picture_file:
        Path(picture_file).write_text(picture(days), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

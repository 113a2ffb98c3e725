"""A day with the incident in it, as a ledger: two runs cancelled by hand, and then three hours of skips."""

import random
from datetime import UTC, datetime, timedelta

import redis

from celery_lease._keys import Keys
from tests.web.past import Past, quarters

SKIPS = 12


def write_incident(client: redis.Redis, job: str, entry: str) -> None:
    """A job of every quarter of an hour: its last twelve ticks are skips under a lock of the old kind."""
    chance = random.Random(20260914)
    ticks = quarters(datetime.now(UTC), 26)
    past = Past(client, job)
    past.seen_since(ticks[0] - timedelta(days=7), entry)
    left = 4200
    for at in ticks[: -SKIPS - 2]:
        if at == ticks[40]:
            past.add(at, "failed", took=31, error="TimeoutError", worked=0)
            continue
        worked = chance.randint(20, 50)
        left -= worked
        past.add(at, took=chance.lognormvariate(3.6, 0.5), worked=worked, backlog=left)
    for at in ticks[-SKIPS - 2 : -SKIPS]:
        past.add(at, "failed", took=chance.uniform(60, 400), error="TaskRevokedError", worked=0)
    for at in ticks[-SKIPS:]:
        past.add(at + timedelta(seconds=1), "skipped_locked")
    keys = Keys("cron:", job)
    client.set(keys.lease, "1757852100")
    client.hset(keys.ledger, "judged", int(ticks[-1].timestamp()))


def write_healthy_job(client: redis.Redis, job: str) -> None:
    """A job without a schedule, whose hourly runs went well."""
    now = datetime.now(UTC)
    past = Past(client, job)
    for hours in range(20, 0, -1):
        past.add(now - timedelta(hours=hours), took=hours % 7 + 0.5)

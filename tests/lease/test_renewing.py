"""renew.lua on a real server: back to the full length for the owner, and nothing for anybody else."""

import pytest

from celery_lease._errors import StoreUnavailable
from tests.support.leases import SECONDS, Job
from tests.support.servers import Server


def milliseconds_left(job: Job) -> int:
    return int(job.client.pttl(job.keys.lease))


def test_a_renewal_sets_the_lease_back_to_its_full_length_and_never_adds_up(job: Job) -> None:
    claim, grant = job.acquire()
    job.client.pexpire(job.keys.lease, 500)
    for _ in range(3):
        assert job.renew(claim, grant) == "renewed"
        assert SECONDS * 1000 - 500 < milliseconds_left(job) <= SECONDS * 1000


def test_a_renewal_writes_down_when_it_was_and_changes_nothing_else(job: Job) -> None:
    claim, grant = job.acquire()
    before = job.held
    job.client.hset(job.keys.lease, "renewed", "long ago")
    job.renew(claim, grant)
    after = job.held
    assert after.pop("renewed") >= before.pop("renewed")
    assert after == before


def test_somebody_elses_lease_is_neither_renewed_nor_changed(job: Job) -> None:
    stale, first = job.acquire()
    job.expire()
    job.acquire()
    job.client.pexpire(job.keys.lease, 500)
    held = job.held
    assert job.renew(stale, first) == "lost"
    assert job.held == held
    assert milliseconds_left(job) <= 500


def test_a_deleted_lease_that_nobody_took_since_is_retaken_as_it_was(job: Job) -> None:
    claim, grant = job.acquire()
    before = job.held
    job.client.delete(job.keys.lease)
    assert job.renew(claim, grant) == "retaken"
    after = job.held
    assert after.pop("renewed") >= before.pop("renewed")
    assert after == before
    assert milliseconds_left(job) > SECONDS * 1000 - 500
    assert job.renew(claim, grant) == "renewed"


def test_a_lease_is_retaken_after_the_store_has_lost_everything_and_later_fences_are_higher(job: Job) -> None:
    claim, grant = job.acquire()
    job.client.flushall()
    assert job.renew(claim, grant) == "retaken"
    assert job.client.get(job.keys.fence) == str(grant.fence)
    assert job.release(claim, grant) == "ran"
    assert job.run().fence > grant.fence


def test_a_lease_that_somebody_had_in_between_is_lost_although_it_is_free_now(job: Job) -> None:
    stale, first = job.acquire()
    job.expire()
    job.run()
    assert not job.is_held()
    assert job.renew(stale, first) == "lost"
    assert not job.is_held()


def test_a_renewal_that_was_under_way_does_not_revive_a_lease_that_was_given_back(job: Job) -> None:
    claim, grant = job.acquire()
    job.release(claim, grant)
    assert job.renew(claim, grant) == "released"
    assert not job.is_held()


@pytest.mark.parametrize("command", [("SET", "mine now"), ("HSET", "owner", "other"), ("SADD", "x")])
def test_a_strangers_key_in_the_leases_place_is_another_owner(job: Job, command: tuple[str, ...]) -> None:
    claim, grant = job.acquire()
    job.client.delete(job.keys.lease)
    name, *values = command
    job.client.execute_command(name, job.keys.lease, *values)
    before = job.client.dump(job.keys.lease)
    assert job.renew(claim, grant) == "lost"
    assert job.client.dump(job.keys.lease) == before
    assert job.release(claim, grant) == "lost"
    assert job.client.dump(job.keys.lease) == before


def test_many_leases_are_renewed_at_once_and_each_gets_its_own_answer(job: Job) -> None:
    store, client = job.store, job.client
    kept, gone, stolen, broken = (Job(store, client, name) for name in ("kept", "gone", "stolen", "broken"))
    pairs = [each.acquire() for each in (kept, gone, stolen, broken)]
    gone.client.delete(gone.keys.lease)
    stolen.expire()
    stolen.acquire()
    broken.client.delete(broken.keys.lease, broken.keys.fence)
    broken.client.rpush(broken.keys.fence, "not a number")
    *answers, failed = store.renew(pairs)
    assert [getattr(answer, "answer", answer) for answer in answers] == ["renewed", "retaken", "lost"]
    assert isinstance(failed, StoreUnavailable)
    assert "WRONGTYPE" in str(failed)


def test_a_server_that_has_forgotten_the_scripts_is_taught_them_again(job: Job) -> None:
    claim, grant = job.acquire()
    for _ in range(2):
        job.client.script_flush()
        assert job.renew(claim, grant) == "renewed"
    job.client.script_flush()
    assert job.release(claim, grant) == "ran"
    job.client.script_flush()
    assert job.store.peek("job") is None


def test_no_answer_is_an_answer_for_each(job: Job, server: Server) -> None:
    claim, grant = job.acquire()
    server.stop()
    away = type(job.store)(type(job.store.settings)(**{**vars(job.store.settings), "url": server.url}))
    answers = away.renew([(claim, grant)] * 3)
    away.close()
    assert len(answers) == 3
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)

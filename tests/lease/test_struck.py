"""Soft time limits that strike anywhere in the library: no renewal stops, and no lease stays behind.

As Celery's, they are signals whose handler raises in the midst of whatever the main thread is doing. They
strike in fresh processes, where nothing else can be hit than what is looked at.
"""

import random

import pytest

from tests.support.scripts import answer_of

SETUP = """
    import json, os, random, signal, struct, sys, time

    moments = random.Random(int(sys.argv[2]))
    orders, tell = os.pipe()
    if os.fork() == 0:  # whoever strikes is outside, as the pool's parent is
        os.close(tell)
        while order := os.read(orders, 8):
            time.sleep(*struct.unpack("d", order))
            os.kill(os.getppid(), signal.SIGUSR1)
        os._exit(0)
    os.close(orders)

    import redis
    from celery import Celery
    from celery.exceptions import SoftTimeLimitExceeded
    from celery_lease import _renewer, _run, hold, LeasedTask
    from celery_lease._store import store_of

    app = Celery(broker=sys.argv[1], set_as_current=False)
    app.conf.lease_seconds = 1
    store, renewer = store_of(app), _run.renewer
    client = redis.Redis.from_url(sys.argv[1], decode_responses=True)
    sys.unraisablehook = lambda _: None  # a limit that strikes inside a destructor is dropped by Python
    came = []

    def strike(_number, _frame):
        came.append(True)
        raise SoftTimeLimitExceeded

    signal.signal(signal.SIGUSR1, strike)

    def struck_within(seconds, action):
        came.clear()
        is_over = False
        try:
            os.write(tell, struct.pack("d", moments.uniform(0, seconds)))
            action()
            is_over = True
            while not came:
                time.sleep(0.001)
        except SoftTimeLimitExceeded:
            pass
        return not is_over

    def wait_until(event, seconds=3):
        deadline = time.monotonic() + seconds
        while not event():
            assert time.monotonic() < deadline, "too late"
            time.sleep(0.002)

    def wait_for_renewals(name, count):
        for _ in range(count):
            before = client.hget("cron:{%s}" % name, "renewed")
            wait_until(lambda: client.hget("cron:{%s}" % name, "renewed") not in (before, None))

    def is_free():
        return not client.exists("cron:{job}")
"""


@pytest.fixture
def seed() -> str:
    number = random.randrange(10**6)
    print("seed", number)
    return str(number)


def test_a_limit_that_strikes_inside_the_renewer_never_stops_its_renewals(redis_url: str, seed: str) -> None:
    struck, is_trusted = answer_of(
        """
        with hold("other", app=app) as other:
            def talk():
                for _ in range(50):
                    renewer.add(other, store)
                    renewer.join(store, store.keys("job"))
                    renewer.settle(store, "", lambda: None)
            struck = sum(struck_within(3e-4, talk) for _ in range(300))
            wait_for_renewals("other", 4)
            with hold("job", app=app) as lease:
                wait_for_renewals("job", 2)
                print(json.dumps([struck, other.check() and lease.check()]))
        """,
        redis_url,
        seed,
        setup=SETUP,
    )
    assert struck > 250
    assert is_trusted


def test_a_limit_that_strikes_while_the_thread_starts_leaves_a_renewer_that_works(
    redis_url: str, seed: str
) -> None:
    is_trusted = answer_of(
        """
        _renewer._IDLE_SECONDS = 0.01
        def take():
            with hold("job", app=app):
                pass
        for _ in range(100):
            wait_until(is_free)
            time.sleep(0.02)
            struck_within(2e-3, take)
        wait_until(is_free)
        _renewer._IDLE_SECONDS = 60
        with hold("job", app=app) as lease:
            wait_for_renewals("job", 3)
            print(json.dumps(lease.check()))
        """,
        redis_url,
        seed,
        setup=SETUP,
    )
    assert is_trusted


def test_wherever_a_limit_strikes_a_held_lease_is_free_at_once(redis_url: str, seed: str) -> None:
    slowest, struck = answer_of(
        """
        def take():
            with hold("job", app=app):
                sum(range(1000))
        slowest, struck = 0.0, 0
        for _ in range(300):
            struck += struck_within(1.5e-3, take)
            began = time.monotonic()
            wait_until(is_free)
            slowest = max(slowest, time.monotonic() - began)
        print(json.dumps([slowest, struck]))
        """,
        redis_url,
        seed,
        setup=SETUP,
    )
    assert struck > 50
    assert slowest < 0.5


#: Python looks for signals where a function begins, where one written in C has returned, and where a
#: generator is resumed. The last is left out: what a profiler raises there kills it without its handlers.
EVERYWHERE = """
    import inspect

    def struck_at(number, action):
        left = number

        def look(frame, event, _arg):
            nonlocal left
            code = frame.f_code
            place = event == "c_return" or event == "call" and not code.co_flags & inspect.CO_GENERATOR
            if place and ("celery_lease" in code.co_filename or "contextlib" in code.co_filename):
                left -= 1
                if left == 0:
                    sys.setprofile(None)
                    raise SoftTimeLimitExceeded

        sys.setprofile(look)
        try:
            action()
        except BaseException:
            pass
        finally:
            sys.setprofile(None)
        return left <= 0

    def kept_after(action):
        number, kept = 1, []
        while struck_at(number, action):
            began = time.monotonic()
            wait_until(lambda: is_free() or time.monotonic() - began > 0.5)
            if not is_free():
                kept.append(number)
                client.delete("cron:{job}")
            number += 1
        return number, kept
"""


def test_struck_at_each_place_where_a_signal_can_strike_a_held_lease_is_free_at_once(redis_url: str) -> None:
    ends = answer_of(
        """
        def take():
            with hold("job", app=app):
                sum(range(1000))
        def fail():
            with hold("job", app=app):
                raise ValueError
        @app.task(name="job", base=LeasedTask, shared=False, lazy=False)
        def job():
            sum(range(1000))
        print(json.dumps([kept_after(take), kept_after(fail), kept_after(job.apply), kept_after(job)]))
        """,
        redis_url,
        "0",
        setup=SETUP + EVERYWHERE,
    )
    for places, kept in ends:
        assert places > 100
        assert kept == []


def test_wherever_a_limit_strikes_a_tasks_lease_is_free_at_once(redis_url: str, seed: str) -> None:
    slowest, ends, ran = answer_of(
        """
        @app.task(name="job", base=LeasedTask, shared=False, lazy=False)
        def job():
            return sum(range(1000))
        slowest, ends = 0.0, []
        for _ in range(300):
            if struck_within(1.5e-3, lambda: ends.append(job.apply().state)):
                ends.append("struck outside")
            began = time.monotonic()
            wait_until(is_free)
            slowest = max(slowest, time.monotonic() - began)
        print(json.dumps([slowest, ends, int(client.hget("cron:{job}:ledger", "total:ran"))]))
        """,
        redis_url,
        seed,
        setup=SETUP,
    )
    assert set(ends) <= {"SUCCESS", "FAILURE", "struck outside"}
    assert ends.count("FAILURE") > 20
    assert slowest < 0.5
    assert ran >= ends.count("SUCCESS"), "a limit inside the release changed how a run ended"

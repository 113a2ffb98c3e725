"""Scripts that hold a lease and end, in whatever way: at once, and with the lease free."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.waiting import wait_until
from tests.support.scripts import ended, text
from tests.support.workers import Process

SCRIPT = """
    import os, signal, sys, threading, time
    from celery import Celery
    from celery_lease import hold
    app = Celery(broker=sys.argv[1], set_as_current=False)
    app.conf.lease_seconds = {seconds}

    def say(what):
        print(what, time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
"""

ENDS = {
    "end of main": """
    with hold("job", app=app):
        pass
    say("over")
    """,
    "end of main with another thread at work": """
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    with hold("job", app=app):
        pass
    say("over")
    """,
    "exit inside": """
    with hold("job", app=app):
        say("over")
        sys.exit(3)
    """,
    "exception inside": """
    with hold("job", app=app):
        say("over")
        raise RuntimeError("on purpose")
    """,
    "Ctrl-C inside": """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with hold("job", app=app):
        say("over")
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    """,
    "held in a daemon thread": """
    def work():
        with hold("job", app=app):
            entered.set()
            time.sleep(60)
    entered = threading.Event()
    threading.Thread(target=work, daemon=True).start()
    entered.wait()
    say("over")
    """,
}


@pytest.mark.parametrize("way", ENDS)
def test_a_script_ends_at_once_whatever_it_held(redis_url: str, client: Any, way: str) -> None:
    done = ended(SCRIPT.format(seconds=300), ENDS[way], redis_url)
    after = time.monotonic()
    [said] = [line for line in done.stdout.splitlines() if line.startswith("over ")]
    assert after - float(said.split()[1]) < 1
    assert "celery-lease-renewer" not in done.stderr
    codes = {"exit inside": 3, "exception inside": 1, "Ctrl-C inside": -2}
    assert done.returncode == codes.get(way, 0), done.stderr
    if way != "held in a daemon thread":  # nobody gave that one back; its process's death is seen instead
        assert not client.exists("cron:{job}")


def test_a_forked_child_neither_gives_back_nor_writes_down_what_is_its_parents(
    redis_url: str, client: Any
) -> None:
    done = ended(
        SCRIPT.format(seconds=300),
        """
    with hold("job", app=app):
        child = os.fork()
        if child == 0:
            sys.exit(0)  # leaves the block, too
        assert os.waitpid(child, 0) == (child, 0)
        import redis
        with redis.Redis.from_url(sys.argv[1], decode_responses=True) as client:
            say([client.exists("cron:{job}"), client.exists("cron:{job}:runs")])
        """,
        redis_url,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[1, 0] ")
    assert not client.exists("cron:{job}")
    assert [record["outcome"] for _, record in client.xrange("cron:{job}:runs")] == ["ran"]


def test_a_forked_child_does_not_renew_its_parents_lease(
    redis_url: str, client: Any, tmp_path: Path, start_process: Callable[..., Process]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        text(
            SCRIPT.format(seconds=1),
            """
    with hold("job", app=app):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        say("forked")
        os.waitpid(child, 0)
        """,
        )
    )
    parent = start_process(sys.executable, str(script), redis_url)
    parent.wait_for("forked")
    renewed = client.hget("cron:{job}", "renewed")
    wait_until(lambda: client.hget("cron:{job}", "renewed") != renewed)
    parent.signal(signal.SIGSTOP)
    assert len(parent.children()) == 1
    wait_until(lambda: not client.exists("cron:{job}"), seconds=3)
    parent.signal(signal.SIGCONT)


def test_a_forked_child_can_take_a_lease_of_its_own(redis_url: str, client: Any) -> None:
    done = ended(
        SCRIPT.format(seconds=1),
        """
    with hold("job", app=app):
        child = os.fork()
        if child == 0:
            with hold("other", app=app) as lease:
                time.sleep(1.5)
                say(f"trusted {lease.check()}")
            sys.exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        """,
        redis_url,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("trusted True ")
    for name in ("job", "other"):
        assert [record["outcome"] for _, record in client.xrange(f"cron:{{{name}}}:runs")] == ["ran"]

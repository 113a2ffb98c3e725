"""What may block is asked on bounded threads, each call with a deadline."""

import asyncio
import os
import threading
import time

import pytest

from celery_lease.web._threads import Threads, Unanswered


def test_answers_and_errors_come_back_to_who_asked() -> None:
    async def ask() -> None:
        threads = Threads("store", 2)
        assert await threads.ask(lambda: 1, 5) == 1
        with pytest.raises(KeyError):
            await threads.ask(lambda: os.environ["THERE_IS_NO_SUCH_VARIABLE"], 5)
        assert await threads.ask(lambda: 2, 5) == 2

    asyncio.run(ask())


def test_a_call_that_hangs_is_left_behind_at_its_deadline() -> None:
    async def ask() -> None:
        threads, thaw = Threads("store", 1), threading.Event()
        began = time.monotonic()
        with pytest.raises(Unanswered, match=r"did not answer within 0\.2 s"):
            await threads.ask(thaw.wait, 0.2)
        assert time.monotonic() - began < 1
        thaw.set()

    asyncio.run(ask())


def test_with_all_threads_hanging_the_next_is_told_at_once_and_later_served_again() -> None:
    async def ask() -> None:
        threads, thaw = Threads("store", 3), threading.Event()
        hanging = [asyncio.create_task(threads.ask(thaw.wait, 0.2)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Unanswered, match="all 3 threads"):
            await threads.ask(lambda: 1, 5)
        assert await asyncio.gather(*hanging, return_exceptions=True)
        with pytest.raises(Unanswered, match="all 3 threads"):
            await threads.ask(lambda: 1, 5)
        thaw.set()
        await asyncio.sleep(0.5)
        assert await threads.ask(lambda: 1, 5) == 1

    asyncio.run(ask())

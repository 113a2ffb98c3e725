"""Calls that may block, each with a deadline, on a bounded number of threads.

The event loop never waits for a socket. What hangs holds one thread of its own pool until its client
library gives up; the answer has long been sent then. With all threads of a pool hanging, the next caller is
told so at once.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Unanswered(Exception):  # noqa: N818 - what happened
    """No answer before the deadline, or no thread to ask on."""


class Threads:
    """Up to `limit` daemon threads: unlike those of an executor, a hanging one does not delay the exit."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._started = self._busy = 0
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    async def ask(self, action: Callable[[], T], seconds: float) -> T:
        """The result of `action`, done on one of the threads.

        Raises:
            Unanswered: not within `seconds`, or all threads hang.
        """
        if self._busy >= self._limit:
            raise Unanswered(f"all {self._limit} threads for the {self._name} are waiting for an answer")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._busy += 1
        if self._started < self._busy:
            self._started += 1
            threading.Thread(target=self._serve, name=f"web-{self._name}", daemon=True).start()
        self._work.put(lambda: self._do(action, answer, loop))
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            raise Unanswered(f"the {self._name} did not answer within {seconds:g} s") from None

    def _serve(self) -> None:
        while True:
            self._work.get()()

    def _do(
        self, action: Callable[[], T], answer: asyncio.Future[T], loop: asyncio.AbstractEventLoop
    ) -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._settle, answer, result, failure)

    def _settle(self, answer: asyncio.Future[T], result: T, failure: Exception | None) -> None:
        self._busy -= 1
        if answer.done():  # its deadline has passed
            return
        if failure is None:
            answer.set_result(result)
        else:
            answer.set_exception(failure)

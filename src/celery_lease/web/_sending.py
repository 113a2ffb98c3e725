"""Sending one message to a broker that may be down or frozen."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery import Celery

    from celery_lease._task import LeasedTask

#: For the broker's every answer.
_ANSWER_SECONDS = 1.0

#: Nothing is tried again: the caller is waiting, and is told to come back.
_ONCE = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.0, "interval_max": 0.0}


class Sending:
    """One message, sent on a connection of its own: no pool that a frozen broker could drain.

    `apply_async` is not used, because it subscribes to the result at the result backend first, without a
    bound: with that backend down it fails after 19 s.

    Attributes:
        id: of the run.
        began: whether the message itself was begun to be sent. Until then nothing can be queued.
    """

    def __init__(self, app: Celery, task: LeasedTask, run_id: str, expires: float) -> None:
        self.id = run_id
        self.began = False
        self._app = app
        self._task = task
        self._expires = expires
        self._lock = threading.Lock()
        self._is_given_up = False

    def send(self) -> None:
        """Connect and send. Does not send any more once it was given up."""
        with self._connect() as connection:
            producer = self._app.amqp.Producer(connection, auto_declare=False)
            _ = producer.channel  # connects
            with self._lock:
                if self._is_given_up:
                    return
                self.began = True
            options = self._options()
            limits = {name: options.pop(name, None) for name in ("time_limit", "soft_time_limit")}
            message = self._app.amqp.create_task_message(
                self.id,
                self._task.name,
                (),
                {},
                expires=self._expires,
                ignore_result=bool(self._task.ignore_result),
                create_sent_event=self._app.conf.task_send_sent_event,
                **limits,
            )
            task: Any = self._task  # typed as a class there
            options = self._app.amqp.router.route(options, self._task.name, (), {}, task)
            self._app.amqp.send_task_message(
                producer, self._task.name, message, retry=False, confirm_timeout=_ANSWER_SECONDS, **options
            )

    def give_up(self) -> None:
        """Nobody waits for it any more: send nothing that has not begun to be sent."""
        with self._lock:
            self._is_given_up = True

    def _connect(self) -> Any:
        transport = str(self._app.connection_for_write().transport_cls)
        options: dict[str, Any] = dict(_ONCE)
        if transport in ("redis", "rediss", "sentinel", "valkey"):
            options |= {"socket_timeout": _ANSWER_SECONDS, "socket_connect_timeout": _ANSWER_SECONDS}
        elif transport in ("amqp", "amqps", "pyamqp"):
            options |= {"read_timeout": _ANSWER_SECONDS, "write_timeout": _ANSWER_SECONDS}
            options["confirm_publish"] = True
        return self._app.connection_for_write(connect_timeout=_ANSWER_SECONDS, transport_options=options)

    def _options(self) -> dict[str, Any]:
        """What the task's own options say about its messages, as `send_task` reads them."""
        task: Any = self._task
        given = task._get_exec_options()  # noqa: SLF001 - there is no public name for them
        return {name: value for name, value in given.items() if value is not None and name != "expires"}

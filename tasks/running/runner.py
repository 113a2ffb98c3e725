"""Starts services in order, watches them, and stops them in reverse."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rich.text import Text

from tasks.running.instance import Instance, Process
from tasks.running.screen import Screen
from tasks.running.service import POLL_SECONDS, Running, Service
from tasks.running.signals import Signals


class StopRequested(Exception):  # noqa: N818 - a wish, not an error
    """A signal asked for the end."""

    def __init__(self, signum: signal.Signals) -> None:
        super().__init__(signum.name)
        self.signum = signum


class ServiceError(Exception):
    """A service failed: it ended, or did not come up. `log` may know why."""

    def __init__(self, message: str, log: Path, exit_code: int = 1) -> None:
        super().__init__(message)
        self.log = log
        self.exit_code = exit_code or 1  # a service that ended as if all were well has failed nevertheless


class StepError(ServiceError):
    """A command that was to end by itself failed, or did not end."""


class Runner:
    """The services of one `up`, in the order they were started."""

    def __init__(self, data: Path, instance: Instance, screen: Screen, signals: Signals) -> None:
        self.running: list[Running] = []
        self.env = dict(os.environ)
        self._logs = data / "log"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._instance = instance
        self._screen = screen
        self._signals = signals
        self._processes = [Process.look("up", os.getpid(), "")]
        instance.record(self._processes)

    def start(self, service: Service) -> Running:
        """Start a service that is to stay; from now on its end is the end of all."""
        running = Running(service, self.env, log=self.log_of(service.name))
        self.running.append(running)
        self._processes.append(Process.look(service.name, running.pid, service.shows))
        self._instance.record(self._processes)
        self._screen.follow(running)
        return running

    def finish(self, step: Service, *, seconds: float) -> str:
        """Run a service that ends by itself, and return what it printed.

        Raises:
            StepError: it failed or took longer than `seconds`.
            ServiceError: one of the services ended meanwhile.
            StopRequested: a signal came first.
        """
        log, answer = self.log_of(step.name), self._logs / f"{step.name}.out"
        running = Running(step, self.env, log=log, answer=answer)
        try:
            ended = self.until(lambda: running.exit_code is not None, seconds=seconds)
        finally:
            code = running.exit_code
            running.stop(hurry=lambda: False)
        if not ended:
            raise StepError(f"{step.name} took longer than {seconds:.0f} s", log)
        if code:
            raise StepError(f"{step.name} failed (exit code {code})", log)
        return answer.read_text(encoding="utf-8")

    def until(self, done: Callable[[], bool], *, seconds: float) -> bool:
        """Wait for `done()`, at most so long; False if it took longer. Meanwhile the services are watched.

        Raises:
            ServiceError: a service ended.
            StopRequested: a signal came.
        """
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            self._check()
            time.sleep(POLL_SECONDS)
        return True

    def watch(self) -> NoReturn:
        """Run until something ends it; raises like `until`."""
        while True:
            self.until(lambda: False, seconds=float("inf"))

    def log_of(self, name: str) -> Path:
        """The log file of the service or step of this name."""
        return self._logs / f"{name}.log"

    def stop(self) -> None:
        """Stop everything, the last started first. The server goes last: it has results to take."""
        self._screen.quiet()
        for running in reversed(self.running):
            if running.exit_code is None:
                self._screen.show(Text(f"stopping {running.service.name}", style="dim"))
            running.stop(hurry=lambda: self._signals.hurry)
            self._screen.refresh()
        self._instance.forget()

    def _check(self) -> None:
        self._screen.refresh()
        if self._signals.first is not None:
            raise StopRequested(self._signals.first)
        for running in self.running:
            if running.exit_code is not None:
                message = f"{running.service.name} ended by itself (exit code {running.exit_code})"
                raise ServiceError(message, running.log, running.exit_code)

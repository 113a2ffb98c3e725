"""`python -m tasks up`, which `make run` calls: everything on this machine, from one command.

A server for queue and leases, a worker, the scheduler, Flower, the web app with answers and status page, and
a receiver for what is announced; then one curation at once, and its answers on the screen. `up` is the
command, `_services` the list of what runs, `_bring_up` the order.
"""

import http.client
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from kombu.utils.url import maybe_sanitize_url

from tasks.running import embedded, overview
from tasks.running.instance import BusyError, Instance, claim
from tasks.running.runner import Runner, ServiceError, StepError, StopRequested
from tasks.running.screen import Screen, near
from tasks.running.secret import secret_in
from tasks.running.service import Service
from tasks.running.signals import Signals
from tasks.settings import SettingsError, settings

FLOWER_PORT = 5555
WEB_PORT = 8080
RECEIVER_PORT = 8090
TASK_GRACE_SECONDS = 30  # so long may a running task take to finish after Ctrl-C
START_SECONDS = 30
LOAD_SECONDS = 120
FIRST_RUN_SECONDS = 60  # longer than the grace after which the lease of a killed worker is taken over
# On a new database the first look at the sitemap announces nothing: what is there counts as old. After the
# curation there are new pages, and the second one announces them.
FIRST_JOBS = ("sitemap", "curation", "sitemap")
BUSY_EXIT = 75  # EX_TEMPFAIL: somebody else holds it
OWN_FILES = ("redis", "log", "tasks.sqlite3*", "run.json")
PYTHON = [sys.executable, "-m"]
CELERY = [*PYTHON, "celery", "-A", "tasks"]


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    data: Path
    redis_url: str
    """Given by the environment; empty: start a server."""
    flower_port: int
    web_port: int
    receiver_port: int | None
    """None: announcements go where the environment says."""
    secret: str
    """Of the web app; empty: the environment's."""
    concurrency: int

    @property
    def flower(self) -> str:
        """Where Flower answers."""
        return f"http://127.0.0.1:{self.flower_port}"

    @property
    def web(self) -> str:
        """Where the answers and the status page are."""
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def receiver(self) -> str:
        """Where announcements are shown; empty: elsewhere."""
        return f"http://127.0.0.1:{self.receiver_port}" if self.receiver_port else ""

    @property
    def env(self) -> dict[str, str]:
        """What all services are told of each other, unless the environment says otherwise."""
        places = {"SITE_URL": self.web}
        if self.receiver:
            places["INDEXNOW_ENDPOINT"] = f"{self.receiver}/indexnow"
        return {name: os.environ.get(name) or place for name, place in places.items()}


def _services(plan: Plan) -> list[Service]:
    """What runs beside the server, in the order of start. One more service is one more entry."""
    services = [
        Service(
            name="worker",
            command=[*CELERY, "worker", "-c", str(plan.concurrency), "-l", "INFO", "--task-events"],
            shows=f"{plan.concurrency} processes",
            grace_seconds=TASK_GRACE_SECONDS,
            quit_signal=signal.SIGQUIT,  # Celery's cold shutdown: give running tasks back to the queue
        ),
        Service(name="beat", command=[*CELERY, "beat", "-l", "INFO"], shows="the schedule"),
        Service(
            name="flower",
            command=[*CELERY, "flower", "--address=127.0.0.1", f"--port={plan.flower_port}"],
            # Its pages, without the buttons: Flower wants a login for those, and an API without one would
            # take orders from any web page that is open in the same browser.
            shows=plan.flower,
        ),
        Service(
            name="web",
            command=_uvicorn("tasks.web:web", plan.web_port),
            shows=plan.web,
            env={"FLOWER_URL": plan.flower, **({"CRON_SECRET": plan.secret} if plan.secret else {})},
        ),
    ]
    if plan.receiver_port:
        command = _uvicorn("tasks.receiver:receiver", plan.receiver_port)
        services.append(Service(name="receiver", command=command, shows=plan.receiver))
    return services


def _uvicorn(app: str, port: int) -> list[str]:
    return [*PYTHON, "uvicorn", app, "--host=127.0.0.1", f"--port={port}"]


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=".dev",
    envvar="TASKS_DATA",
    show_default=True,
    help="Folder for the queue, the answers and the logs; also TASKS_DATA.",
)
@click.option(
    "--flower-port",
    type=click.IntRange(1, 65535),
    help=f"Flower's port on this machine.  [default: {FLOWER_PORT}, or a free one]",
)
@click.option(
    "--web-port",
    type=click.IntRange(1, 65535),
    help=f"The port of answers and status page on this machine.  [default: {WEB_PORT}, or a free one]",
)
@click.option("--concurrency", type=click.IntRange(1), default=2, show_default=True, help="Worker processes.")
@click.option("--verbose", is_flag=True, help="Show every log line, not only warnings and errors.")
@click.option("--fresh", is_flag=True, help="Forget the queue and the answers of earlier runs first.")
@click.option("--yes", is_flag=True, help="Do not ask before --fresh deletes.")
def up(
    data: Path,
    flower_port: int | None,
    web_port: int | None,
    concurrency: int,
    *,
    verbose: bool,
    fresh: bool,
    yes: bool,
) -> None:
    """Start everything on this machine and curate at once.

    With REDIS_URL in the environment that server is used and left running; else an embedded one is started
    on a free port. Ctrl-C stops all: running tasks have 30 s to finish, a second Ctrl-C ends them at once.

    \b
    Exit codes: 128 + the signal that stopped it (Ctrl-C: 130); 75 if it runs already;
    that of a service which ended by itself; 1 if the start failed.
    """  # noqa: D301 - click's own escape
    try:
        settings()
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    data = data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    screen = Screen(verbose=verbose)
    try:
        with claim(data) as instance:
            if fresh:
                _forget_earlier_runs(data, sure=yes)
            ports = _ports(flower_port, web_port)
            if not web_port and ports[1] != WEB_PORT:
                screen.show(f"port {WEB_PORT} is in use; site and status page get port {ports[1]}")
            announces_elsewhere = bool(os.environ.get("INDEXNOW_ENDPOINT"))
            receiver_port = None if announces_elsewhere else embedded.free_port(RECEIVER_PORT, ports)
            secret = "" if os.environ.get("CRON_SECRET") else secret_in(data)
            plan = Plan(data, os.environ.get("REDIS_URL", ""), *ports, receiver_port, secret, concurrency)
            sys.exit(_run(plan, instance, screen))
    except BusyError as busy:
        screen.show(*overview.what_runs_already(busy.processes, data))
        sys.exit(BUSY_EXIT)


def _ports(flower: int | None, web: int | None) -> tuple[int, int]:
    if flower and flower == web:
        raise click.BadParameter("is that of --flower-port", param_hint="--web-port")
    chosen = _port(flower, FLOWER_PORT, "--flower-port", besides=[web] if web else [])
    return chosen, _port(web, WEB_PORT, "--web-port", besides=[chosen])


def _port(wanted: int | None, preferred: int, option: str, besides: list[int]) -> int:
    port = embedded.free_port(wanted or preferred, besides)
    if wanted and port != wanted:
        raise click.BadParameter(f"port {wanted} is in use", param_hint=option)
    return port


def _forget_earlier_runs(data: Path, *, sure: bool) -> None:
    """Delete what `up` made in the folder, and nothing else that may be there."""
    if not sure:
        if not sys.stdin.isatty():
            raise click.UsageError("--fresh deletes data: say --yes as well where nobody can be asked")
        click.confirm(f"Delete the queue and the answers in {near(data)}?", abort=True)
    for pattern in OWN_FILES:
        for found in data.glob(pattern):
            shutil.rmtree(found) if found.is_dir() else found.unlink()


def _run(plan: Plan, instance: Instance, screen: Screen) -> int:
    """Everything from the first process to the last; returns the exit code."""
    signals = Signals()
    signals.install()
    for process in instance.end_leftovers():
        screen.show(f"ended {process.name} (pid {process.pid}), left behind by an `up` that was killed")
    runner = Runner(plan.data, instance, screen, signals)
    try:
        _bring_up(plan, runner, screen)
        runner.watch()
    except StopRequested as stop:
        if stop.signum == signal.SIGHUP:
            screen.hang_up()
        screen.show(f"stopping; running tasks have {TASK_GRACE_SECONDS} s to finish (Ctrl-C: stop at once)")
        return 128 + stop.signum
    except ServiceError as error:
        screen.trouble(f"{error}; stopping the rest", error.log)
        return error.exit_code
    finally:
        runner.stop()
        screen.show(f"stopped; the data stays in {near(plan.data)}")


def _bring_up(plan: Plan, runner: Runner, screen: Screen) -> None:
    redis_url = _server(plan, runner, screen)
    # The application's own settings have been read already, without an address: only children get this one.
    runner.env |= {"PYTHONUNBUFFERED": "1", "REDIS_URL": redis_url, "TASKS_DATA": str(plan.data), **plan.env}
    with screen.step("loading the shipped labels"):
        runner.finish(Service(name="load", command=[*PYTHON, "tasks", "load"]), seconds=LOAD_SECONDS)
    with screen.step("starting worker, scheduler, Flower, site and status page"):
        for service in _services(plan):
            runner.start(service)
        # Flower has seen the worker's first event: both are up, and it will see the first run, too.
        runner.until(lambda: _flower_sees_a_worker(plan.flower_port), seconds=START_SECONDS)
        for port in filter(None, (plan.web_port, plan.receiver_port)):
            runner.until(partial(_answers, port), seconds=START_SECONDS)
    _curate(runner, screen)
    # What the environment says already is not repeated: it may hold a password.
    told = {"REDIS_URL": redis_url, **plan.env}
    untold = {name: value for name, value in told.items() if not os.environ.get(name)}
    places = overview.Places(plan.flower, plan.web, plan.receiver, plan.secret, plan.data)
    screen.show(overview.what_runs(runner.running), *overview.where_to_look(untold, places))
    screen.loud()


def _server(plan: Plan, runner: Runner, screen: Screen) -> str:
    """Make sure that a server answers; returns its address."""
    if plan.redis_url:
        shown = maybe_sanitize_url(plan.redis_url)
        with screen.step(f"using the server of REDIS_URL, {shown}"):
            if not embedded.answers(plan.redis_url):
                raise click.ClickException(f"REDIS_URL: nothing answers at {shown}")
        return plan.redis_url
    try:
        binary = embedded.find_binary()
    except FileNotFoundError as missing:
        raise click.ClickException(
            f"{missing}; install one, or set REDIS_URL to use one elsewhere"
        ) from missing
    port = embedded.free_port(embedded.PREFERRED_PORT)
    server = embedded.server(binary, port, plan.data)
    with screen.step(f"starting {server.name}"):
        running = runner.start(server)
        if not runner.until(lambda: embedded.answers(server.shows), seconds=START_SECONDS):
            raise ServiceError(f"{server.name} does not answer", running.log)
    return server.shows


def _flower_sees_a_worker(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/workers?json=1")
        return any(worker["status"] for worker in json.load(connection.getresponse())["data"])
    except (OSError, http.client.HTTPException, ValueError):
        return False  # not yet
    finally:
        connection.close()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/robots.txt")  # whatever it answers
        return bool(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return False  # not yet
    finally:
        connection.close()


def _curate(runner: Runner, screen: Screen) -> None:
    """Run the first jobs and show what came of them. Their failure is shown, and no reason to stop."""
    try:
        with screen.step("curating, and announcing the new pages"):
            first = ["tasks.running.firstrun", str(FIRST_RUN_SECONDS), *FIRST_JOBS]
            outcomes = _json_of(runner, "first-runs", first)
        screen.show(*(overview.how_it_ended(outcome) for outcome in outcomes[1:] or outcomes))
        if any(outcome["state"] != "SUCCESS" for outcome in outcomes):
            screen.trouble("the end of the worker's log:", runner.log_of("worker"))
        if answers := _json_of(runner, "answers", ["tasks", "answers", "--json"]):
            screen.show(overview.some_answers(answers))
    except StepError as error:
        screen.trouble(f"{error}; the services go on", error.log)


def _json_of(runner: Runner, name: str, module: list[str]) -> Any:
    """What a module of this project prints as JSON."""
    step = Service(name=name, command=[*PYTHON, *module])
    return json.loads(runner.finish(step, seconds=FIRST_RUN_SECONDS + START_SECONDS))

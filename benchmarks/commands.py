"""What a lease costs a task: script calls, commands and CPU, against the same task in plain Celery.

    python benchmarks/commands.py

Tasks are applied in this process, so that nothing but the lease is measured. The leases have a server to
themselves; what is counted is what that server says it was asked. What the renewer does by itself (one
renewal per 90 s, one look per second and process) is counted apart: it does not grow with the tasks.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script

from celery import Celery

from celery_lease import LeasedTask
from tests.nodes.recipes import redis_server
from tests.nodes.sessions import Reaper
from tests.support.servers import Server

WARM_UP = 20
RUNS = 200
CPU_RUNS, CPU_ROUNDS = 1000, 5

#: What the renewer sends, however many tasks there are.
BACKGROUND = {"PING", "PUBSUB", "SSUBSCRIBE", "SUNSUBSCRIBE"}


@dataclass(frozen=True)
class Cost:
    """What a number of runs cost the server of the leases.

    Attributes:
        runs: how many there were.
        scripts: script calls.
        others: other commands that were sent, but for `background`.
        inside: commands that the scripts called on the server.
        background: commands that the renewer sent.
        script_micros: time on the server for the script calls, in microseconds.
    """

    runs: int
    scripts: int
    others: int
    inside: int
    background: int
    script_micros: int


def cost_of(task: Any, server: Server, runs: int = RUNS) -> Cost:
    """Apply the task so many times; what its server was asked meanwhile."""
    for _ in range(WARM_UP):
        task.apply(throw=True)
    over = f"over {uuid4()}"
    sent: Counter[str] = Counter()
    inside = 0
    client: Any = server.client()
    with client, server.client() as watching:
        client.config_resetstat()
        with watching.monitor() as monitor:
            for _ in range(runs):
                task.apply(throw=True)
            micros = int(client.info("commandstats")["cmdstat_evalsha"]["usec"])
            client.echo(over)
            while over not in (heard := monitor.next_command())["command"]:
                if heard["client_type"] == "lua":
                    inside += 1
                else:
                    sent[heard["command"].split(" ", 1)[0].upper()] += 1
    del sent["INFO"]
    scripts = sent.pop("EVALSHA", 0) + sent.pop("EVAL", 0)
    background = sum(sent.pop(name, 0) for name in BACKGROUND)
    return Cost(runs, scripts, sent.total(), inside, background, micros)


def cpu_micros(task: Any) -> float:
    """CPU of this process per run, the best of some rounds, in microseconds."""
    rounds = []
    for _ in range(CPU_ROUNDS):
        began = time.process_time()
        for _ in range(CPU_RUNS):
            task.apply(throw=True)
        rounds.append((time.process_time() - began) / CPU_RUNS * 1e6)
    return min(rounds)


def tasks_of(url: str) -> tuple[Any, Any]:
    """The same body twice: in plain Celery, and leased."""
    app = Celery("cost", broker="memory://", set_as_current=False)
    app.conf.lease_url = url
    make: Any = app.task

    def body() -> int:
        return sum(range(100))

    plain = make(name="plain", shared=False, lazy=False)(body)
    return plain, make(name="leased", base=LeasedTask, shared=False, lazy=False)(body)


def with_server(action: Callable[[Server], None]) -> None:
    """Do it with a server that is there for that alone."""
    reaper = Reaper()
    with tempfile.TemporaryDirectory() as directory:
        server = Server(redis_server(), Path(directory), reaper)
        try:
            action(server)
        finally:
            server.close()
            reaper.close()


def report(server: Server) -> None:
    """Measure, and print the table."""
    plain, leased = tasks_of(server.url)
    cost = cost_of(leased, server)
    cpu, leased_cpu = cpu_micros(plain), cpu_micros(leased)
    rows = [
        ("script calls per task", "0", f"{cost.scripts / cost.runs:g}"),
        ("other commands per task", "0", f"{cost.others / cost.runs:g}"),
        ("commands inside the scripts per task", "0", f"{cost.inside / cost.runs:g}"),
        ("time on the server per task", "0", f"{cost.script_micros / cost.runs:.0f} µs"),
        ("CPU of the process per task", f"{cpu:.0f} µs", f"{leased_cpu:.0f} µs"),
        ("  times as much", "1", f"{leased_cpu / cpu:.1f}"),
        ("background commands, however many tasks", "0", f"{cost.background}"),
    ]
    print(f"{cost.runs} tasks with next to nothing in their bodies")
    print(f"{'':<40} {'plain':>10} {'leased':>10}")
    for what, plain_value, leased_value in rows:
        print(f"{what:<40} {plain_value:>10} {leased_value:>10}")


if __name__ == "__main__":
    with_server(report)

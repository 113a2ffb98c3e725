"""A script in a terminal that holds leases: `python -m tests.faults.script [--forks] NAME...`."""

import multiprocessing
import sys
import threading
import time

from celery_lease import hold
from tests.faults.body import nothing, recorder, work
from tests.support.probe import app
from tests.support.recording import record_store_calls


def main(*names: str, forks: bool) -> None:
    """Hold them all at once, each in a thread; with forks, each leaves a child that outlives this process."""
    record_store_calls(recorder)
    threads = [threading.Thread(target=_hold, args=(name, forks)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _hold(name: str, forks: bool) -> None:
    with hold(name, app=app) as lease:
        work(lease, "", 60, name, also=_fork if forks else nothing)


def _fork() -> None:
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()


if __name__ == "__main__":
    main(*(name for name in sys.argv[1:] if name != "--forks"), forks="--forks" in sys.argv)

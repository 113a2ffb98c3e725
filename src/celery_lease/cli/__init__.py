"""`celery -A PROJECT lease …`: what runs, what was done, and the operator's hand on it.

    ls          every job: its last real run, skips in a row, what is left, who holds it
    show        one job in full
    history     its run records
    run         carry a job out here, under its lease
    break       take a lease away from its holder
    check       the schedule against leases, limits and the server: what a crash can cost
    watch       `ls`, kept up to date

Every command takes `--json`. Exit codes: 0 done, 1 failed or something is wrong, 2 wrong use, 69 the lease
store does not answer, 75 the lease is held, 130 interrupted.
"""

from celery_lease.cli.group import lease

__all__ = ["lease"]

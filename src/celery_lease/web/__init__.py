"""The operator's view over HTTP: triggers, status page, health and metrics of an app's leased jobs.

    web = create_app(app)        # and then: uvicorn proj.web:web

| path | what | who |
|---|---|---|
| `GET, POST /api/cron/{job}` | run the job now; `?wait=20` waits for the outcome | Bearer |
| `GET /api/runs/{id}` | what became of it | the secret |
| `GET /` and `/jobs/{name}` | status page, and a page a job | the secret |
| `GET /metrics` | for Prometheus | the secret |
| `GET /openapi.json` | the description of all this | the secret |
| `GET /healthz` | 503 while a job is overdue or the lease store does not answer | everybody |

The secret is `CRON_SECRET`, as Bearer token or, for a browser, as the password of Basic authentication with
any user. Triggers take it as Bearer token only: a browser adds a password that it knows to requests which
another site makes it send. During a rotation `CRON_SECRET_PREVIOUS` is valid, too. Without a secret of at
least 16 characters nothing but `/healthz` answers anything but 503.

What holds
    * Every answer comes within 5 s (plus `wait`), whatever is down or frozen: the broker, the lease store,
      the result backend. Everything that may block has a thread and a deadline of its own.
    * A job that did not run is never a 2xx: 409 `locked`, 503 `lock_unavailable`.
    * Nothing is queued unless lease store and result backend answer: a run whose result cannot be stored
      would be paid for and end as failed.

What does not
    * 202 promises that the message is with the broker, not that the job will run: another run may get the
      lease first. `Location`, or `?wait`, tells.

The rate limiter (60 triggers a minute and client) counts in Redis and falls back to this process's memory
when that does not answer: the opposite of the lease, on purpose. Of a few triggers too many the lease takes
care; a limiter that failed closed would itself be an outage.
"""

from celery_lease.web._app import create_app

__all__ = ["create_app"]

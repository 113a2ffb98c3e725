"""The web app as its users have it: a uvicorn process on a port, asked over HTTP."""

import concurrent.futures
import time
from typing import Any, NamedTuple

import httpx

from tests.nodes.waiting import wait_until
from tests.support.workers import Process

SECRET = "correct horse battery staple"  # noqa: S105 - of this test's own server


class Answer(NamedTuple):
    """An answer, and how long it took."""

    response: httpx.Response
    seconds: float

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def error(self) -> str | None:
        body: dict[str, Any] = self.response.json()
        return body.get("error")


class Web:
    """A running web app."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self._client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        process.wait_for("Application startup complete", 30)
        wait_until(self._is_open)

    def _is_open(self) -> bool:
        try:
            self._client.get("/nothing-here")
        except httpx.TransportError:
            return False
        return True

    def ask(self, path: str, method: str = "GET", *, secret: str | None = SECRET, **options: Any) -> Answer:
        """Ask with the secret as Bearer token, or without any for None."""
        headers = {**({"Authorization": f"Bearer {secret}"} if secret else {}), **options.pop("headers", {})}
        began = time.monotonic()
        response = self._client.request(method, path, headers=headers, **options)
        return Answer(response, time.monotonic() - began)

    def trigger(self, job: str, wait: float = 0, **options: Any) -> Answer:
        """POST a trigger."""
        query = f"?wait={wait}" if wait else ""
        return self.ask(f"/api/cron/{job}{query}", "POST", **options)

    def json(self, path: str) -> dict[str, Any]:
        """GET something that is there."""
        answer = self.ask(path).response
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def in_parallel(self, count: int, job: str, wait: float = 0) -> list[Answer]:
        """So many triggers at once."""
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda _: self.trigger(job, wait), range(count)))

    def samples(self) -> dict[str, float]:
        """The metrics: sample with its labels → value."""
        text = self.ask("/metrics").response.text
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {sample: float(value) for sample, value in pairs}

    def close(self) -> None:
        """Close the connections of this process."""
        self._client.close()

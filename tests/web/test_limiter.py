"""So many triggers a minute and client, in Redis while it answers and in memory while it does not."""

from collections.abc import Callable

from tests.support.servers import Server
from tests.support.site import Site
from tests.web.server import Web

StartWeb = Callable[..., Web]


def refused(web: Web, count: int) -> int:
    """How many of so many triggers are one too many."""
    answers = [web.trigger("nobody") for _ in range(count)]
    for answer in answers:
        if answer.status == 429:
            assert answer.error == "rate_limited"
            assert 1 <= int(answer.response.headers["retry-after"]) <= 60
        else:
            assert answer.error == "unknown_job"
    return sum(answer.status == 429 for answer in answers)


def test_processes_count_together_in_redis(start_web: StartWeb, site: Site) -> None:
    webs = [start_web(site, PROBE_LIMIT="10") for _ in range(2)]
    assert [refused(web, 8) for web in webs] == [0, 6]


def test_a_process_counts_for_itself_while_redis_does_not_answer(
    start_web: StartWeb, start_site: Callable[..., Site], server: Server, redis_url: str
) -> None:
    site = start_site(redis_url, leases=server.url)
    web = start_web(site, PROBE_LIMIT="10")
    assert refused(web, 4) == 0
    server.stop()
    assert refused(web, 14) == 4, "open, but not without end"
    assert web.process.count("rate limiter: Redis does not answer") == 1, "left alone for a while"


def test_guessing_is_slowed_down_and_locks_nobody_out_who_knows(start_web: StartWeb, site: Site) -> None:
    web = start_web(site, PROBE_LIMIT="10")
    guesses = [web.ask("/", secret=f"guess {number}").status for number in range(12)]
    assert guesses == [401] * 10 + [429] * 2
    assert web.ask("/").status == 200
    assert web.trigger("barrier").status == 202


def test_pages_and_looks_at_a_run_are_not_counted(start_web: StartWeb, site: Site) -> None:
    web = start_web(site, PROBE_LIMIT="3")
    paths = ("/", "/metrics", "/healthz", "/api/runs/nobody")
    assert {web.ask(path).status for path in paths * 3} == {200, 404}

"""The secret has three states, and is compared as bytes in constant time."""

import base64
import hmac
from collections.abc import Callable

import pytest

from celery_lease.web._access import MIN_LENGTH, Access
from tests.support.site import Site
from tests.web.server import SECRET, Web

GUARDED = ["/api/cron/barrier", "/api/runs/some-id", "/", "/jobs/barrier", "/metrics", "/openapi.json"]
PAGES = [path for path in GUARDED if not path.startswith("/api/cron")]


def basic(password: str, user: str = "anybody") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("secret", ["", " " * MIN_LENGTH, "x" * (MIN_LENGTH - 1)])
@pytest.mark.parametrize("header", [None, "Bearer ", "Bearer x", basic("")])
def test_a_secret_that_is_no_secret_opens_for_nobody(secret: str, header: str | None) -> None:
    access = Access(secret)
    assert access.judge(header) == "unset"
    assert access.judge(f"Bearer {secret}") == "unset"


@pytest.mark.parametrize(
    ("header", "verdict"),
    [
        (None, "missing"),
        ("", "missing"),
        (f"Bearer {SECRET}", "right"),
        (f"bearer {SECRET}", "right"),
        (f"BEARER   {SECRET}  ", "right"),
        (f"Bearer {SECRET.upper()}", "wrong"),
        (f"Bearer {SECRET}x", "wrong"),
        ("Bearer", "wrong"),
        ("Bearer \xff\xfe", "wrong"),
        ("Bearer \N{SNOWMAN}", "wrong"),
        (f"Token {SECRET}", "wrong"),
        (SECRET, "wrong"),
        (basic(SECRET), "right"),
        (basic(SECRET, user=""), "right"),
        (basic("wrong"), "wrong"),
        ("Basic ???", "wrong"),
        ("Basic " + base64.b64encode(SECRET.encode()).decode(), "wrong"),
    ],
)
def test_the_header_decides(header: str | None, verdict: str) -> None:
    assert Access(SECRET).judge(header) == verdict


def test_a_secret_beyond_ascii_is_compared_by_its_bytes() -> None:
    access = Access("schlüssel-zum-glück")
    as_servers_decode_it = "schlüssel-zum-glück".encode().decode("latin-1")
    assert access.judge(f"Bearer {as_servers_decode_it}") == "right"
    assert access.judge(basic("schlüssel-zum-glück")) == "right"


def test_during_a_rotation_both_secrets_open_and_the_old_one_never_alone() -> None:
    old, new = "the-old-secret-of-before", "the-new-secret-of-today"
    access = Access(new, old)
    assert access.judge(f"Bearer {old}") == access.judge(f"Bearer {new}") == "right"
    assert Access("", old).judge(f"Bearer {old}") == "unset"
    assert Access(new, "short").judge("Bearer short") == "wrong"


def test_every_comparison_is_of_digests_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    in_constant_time = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return in_constant_time(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for header in (f"Bearer {SECRET}", "Bearer x", "Bearer \xff", basic("y" * 1000), "Bearer"):
        compared.clear()
        Access(SECRET, "another-secret-of-before").judge(header)
        assert len(compared) == 2, "both are compared, whichever fits"
        assert {len(part) for pair in compared for part in pair} == {32}


def test_without_a_secret_all_is_refused_before_anything_else_and_health_goes_on(
    start_web: Callable[..., Web], site: Site
) -> None:
    web = start_web(site, CRON_SECRET="too short")  # noqa: S106 - that it is none is the point
    for path in [*GUARDED, "/api/cron/nobody", "/api/cron/barrier?wait=nonsense"]:
        answer = web.ask(path)
        assert (answer.status, answer.error) == (503, "secret_unset"), path
        assert "retry-after" not in answer.response.headers, "waiting does not help"
    assert web.ask("/healthz", secret=None).status == 200
    assert web.process.count("CRON_SECRET is unset or shorter") == 1, "said once a minute"


@pytest.mark.parametrize("path", GUARDED)
def test_nothing_opens_without_the_secret(web: Web, path: str) -> None:
    missing = web.ask(path, secret=None)
    assert (missing.status, missing.error) == (401, "unauthorized")
    assert missing.response.headers.get_list("www-authenticate")[0] == 'Bearer realm="cron"'
    wrong = web.ask(path, secret="wrong")  # noqa: S106 - that it is wrong is the point
    assert (wrong.status, wrong.error) == (401, "unauthorized")
    assert wrong.response.headers.get_list("www-authenticate")[0].endswith('error="invalid_token"')
    assert SECRET not in wrong.response.text


@pytest.mark.parametrize("path", PAGES)
def test_a_browser_logs_in_with_the_secret_as_password(web: Web, path: str) -> None:
    refused = web.ask(path, secret=None)
    assert refused.response.headers.get_list("www-authenticate")[1].startswith("Basic ")
    assert web.ask(path, secret=None, headers={"Authorization": basic(SECRET)}).status in (200, 404)


def test_a_password_that_a_browser_remembers_triggers_nothing(web: Web, site: Site) -> None:
    answer = web.ask("/api/cron/barrier", secret=None, headers={"Authorization": basic(SECRET)})
    assert (answer.status, answer.error) == (401, "unauthorized")
    assert len(answer.response.headers.get_list("www-authenticate")) == 1
    assert site.side.llen("celery") == 0


def test_no_answer_leads_to_the_host_that_the_request_names(web: Web) -> None:
    for path in ("/metrics/", "/api/runs/some-id/", "/jobs/barrier/"):
        answer = web.ask(path, headers={"Host": "evil.example"})
        assert answer.status == 404
        assert "location" not in answer.response.headers


def test_the_secret_is_never_logged(web: Web) -> None:
    web.ask("/", secret=SECRET)
    web.ask("/", secret=f"{SECRET}-but-wrong")
    assert SECRET not in web.process.log()

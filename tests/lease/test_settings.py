"""What the library reads from Celery's configuration, and what it refuses there, by name."""

import math
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from celery_lease import LeaseError
from celery_lease._settings import LEASE_SECONDS, read_settings
from celery_lease._store import store_of
from tests.support.leases import leased

WORD = "s3cret-of-the-store"

Start = Callable[..., Celery]


def body() -> None: ...


def refusal(app: Celery) -> str:
    """What the user is told about the app's settings when a leased task is made, or at its first run."""

    def start() -> None:
        leased(app)(body)
        store_of(app)

    with pytest.raises(LeaseError) as caught:
        start()
    return str(caught.value)


def everything_printed(app: Celery) -> str:
    with pytest.raises(LeaseError) as caught:
        store_of(app)
    return "".join(traceback.format_exception(caught.value))


def plain_app(**config: Any) -> Celery:
    app = Celery("plain", set_as_current=False)
    app.conf.update(config)
    return app


def test_without_settings_a_lease_has_the_length_that_the_tests_of_timing_bound() -> None:
    settings = read_settings(plain_app(broker_url="redis://here/0"))
    assert (settings.seconds, settings.key_prefix, settings.history) == (LEASE_SECONDS, "cron:", 1000)
    assert settings.url_options == {}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lease_second", "lease_seconds"),
        ("lease_uri", "lease_url"),
        ("lease_prefix", "lease_key_prefix"),
        ("lease_url_option", "lease_url_options"),
        ("lease_histroy", "lease_history"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_nearest_known_one(
    start_app: Start, given: str, meant: str
) -> None:
    said = refusal(start_app(**{given: "x"}))
    assert repr(given) in said
    assert f"did you mean {meant!r}?" in said


def test_a_setting_like_none_of_ours_is_refused_with_all_known_ones(start_app: Start) -> None:
    said = refusal(start_app(lease_notify_by_post=1))
    assert "'lease_notify_by_post'" in said
    for known in ("lease_url", "lease_key_prefix", "lease_seconds"):
        assert known in said


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({"lease_secnds": 5}, {}),
        ({"CELERY_LEASE_SECNDS": 5}, {"namespace": "CELERY"}),
        ({"celery_lease_secnds": 5}, {"namespace": "celery"}),
        ({"LEASE_SECNDS": 5}, {}),
    ],
    ids=["plain", "namespace", "lower-case-namespace", "upper-case"],
)
def test_a_misspelt_setting_is_found_however_the_app_is_configured(
    redis_url: str, config: dict[str, Any], options: dict[str, Any]
) -> None:
    app = Celery("configured", broker=redis_url, set_as_current=False)
    app.config_from_object(config, **options)
    assert "did you mean 'lease_seconds'?" in refusal(app)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({"lease_seconds": 5}, {}),
        ({"CELERY_LEASE_SECONDS": 5}, {"namespace": "CELERY"}),
        ({"celery_lease_seconds": 5}, {"namespace": "celery"}),
    ],
    ids=["plain", "namespace", "lower-case-namespace"],
)
def test_a_setting_is_read_however_the_app_is_configured(
    redis_url: str, config: dict[str, Any], options: dict[str, Any]
) -> None:
    app = Celery("configured", broker=redis_url, set_as_current=False)
    app.config_from_object(config, **options)
    leased(app)(body)
    assert read_settings(app).seconds == 5


def test_a_setting_in_capitals_that_celery_would_not_look_at_is_refused(redis_url: str) -> None:
    app = Celery("configured", broker=redis_url, set_as_current=False)
    app.config_from_object({"LEASE_SECONDS": 5})
    assert "unknown setting 'LEASE_SECONDS'; did you mean 'lease_seconds'?" in refusal(app)


def test_what_a_projects_settings_hold_beside_celerys_namespace_is_the_projects_own(redis_url: str) -> None:
    app = Celery("configured", broker=redis_url, set_as_current=False)
    app.config_from_object({"LEASE_TERMS": "of flats", "CELERY_LEASE_SECONDS": 5}, namespace="CELERY")
    leased(app)(body)
    assert read_settings(app).seconds == 5


@pytest.mark.parametrize(
    "value", [0.99, 0, -300, -math.inf, math.inf, math.nan, "300", "", True, None, [300], 10**400]
)
def test_a_lease_that_is_no_number_of_seconds_is_refused_by_name(start_app: Start, value: Any) -> None:
    said = refusal(start_app(lease_seconds=value))
    assert said.startswith("lease_seconds must be a number of at least 1 second")
    assert "for tests only" in said


@pytest.mark.parametrize("value", [1, 1.0, 2.5, 300, 86400])
def test_a_lease_of_a_second_and_more_is_taken_as_it_is(start_app: Start, value: float) -> None:
    assert store_of(start_app(lease_seconds=value)).settings.seconds == value


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("lease_key_prefix", 7, "string without braces"),
        ("lease_key_prefix", None, "string without braces"),
        ("lease_key_prefix", "cron:{x}", "string without braces"),
        ("lease_history", 0, "whole number of at least 1"),
        ("lease_history", -1, "whole number of at least 1"),
        ("lease_history", 10.0, "whole number of at least 1"),
        ("lease_history", True, "whole number of at least 1"),
        ("lease_history", "1000", "whole number of at least 1"),
        ("lease_delivery_cap", 0, "whole number of at least 1"),
        ("lease_delivery_cap", "5", "whole number of at least 1"),
        ("lease_url_options", None, "dict"),
        ("lease_url_options", [("db", 1)], "dict"),
        ("lease_url_options", "db=1", "dict"),
        ("lease_url", 7, "scheme None"),
        ("lease_url", "", "scheme None"),
        ("lease_url", "localhost:6379", "scheme None"),
        ("lease_url", "amqp://guest@localhost//", "scheme 'amqp'"),
        ("lease_url", "memcached://localhost", "scheme 'memcached'"),
        ("lease_url", "redis://a/0;redis://b/0", "several servers"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_setting(
    start_app: Start, setting: str, value: Any, said: str
) -> None:
    refused = refusal(start_app(**{setting: value}))
    assert refused.startswith(setting)
    assert said in refused


@pytest.mark.parametrize(
    "config",
    [
        {"lease_url": f"redis://:{WORD}@localhost:port/0"},
        {"lease_url": f"redis://:{WORD}#more@localhost:6379/0"},
        {"lease_url": f"redis://user:{WORD}/more@localhost:6379/0"},
        {"lease_url": f"redis://user:{WORD}?more@localhost:6379/0"},
        {"lease_url": f"redis://user:{WORD}]@[localhost:6379/0"},
        {"lease_url": f"redis://:{WORD}@localhost/0?socket_timeout=soon"},
        {"lease_url": f"redis://:{WORD}@localhost/0?no_such_option=1"},
        {"lease_url": f"rediss://:{WORD}@localhost/0?ssl_cert_reqs=CERT_MAYBE"},
        {"lease_url": f"amqp://user:{WORD}@localhost//"},
        {"lease_url": f"redis://:{WORD}@a/0;redis://:{WORD}@b/0"},
        {"lease_url": f"sentinel://:{WORD}@localhost:26379"},
        {
            "lease_url": f"sentinel://:{WORD}#m@localhost:26379",
            "lease_url_options": {"master_name": "m"},
        },
        {"lease_url": f"redis://:{WORD}@localhost/0", "lease_url_options": {"pasword": WORD}},
        {
            "lease_url": "redis://localhost/0",
            "lease_url_options": {"password": WORD, "socket_timeout": "x"},
        },
        {"lease_url": "redis://localhost/0", "lease_url_options": [("password", WORD)]},
        {"lease_url": None, "broker_url": f"redis://:{WORD}@localhost:{WORD}/0", "result_backend": None},
        {"lease_url": None, "broker_url": f"amqp://u:{WORD}@localhost//", "result_backend": None},
    ],
    ids=lambda config: str(config).replace(WORD, "***"),
)
def test_a_refusal_never_shows_a_password(config: dict[str, Any]) -> None:
    printed = everything_printed(plain_app(**config))
    assert WORD not in printed
    assert "lease_url" in printed or "broker_url" in printed


def test_leases_live_where_lease_url_says_else_with_the_results_else_in_the_broker() -> None:
    everywhere = {"broker_url": "redis://b/0", "result_backend": "redis://r/0", "lease_url": "redis://l/0"}
    assert read_settings(plain_app(**everywhere)).url == "redis://l/0"
    del everywhere["lease_url"]
    assert read_settings(plain_app(**everywhere)).url == "redis://r/0"
    del everywhere["result_backend"]
    assert read_settings(plain_app(**everywhere)).url == "redis://b/0"


@pytest.mark.parametrize("backend", ["rpc://", "db+sqlite:///results.sqlite", "cache+memory://", None])
def test_a_result_backend_that_is_no_redis_is_passed_over(backend: str | None) -> None:
    assert read_settings(plain_app(broker_url="redis://b/0", result_backend=backend)).url == "redis://b/0"


def test_without_any_redis_the_way_out_is_named(start_app: Start) -> None:
    said = refusal(plain_app(broker_url="amqp://guest@localhost//", result_backend="rpc://"))
    assert said.startswith("lease_url is not set")
    assert "redis://" in said


def test_a_changed_setting_is_not_ignored(app: Celery, redis_url: str) -> None:
    before = store_of(app)
    assert store_of(app) is before
    for changed in (
        {"lease_key_prefix": "acme:"},
        {"lease_seconds": 7},
        {"lease_history": 5},
        {"lease_url": redis_url.replace("/0", "/1")},
        {"lease_url_options": {"client_name": "leases"}},
    ):
        app.conf.update(changed)
        after = store_of(app)
        assert after is not before
        before = after
    assert before.keys("job").lease == "acme:{job}"
    assert before.settings.url_options == {"client_name": "leases"}


def test_two_apps_with_the_same_settings_share_a_store(start_app: Start) -> None:
    assert store_of(start_app()) is store_of(start_app())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"lease_alert_urls": f"mailto://u:{WORD}@example.org"}, "must be a list of Apprise URLs, not str"),
        ({"lease_alert_urls": ["json://here", WORD]}, "lease_alert_urls: number 2 is not an Apprise URL"),
        ({"lease_alert_urls": [7]}, "lease_alert_urls: number 1 is not an Apprise URL"),
        ({"lease_alert_after_skips": 0}, "lease_alert_after_skips must be a whole number of at least 1"),
        ({"lease_ping_urls": [f"https://{WORD}"]}, "lease_ping_urls must be a dict of job and URL, not list"),
        ({"lease_ping_urls": {"job": f"ftp://{WORD}"}}, "lease_ping_urls: the URL of 'job' must begin with"),
        ({"lease_ping_urls": {"job": f"http://h:{WORD}/"}}, "lease_ping_urls: the URL of 'job' must begin"),
        ({"lease_ping_url": {}}, "did you mean 'lease_ping_urls'?"),
    ],
    ids=lambda config: str(config).replace(WORD, "***"),
)
def test_alerts_and_switches_are_checked_by_name_and_their_addresses_not_shown(
    start_app: Start, config: dict[str, Any], said: str
) -> None:
    message = refusal(start_app(**config))
    assert said in message
    assert WORD not in message

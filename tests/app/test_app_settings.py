"""The environment, read once and checked; and the configuration made of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery.schedules import crontab

from tasks import app
from tasks.settings import Settings, SettingsError, settings
from tests.support.workers import ROOT

NAMES = [name.upper() for name in Settings.model_fields]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_everything_has_a_default(tmp_path: Path) -> None:
    expected = {
        "redis_url": "redis://127.0.0.1:6379/0",
        "broker_url": "redis://127.0.0.1:6379/0",
        "result_backend": "redis://127.0.0.1:6379/0",
        "tasks_data": tmp_path / ".dev",
        "database_url": f"sqlite:///{tmp_path}/.dev/tasks.sqlite3",
        "curation_batch": 50,
    }
    assert settings().model_dump(include=set(expected)) == expected


def test_every_setting_is_in_the_documentation_with_its_default() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", page, re.MULTILINE))
    assert list(rows) == NAMES
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float):
            assert float(rows[name.upper()]) == field.default


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")
    assert settings().curation_batch == 50


def test_broker_and_results_follow_the_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "unix:///run/redis.sock")
    assert settings().redis_url == "unix:///run/redis.sock"
    assert settings().broker_url == settings().result_backend == "redis+socket:///run/redis.sock"


def test_each_can_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", "amqp://localhost")
    monkeypatch.setenv("RESULT_BACKEND", "db+sqlite:///results.db")
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/tasks")
    assert settings().broker_url == "amqp://localhost"
    assert settings().result_backend == "db+sqlite:///results.db"
    assert settings().database_url == "postgresql://localhost/tasks"


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings()
    monkeypatch.setenv("CURATION_BATCH", "7")
    assert settings() is before


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("CURATION_BATCH", "many", "CURATION_BATCH='many': Input should be a valid integer"),
        ("CURATION_BATCH", "0", "set a whole number from 1 to 10000, or unset it for 50"),
        ("REDIS_URL", "memcached://x", "REDIS_URL='memcached://x': it must begin with one of redis://"),
        ("REDIS_URL", "redis://x:port/0", "REDIS_URL='redis://x:port/0'"),
        ("BROKER_URL", "nonsense", "BROKER_URL='nonsense': nothing is no transport of Celery"),
        ("RESULT_BACKEND", "redis", "RESULT_BACKEND='redis': it must be a URL"),
        ("DATABASE_URL", "tasks.db", "DATABASE_URL='tasks.db': it must be a URL"),
        ("DATABASE_URL", "mysql://h/d", "mysql is not supported; use sqlite or postgresql"),
        ("CURATION_MODEL_URL", "api.example.com/v1", "it must begin with http:// or https://"),
        ("CURATION_MODEL_URL", "https://h/v1?key=x", "a key goes into CURATION_MODEL_KEY"),
        ("CURATION_MODEL_NAME", "m" * 101, "at most 100 characters"),
        ("CURATION_MODEL_TIMEOUT", "0", "greater than 0"),
        ("CURATION_MODEL_CONCURRENCY", "0", "greater than or equal to 1"),
        ("CURATION_MODEL_EXTRA", "{", "it is no JSON"),
        ("CURATION_MODEL_EXTRA", "[]", "it must be a JSON object"),
        ("CURATION_MODEL_EXTRA", '{"stream": true, "n": 2}', "n, stream cannot be set here"),
        ("CURATION_MODEL_EXTRA", '{"max_completion_tokens": null}', "or no cost could be reserved"),
        ("CURATION_MODEL_EXTRA", '{"max_tokens": 0}', "must be whole numbers from 1"),
        ("CURATION_BUDGET_DAY", "0.5", "CURATION_BUDGET_DAY='0.5'"),
        ("CURATION_PRICE_IN", "-1", "greater than or equal to 0"),
        ("SITE_URL", "example.com", "it must begin with http:// or https://"),
        ("SITE_URL", "https://example.com/shop", "it must be the root of a site"),
        ("SITE_URL", "https://user@example.com", "it must be the root of a site"),
        ("INDEXNOW_ENDPOINT", "api.indexnow.org", "it must begin with http:// or https://"),
        ("INDEXNOW_ENDPOINT", "https://", "and name a host"),
        ("CRON_SECRET", "short", "it must have at least 16 characters"),
        ("INDEXNOW_ENDPOINT", "http://a:b/", "its port must be a number"),
        ("INDEXNOW_KEY", "short", "set 8 to 128 of a-z, A-Z, 0-9 and -"),
        ("INDEXNOW_KEY", "with_underscore", "set 8 to 128 of a-z, A-Z, 0-9 and -"),
        ("REWARDS_POOL", "10.50", "set whole minor units"),
        ("REWARDS_POOL", "-1", "set whole minor units"),
        ("REWARDS_CURRENCY", "euro", "set three capital letters of ISO 4217"),
        ("REWARDS_CURRENCY", "EUX", "ISO 4217 has no currency EUX; set three capital letters"),
        ("REWARDS_CURRENCY", "XAU", "ISO 4217 has no minor unit of XAU"),
    ],
)
def test_a_bad_value_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        settings()
    assert says in str(refused.value)


def test_a_model_needs_a_name_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURATION_MODEL_URL", "http://127.0.0.1:11434/v1")
    with pytest.raises(SettingsError, match="CURATION_MODEL_URL needs CURATION_MODEL_NAME"):
        settings()
    monkeypatch.setenv("CURATION_MODEL_NAME", "llama")
    assert settings().curation_model_timeout == 30
    assert settings().curation_model_concurrency == 4


def test_a_server_with_another_name_for_the_limit_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURATION_MODEL_EXTRA", '{"max_completion_tokens": null, "max_tokens": 800}')
    assert settings().curation_model_extra == {"max_completion_tokens": None, "max_tokens": 800}


def test_the_site_is_named_without_a_slash_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_URL", "https://example.com/")
    assert settings().site_url == "https://example.com"


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURATION_MODEL_KEY", "hunter2 hunter3")
    with pytest.raises(SettingsError) as refused:
        settings()
    assert "CURATION_MODEL_KEY='***': it must be printable ASCII without blanks" in str(refused.value)
    assert "hunter" not in str(refused.value)
    monkeypatch.setenv("CURATION_MODEL_KEY", "hunter2")
    assert "hunter" not in repr(settings())


def test_a_data_folder_that_is_a_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TASKS_DATA", "file")
    with pytest.raises(SettingsError, match="TASKS_DATA='file': there is a file of that name"):
        settings()


def test_no_error_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", "bogus://user:hunter2@host/0?password=hunter2")
    with pytest.raises(SettingsError) as refused:
        settings()
    assert "hunter2" not in str(refused.value)
    assert "bogus://***@host/0" in str(refused.value)


def test_the_configuration_is_json_late_and_bounded() -> None:
    conf = app.conf
    assert conf.task_serializer == conf.result_serializer == "json"
    assert conf.accept_content == ["json"]
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.enable_utc
    assert conf.redis_socket_timeout == conf.broker_transport_options["socket_timeout"] == 2.0


def test_every_scheduled_task_exists_and_expires_with_its_slot() -> None:
    app.loader.import_default_modules()
    schedule = app.conf.beat_schedule
    assert set(schedule) == {"curation", "sitemap", "rewards", "watchdog"}
    assert schedule["curation"]["schedule"] == crontab(minute="*/15")
    assert schedule["curation"]["options"] == {"expires": 900}
    assert {entry["task"] for entry in schedule.values()} <= set(app.tasks)

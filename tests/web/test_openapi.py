"""The description of the API is true: generated requests get the answers that it promises."""

from typing import Any

import pytest
import schemathesis
from celery import Celery
from hypothesis import HealthCheck, settings

from celery_lease.web import create_app
from tests.web.server import SECRET, Web

# Only the description is taken from this one; the requests go to a running server.
NOWHERE = Celery("described", broker="redis://127.0.0.1:1/0", set_as_current=False)
SCHEMA = schemathesis.openapi.from_dict(create_app(NOWHERE, secret=SECRET).openapi())

JOBS = ["barrier", "nobody", "per_tenant"]


@schemathesis.hook
def map_path_parameters(_context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Names that are there among those that are not."""
    if path_parameters and "job" in path_parameters:
        path_parameters["job"] = JOBS[len(str(path_parameters["job"])) % len(JOBS)]
    return path_parameters


@schemathesis.hook
def map_query(_context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Waits that do not last."""
    if query and isinstance(query.get("wait"), (int, float)) and 0 < query["wait"] <= 60:
        query["wait"] = query["wait"] / 1000
    return query


@pytest.mark.parametrize("operation", ["GET /api/cron/{job}", "POST /api/cron/{job}"])
def test_triggers_are_described_with_all_their_answers(operation: str) -> None:
    method, path = operation.split()
    described = SCHEMA.raw_schema["paths"][path][method.lower()]
    assert described["responses"].keys() == {
        *("200", "202", "401", "404", "409", "410", "422", "429", "500", "503"),
    }
    assert described["security"] == [{"bearer": []}]


@SCHEMA.parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_every_answer_is_one_that_is_described(case: schemathesis.Case[Any], web: Web) -> None:
    case.call_and_validate(base_url=web.url, headers={"Authorization": f"Bearer {SECRET}"})

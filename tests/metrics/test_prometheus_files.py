"""The rule file and the dashboard, against the metrics that there are, and replayed by promtool."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics.test_collector import NAMES
from tests.nodes.missing import missing

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
REPLAYS = ROOT / "deploy" / "prometheus" / "rules_test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.json"

SERIES = NAMES - {"celery_lease_runs", "celery_lease_run_duration_seconds"} | {
    "celery_lease_runs_total",
    "celery_lease_run_duration_seconds_bucket",
    "celery_lease_run_duration_seconds_sum",
    "celery_lease_run_duration_seconds_count",
}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("promtool"):
        missing("promtool is not installed (Debian: the package prometheus)")
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def expressions() -> list[str]:
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    variables = [
        variable["definition"] for variable in dashboard()["templating"]["list"] if "definition" in variable
    ]
    return [rule["expr"] for rule in rules()] + targets + variables


def test_prometheus_understands_the_rules() -> None:
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_incident_replayed_fires_the_alerts_within_the_first_hour() -> None:
    tested = promtool("test", "rules", REPLAYS)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    first_hour = [
        check["alertname"]
        for check in yaml.safe_load(REPLAYS.read_text())["tests"][0]["alert_rule_test"]
        if check.get("exp_alerts") and int(check["eval_time"].removesuffix("m")) <= 60
    ]
    assert set(first_hour) == {"CurationOverdue", "JobSkipsInARow"}


def test_every_rule_is_seen_firing_and_seen_silent() -> None:
    checks = [
        check for test in yaml.safe_load(REPLAYS.read_text())["tests"] for check in test["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in rules()}
    assert {check["alertname"] for check in checks if check.get("exp_alerts")} == names
    assert {check["alertname"] for check in checks if not check.get("exp_alerts")} >= names - {
        "JobLostItsLease",  # as JobAbandoned
        "JobMissed",
    }


def test_a_replay_of_other_rules_fails(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES.read_text().replace(">= 3", ">= 300"))
    (tmp_path / "replay.yml").write_text(REPLAYS.read_text())
    assert promtool("test", "rules", tmp_path / "replay.yml").returncode != 0


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_that_is_asked_for_exists(expression: str) -> None:
    asked = set(re.findall(r"celery_lease_\w+", expression))
    assert asked
    assert asked <= SERIES
    assert set(re.findall(r"(\w+)\s*=~?\s*\"", expression)) <= {"job_name", "outcome"}


def test_every_metric_is_on_the_dashboard() -> None:
    asked = set(re.findall(r"celery_lease_\w+", " ".join(expressions())))
    assert SERIES - asked == {
        "celery_lease_run_duration_seconds_sum",
        "celery_lease_run_duration_seconds_count",
    }


def test_every_runbook_section_that_a_rule_names_is_there() -> None:
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    named = {rule["annotations"].get("runbook", "").partition("#")[2] for rule in rules()} - {""}
    assert named
    assert named <= anchors


def test_the_dashboard_can_be_imported_and_its_panels_do_not_overlap() -> None:
    content = dashboard()
    assert content["id"] is None
    assert content["uid"]
    assert content["schemaVersion"] >= 39
    panels = content["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${DS}"}
    for one, other in itertools.combinations((panel["gridPos"] for panel in panels), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)

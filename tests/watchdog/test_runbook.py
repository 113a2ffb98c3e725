"""The runbook has an answer to every alert, and begins with the line that would have saved three hours."""

import re
from pathlib import Path

import pytest

from celery_lease import _watchdog

RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
RULES = re.findall(r"^\| `(\w+)` \|", _watchdog.__doc__ or "", re.MULTILINE)


def test_the_first_line_says_where_to_look_first() -> None:
    first = RUNBOOK.splitlines()[2]
    assert first == "**If curation ever looks idle, look at `cron:{curation}` first.**"


def test_every_rule_of_the_watchdog_is_known_here() -> None:
    assert len(RULES) == 10


@pytest.mark.parametrize("rule", RULES)
def test_every_alert_has_a_section_that_starts_with_the_command_to_type(rule: str) -> None:
    assert re.search(rf"^## {rule}\n\n```\ncelery -A tasks ", RUNBOOK, re.MULTILINE)


def test_every_link_inside_leads_somewhere() -> None:
    sections = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", RUNBOOK, re.MULTILINE)}
    assert set(re.findall(r"\(#([\w-]+)\)", RUNBOOK)) <= sections

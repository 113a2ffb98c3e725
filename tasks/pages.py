"""The pages of the public site, as HTML: plain, without scripts, and whole in any browser."""

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tasks.facts import Fodmap, Gluten, Lactose, State
from tasks.ingredients import Part
from tasks.knowledge import shipped
from tasks.published import Listed
from tasks.tables import AnswerRow, IngredientRow

#: What the pages need beside themselves: path → media type and content.
STATIC = {
    f"/{name}": (media_type, (files("tasks") / "static" / name).read_bytes())
    for name, media_type in (("answers.css", "text/css"), ("answers.svg", "image/svg+xml"))
}
_VERSION = sha256(b"".join(content for _, content in STATIC.values())).hexdigest()[:12]

# Everything the pages need comes from here, nothing is run, and the only form asks this site.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

#: What each state means; an answer is a word, and this is its sentence.
MEANINGS = {
    State.AVOID: "It contains gluten, or enough of a FODMAP or of lactose to matter in a usual serve.",
    State.CAUTION: "It depends on how much of it there is, or on a mark on the pack; the reason says which.",
    State.NO_TRIGGER_KNOWN: "Nothing is known in it that this list looks for. That is not a promise.",
    State.UNKNOWN: "The name does not tell what is inside, or nothing is known about it.",
}

_GLUTEN = {
    Gluten.NONE: "none known",
    Gluten.EXEMPT: "made from a cereal with gluten, and free of the duty to declare it in the EU",
    Gluten.UNKNOWN: "unknown",
    Gluten.DEPENDS: "depends on the product",
    Gluten.OATS: "oats: only if sold as gluten-free",
    Gluten.CONTAINS: "contains gluten",
}
_LACTOSE = {
    Lactose.NONE: "none known",
    Lactose.TRACE: "a trace, below 0.1 g in 100 g",
    Lactose.LOW: "low, 0.1 to 2 g in 100 g",
    Lactose.DEPENDS: "depends on the product",
    Lactose.HIGH: "high, 2 g or more in 100 g",
}
_FODMAP = {Fodmap.NONE: "none known", Fodmap.UNKNOWN: "unknown", Fodmap.GOS: "GOS"}


class Origin(NamedTuple):
    """A row of the knowledge behind an answer: its name, how far to trust it, and where it comes from."""

    name: str
    confidence: str
    sources: tuple[str, ...]


def html(template: str, headers: Mapping[str, str], status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page."""
    text = _jinja.get_template(template).render(**context)
    return HTMLResponse(text, status, {"Content-Security-Policy": _POLICY, **headers})


def answer_page(
    ingredient: IngredientRow, answer: AnswerRow, address: str, headers: Mapping[str, str]
) -> HTMLResponse:
    """Return the page of an answer, whose public address is given."""
    decision = json.loads(answer.decision)
    known = shipped().known(Part.from_json(json.loads(ingredient.part)))
    versions = decision.get("versions")
    facts = {
        "Gluten": _GLUTEN[Gluten(answer.gluten)],
        "FODMAP": ", ".join(_fodmap(Fodmap(name)) for name in answer.fodmap.split(";")),
        "Lactose": _LACTOSE[Lactose(answer.lactose)],
    } | ({"E-number": answer.e_number} if answer.e_number else {})
    return html(
        "answer.html",
        headers,
        name=ingredient.name,
        state=answer.state,
        reason=answer.reason,
        facts=facts,
        # A person's word stands for itself: it need not follow from the knowledge.
        by_a_person=versions is None,
        versions=versions,
        same_knowledge=versions is not None and versions["kb"] == shipped().version,
        origins=[Origin(row.name, row.confidence, tuple(map(_title, row.sources))) for row in known.rows],
        complete=known.complete,
        decided=datetime.fromisoformat(answer.decided_at),
        address=address,
    )


def list_page(
    found: Sequence[Listed],
    *,
    more: bool,
    total: int,
    asked: Mapping[str, Any],
    site: str,
    headers: Mapping[str, str],
) -> HTMLResponse:
    """Return a page of the list.

    Args:
        found: the answers on it.
        more: there are others after them.
        total: how many answers there are, whatever was asked for.
        asked: what was asked for: `q`, `state` and `after`, each of which may be nothing.
        site: the root of the site.
        headers: of the response.
    """
    given = {name: value for name, value in asked.items() if value and name != "after"}
    following = urlencode(given | {"after": found[-1].id}) if more else ""
    return html(
        "answers.html",
        headers,
        found=found,
        following=following,
        beginning=urlencode(given),
        total=total,
        asked=asked,
        filtered=bool(given),
        address=f"{site}/answers",
    )


def _fodmap(name: Fodmap) -> str:
    return _FODMAP.get(name) or name.replace("_", " ")


def _title(code: str) -> str:
    return _sources().get(code, code)


@cache
def _sources() -> dict[str, str]:
    text = (files("tasks") / "data" / "sources.csv").read_text(encoding="utf-8")
    return {row["code"]: row["title"] for row in csv.DictReader(text.splitlines())}


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tasks"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["day"] = _day
    environment.globals |= {"meanings": MEANINGS, "version": _VERSION}
    return environment


_jinja = _environment()

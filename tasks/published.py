"""What the public site shows of the answers: lists of them, one of them, and where each has its page.

The address of an answer, `/answers/412-wheat-flour`, is made of its number, by which it is found, and of the
words in its name, for people. Neither changes. ASCII letters, digits and hyphens need no percent-encoding,
however odd or long the name is. The words must fit the number: in a database that was made anew, an old link
ends nowhere rather than at the answer for something else.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tasks.facts import State
from tasks.store import Store
from tasks.tables import AnswerRow, IngredientRow

#: How many numbers of answers one part of the sitemap covers; the protocol allows 50,000 addresses in a file.
#: Part 1 holds the answers 1 to 40,000, part 2 those to 80,000: a new answer changes one part alone.
ANSWERS_IN_A_PART = 40_000

#: The greatest number that the databases have for an answer.
GREATEST_ID = 2**31 - 1
# Rows that are read at once, each time in a transaction of its own: a slow reader holds up nobody.
_ROWS = 1000
_WORDS_CHARACTERS = 60
_IS_ANSWERED = AnswerRow.ingredient_id == IngredientRow.id
_ADDRESS = re.compile(r"(?P<id>[1-9][0-9]{0,9})(?:-(?P<words>[a-z0-9-]+))?")


class Listed(NamedTuple):
    """An answer in a list."""

    id: int
    name: str
    state: str
    reason: str

    @property
    def path(self) -> str:
        """Where its page is."""
        return path_of(self.id, self.name)


class Entry(NamedTuple):
    """An answer in the sitemap."""

    path: str
    decided_at: str


class Part(NamedTuple):
    """A part of the sitemap, numbered from 1: how many answers are in it, and when it last changed."""

    number: int
    answers: int
    decided_at: str


def path_of(answer_id: int, name: str) -> str:
    """Return the path of an answer's page."""
    words = "-".join(re.findall("[a-z0-9]+", name))[:_WORDS_CHARACTERS].rstrip("-")
    return f"/answers/{answer_id}-{words}" if words else f"/answers/{answer_id}"


def id_in(address: str) -> int | None:
    """Return the number in the last part of a path; None if it is not one of an answer."""
    match = _ADDRESS.fullmatch(address)
    number = int(match["id"]) if match else 0
    return number if 0 < number <= GREATEST_ID else None


def one(session: Session, answer_id: int) -> tuple[IngredientRow, AnswerRow] | None:
    """Return an answer and what it is for; None if there is none of that number."""
    query = select(IngredientRow, AnswerRow).join(AnswerRow, _IS_ANSWERED)
    found = session.execute(query.where(AnswerRow.ingredient_id == answer_id)).one_or_none()
    return (found[0], found[1]) if found else None


def count(session: Session) -> int:
    """Return how many answers there are."""
    return int(session.scalars(select(func.count(AnswerRow.ingredient_id))).one())


def listed(
    session: Session, words: Sequence[str], state: State | None, after: int | None, limit: int
) -> list[Listed]:
    """Return answers by name.

    Args:
        session: a transaction of the store.
        words: normalised; each must occur in the name.
        state: the state that they must have; None for any.
        after: the number of the answer before the first of them; None to begin with the first there is.
        limit: how many at most.
    """
    columns = (IngredientRow.id, IngredientRow.name, AnswerRow.state, AnswerRow.reason)
    query = select(*columns).join(AnswerRow, _IS_ANSWERED).order_by(IngredientRow.name).limit(limit)
    for word in words:
        query = query.where(IngredientRow.name.contains(word, autoescape=True))
    if state is not None:
        query = query.where(AnswerRow.state == state.value)
    if after is not None:
        before = select(IngredientRow.name).where(IngredientRow.id == after).scalar_subquery()
        query = query.where(IngredientRow.name > before)
    return [Listed(*row) for row in session.execute(query)]


def parts(session: Session) -> list[Part]:
    """Return the parts of the sitemap that hold answers, in order."""
    number = (AnswerRow.ingredient_id - 1) // ANSWERS_IN_A_PART + 1
    query = (
        select(number, func.count(AnswerRow.ingredient_id), func.max(AnswerRow.decided_at))
        .group_by(number)
        .order_by(number)
    )
    return [Part(*row) for row in session.execute(query)]


def entries(store: Store, part: int) -> Iterator[list[Entry]]:
    """Yield the answers of a part of the sitemap in the order of their numbers, some at a time."""
    columns = (IngredientRow.id, IngredientRow.name, AnswerRow.decided_at)
    query = select(*columns).join(AnswerRow, _IS_ANSWERED).order_by(AnswerRow.ingredient_id).limit(_ROWS)
    last = part * ANSWERS_IN_A_PART
    after = last - ANSWERS_IN_A_PART
    while True:
        some = query.where(AnswerRow.ingredient_id > after, AnswerRow.ingredient_id <= last)
        with store.reading() as session:
            rows = session.execute(some).all()
        yield [Entry(path_of(row.id, row.name), row.decided_at) for row in rows]
        if len(rows) < _ROWS:
            return
        after = rows[-1].id

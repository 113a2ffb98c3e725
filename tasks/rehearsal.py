"""A rehearsal: what a pass of the curation would do, without asking, spending or writing anything."""

from celery.utils.log import get_task_logger

from tasks.desk import question_about
from tasks.engine import Verdict, decide, screen, versions
from tasks.knowledge import Knowledge
from tasks.model import Model
from tasks.money import Budgets, Prices
from tasks.proposer import Proposer
from tasks.store import Due, Store

logger = get_task_logger("tasks.curation")

#: Of a task: what it did, as JSON.
Result = dict[str, int | str]


def rehearse(store: Store, proposer: Proposer, knowledge: Knowledge, limit: int) -> Result:
    """Return the verdicts that a pass with a free proposer would come to; each is logged."""
    found = dict.fromkeys(Verdict, 0)
    items = store.due(versions(knowledge, proposer.version).key, limit)
    for item in items:
        refused = screen(item.part, knowledge, proposer.version)
        question = question_about(item)
        decision = refused or decide(question, proposer.propose(question), knowledge, proposer.version)
        found[decision.verdict] += 1
        answer = decision.answer
        said = f"{answer.state} ({answer.reason})" if answer else f"{decision.verdict} ({decision.reason})"
        logger.info("would answer %s: %s", item.name, said)
    return _result(items, {f"would_be_{verdict}": count for verdict, count in found.items()})


def rehearse_asking(
    store: Store, model: Model, knowledge: Knowledge, limit: int, prices: Prices, budgets: Budgets
) -> Result:
    """Return how many calls a pass with a model would begin, and the most that they would cost."""
    items = store.due(versions(knowledge, model.version).key, limit)
    left = _left(store, budgets)
    calls = most = to_human = 0
    for item in items:
        if screen(item.part, knowledge, model.version):
            to_human += 1
            continue
        request = model.request(question_about(item))
        cost = prices.cost(request.most_tokens_in, request.most_tokens_out)
        if most + cost > left:
            logger.info("would stop there: %s micro-units are left of the budgets", left - most)
            break
        calls, most = calls + 1, most + cost
        logger.info("would ask about %s, for %s micro-units at most", item.name, cost)
    return _result(items, {"would_ask": calls, "would_cost_at_most": most, "would_be_needs_human": to_human})


def _left(store: Store, budgets: Budgets) -> int:
    spent = store.spent()
    left_of_day, left_of_month = budgets.of_day - spent.of_day, budgets.of_month - spent.of_month
    return max(min(budgets.of_pass, left_of_day, left_of_month), 0)


def _result(items: list[Due], found: dict[str, int]) -> Result:
    # Nothing was done: as a run it must not count as work.
    return {"dry_run": True, "worked": 0, "due": len(items), **found}

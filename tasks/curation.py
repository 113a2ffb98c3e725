"""The job `curation`: a proposer proposes answers for ingredients without one, the engine disposes.

What the engine accepts is written under the fence of the run; what it does not accept is logged with its
reason and kept too, so that nobody is asked the same again until the rules, the knowledge or the proposer
change. With `CURATION_MODEL_URL` the proposer is a model that costs money (`tasks.asking`), without it the
lexicon.
"""

from contextlib import closing

from celery.utils.log import get_task_logger

from celery_lease import current_lease, leased_task
from tasks.asking import Asking, Terms
from tasks.desk import Counts, Desk, Lease, question_about
from tasks.knowledge import Knowledge, shipped
from tasks.model import Endpoint, Model
from tasks.money import Budgets, Prices
from tasks.proposer import LexiconProposer, Proposer
from tasks.rehearsal import Result, rehearse, rehearse_asking
from tasks.settings import Settings, settings
from tasks.store import Store

logger = get_task_logger(__name__)

# A pass ends by itself before the first; they only end one that hangs, before the next is due in 15 minutes.
_PASS_SECONDS = 11.5 * 60
_SOFT_LIMIT_SECONDS = 12 * 60
_HARD_LIMIT_SECONDS = 13 * 60


class Blocked(Exception):  # noqa: N818  # named like the outcomes it sits beside
    """The model cannot be asked until a person changes something: the key, the address, the account."""


# A run that lost its lease stops: its writes would be refused anyway, asking may cost money, and the next run
# takes up what this one leaves.
@leased_task(
    name="curation", on_lost="abort", soft_time_limit=_SOFT_LIMIT_SECONDS, time_limit=_HARD_LIMIT_SECONDS
)
def curate(*, dry_run: bool = False) -> Result:
    """Judge up to `CURATION_BATCH` ingredients; return how many, by verdict, what it cost and what is left.

    Args:
        dry_run: only show what would be done; spend and write nothing.

    Raises:
        Blocked: the endpoint refuses to serve us; what was done before stays done.
    """
    knowledge = shipped()
    # Opened here and closed here: no connection may cross the fork of the worker's processes.
    with Store.open(settings().database_url, read_only=dry_run) as store:
        if settings().curation_model_url:
            with closing(Model(_endpoint(settings()), knowledge)) as model:
                return _with_model(store, model, knowledge, dry_run=dry_run)
        proposer = LexiconProposer(knowledge)
        if dry_run:
            return rehearse(store, proposer, knowledge, settings().curation_batch)
        return run_pass(store, proposer, knowledge, current_lease(), settings().curation_batch).to_result()


def _with_model(store: Store, model: Model, knowledge: Knowledge, *, dry_run: bool) -> Result:
    limit, terms = settings().curation_batch, _terms(settings())
    if not any(terms.prices):
        logger.warning("CURATION_PRICE_IN and _OUT are 0: what the model costs is not counted, nor bounded")
    if dry_run:
        return rehearse_asking(store, model, knowledge, limit, terms.prices, terms.budgets)
    counts = ask_pass(store, model, knowledge, current_lease(), limit, terms)
    if counts.blocked:
        done = ", ".join(f"{count} {word}" for word, count in counts.to_result().items())
        raise Blocked(f"{counts.blocked}; see to the account and the CURATION_MODEL_ settings ({done})")
    return counts.to_result()


def _endpoint(given: Settings) -> Endpoint:
    return Endpoint(
        url=given.curation_model_url,
        name=given.curation_model_name,
        key=given.curation_model_key.get_secret_value(),
        timeout_seconds=given.curation_model_timeout,
        extra=given.curation_model_extra,
    )


def _terms(given: Settings) -> Terms:
    return Terms(
        # The same for every copy of a message, so that a copy does not ask again what the first one asked.
        delivery=curate.request.id or current_lease().token,
        prices=Prices(given.curation_price_in, given.curation_price_out),
        budgets=Budgets(given.curation_budget_pass, given.curation_budget_day, given.curation_budget_month),
        concurrency=given.curation_model_concurrency,
        seconds=_PASS_SECONDS,
    )


def run_pass(store: Store, proposer: Proposer, knowledge: Knowledge, lease: Lease, limit: int) -> Counts:
    """Judge up to `limit` ingredients with a proposer that costs nothing.

    Raises:
        StaleFence: a newer run has claimed; what this one wrote before stays, and is sound.
        LeaseLost: the lease can no longer be trusted, and the job was told to stop then.
    """
    desk = Desk(store, knowledge, proposer.version, lease)
    for item in desk.open(limit):
        lease.check()
        if not desk.screened(item):
            desk.judge(item, proposer.propose(question_about(item)))
    return desk.close()


def ask_pass(
    store: Store, model: Model, knowledge: Knowledge, lease: Lease, limit: int, terms: Terms
) -> Counts:
    """Judge up to `limit` ingredients with a model, on terms.

    Raises:
        StaleFence: as `run_pass`; what was under way is lost, and counts as spent.
        LeaseLost: as above.
    """
    desk = Desk(store, knowledge, model.version, lease)
    Asking(desk, model, terms).run(desk.open(limit))
    return desk.close()

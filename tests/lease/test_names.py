"""Names of leases out of arguments, and keys of Redis out of names: never two the same."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from hypothesis import assume, example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from celery_lease import LeaseError, hold
from celery_lease._keys import Keys, check_template, render
from tests.support.leases import leased

texts = st.text()  # lone surrogates, too: JSON can carry them
tricky = st.text("{}:%-/ \n\t\"'\\17aä\x00\x7f", max_size=6)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | tricky
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | tricky, inner, max_size=3),
    max_leaves=5,
)


def one(tenant: Any = "acme") -> Any:
    return tenant


def two(left: Any, right: Any = 7, *rest: Any, deep: bool = False) -> Any:
    return left, right, rest, deep


def name(template: str, run: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    check_template(template, run, "job")
    return render(template, run, args, kwargs)


def as_sent(*arguments: Any) -> str:
    """Two calls are the same if their messages are."""
    return json.dumps(arguments, sort_keys=True)


def test_positional_keyword_and_default_arguments_give_the_same_name() -> None:
    assert name("export:{tenant}", one) == "export:acme"
    assert name("export:{tenant}", one, "acme") == "export:acme"
    assert name("export:{tenant}", one, tenant="acme") == "export:acme"
    every = "x:{left}/{right}/{rest}/{deep}"
    assert name(every, two, "a") == "x:a/7/[]/false"
    assert name(every, two, "a", 7) == "x:a/7/[]/false"
    assert name(every, two, left="a") == "x:a/7/[]/false"
    assert name(every, two, right=7, left="a", deep=False) == "x:a/7/[]/false"


def test_arguments_that_the_template_does_not_name_make_no_difference() -> None:
    assert name("x:{left}", two, "a", 1, 2, 3, deep=True) == name("x:{left}", two, "a")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("acme", "acme"),
        ("Zoë", "Zoë"),
        (7, "7"),
        ("7", '"7"'),
        (True, "true"),
        ("true", '"true"'),
        (None, "null"),
        ([1, "a"], '[1,%20"a"]'),
        ({"b": 1, "a": 2}, '%7B"a"%3A%202,%20"b"%3A%201%7D'),
        ("", ""),
        ("a b", "a%20b"),
        ("a:b", "a%3Ab"),
        ("50%", "50%25"),
        ("{x}", "%7Bx%7D"),
        ("a\nb", "a%0Ab"),
        ("\u2028", "%E2%80%A8"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_an_argument_is_written_so_that_it_can_be_read(value: Any, text: str) -> None:
    assert name("x:{tenant}", one, value) == f"x:{text}"


def test_a_template_without_fields_is_the_name() -> None:
    assert name("nightly", one, "anything") == "nightly"
    assert name("set {{a}}", one) == "set {a}"


@given(left=values, right=values)
@example(left="7", right=7)
@example(left='"7"', right="7")
@example(left="a%3Ab", right="a:b")
@example(left={"a": 1}, right='{"a": 1}')
@example(left=1, right=1.0)
@example(left=None, right="null")
def test_different_arguments_give_different_names_and_equal_ones_the_same(left: Any, right: Any) -> None:
    same_name = name("x:{tenant}", one, left) == name("x:{tenant}", one, right)
    assert same_name == (as_sent(left) == as_sent(right))


@pytest.mark.parametrize(
    "template",
    [
        "x:{left}:{right}",
        "{left}-{right}",
        "{left}1{right}",
        "{left}a.b{right}",
        "{left}ä{right}",
        "{left}{{{right}",
        "{left}-{right}-{left}",
    ],
)
@given(first=st.tuples(values, values), second=st.tuples(values, values))
@example(first=("a-b", "c"), second=("a", "b-c"))
@example(first=("a:b", "c"), second=("a", "b:c"))
@example(first=("x1y", "z"), second=("x", "y1z"))
@example(first=(21, 3), second=(2, 13))
@example(first=("pa.bq", "c"), second=("p", "qa.bc"))
@example(first=("aäb", "c"), second=("a", "bäc"))
def test_two_fields_never_run_into_each_other(
    template: str, first: tuple[Any, Any], second: tuple[Any, Any]
) -> None:
    assume(as_sent(*first) != as_sent(*second))
    assert name(template, two, *first) != name(template, two, *second)


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("x:{customer}", "{customer}"),
        ("x:{0}", "{0}"),
        ("x:{}", "{}"),
        ("x:{tenant.id}", "{tenant.id}"),
        ("x:{tenant[id]}", "{tenant[id]}"),
        ("x:{tenant!r}", "{tenant}"),
        ("x:{tenant:>10}", "{tenant}"),
        ("x:{tenant", "x:{tenant"),
        ("x:tenant}", "x:tenant}"),
    ],
)
def test_a_template_that_the_arguments_cannot_fill_is_refused_by_name(template: str, named: str) -> None:
    with pytest.raises(LeaseError) as caught:
        check_template(template, one, "export")
    assert named in str(caught.value)
    assert "'export'" in str(caught.value)
    assert repr(template) in str(caught.value)


@pytest.mark.parametrize("template", ["x:{left}{right}", "x:{left}%{right}"])
def test_two_fields_that_nothing_keeps_apart_are_refused(template: str) -> None:
    with pytest.raises(LeaseError, match=r"put something after \{left\}"):
        check_template(template, two, "export")


def test_a_bad_template_is_refused_when_the_task_is_made_and_not_when_it_runs(app: Celery) -> None:
    with pytest.raises(LeaseError, match="customer"):
        leased(app, "export", lease="x:{customer}")(one)


def test_the_first_argument_of_a_bound_task_is_not_one_of_the_templates(app: Celery) -> None:
    def export(self: Any, tenant: str) -> None: ...

    with pytest.raises(LeaseError, match="self"):
        leased(app, "export", bind=True, lease="x:{self}")(export)


@pytest.mark.parametrize("call", [((), {}), (("a",), {"left": "b"}), (("a",), {"unknown": 1})])
def test_arguments_that_do_not_fit_the_job_are_a_type_error(call: tuple[Any, Any]) -> None:
    args, kwargs = call
    with pytest.raises(TypeError):
        render("x:{left}", two, args, kwargs)


def test_an_argument_without_a_text_form_is_refused_by_name() -> None:
    with pytest.raises(LeaseError, match="'tenant' of type object"):
        name("x:{tenant}", one, object())


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_blank_name_is_refused(app: Celery, blank: str) -> None:
    with pytest.raises(LeaseError, match="blank"), hold(blank, app=app):
        pytest.fail("entered")


def test_a_name_that_no_store_can_write_down_is_refused(app: Celery) -> None:
    with pytest.raises(LeaseError, match="surrogates"), hold("job\ud800", app=app):
        pytest.fail("entered")


names = texts | tricky


@given(left=names, right=names)
@example(left="a:fence", right="a")
@example(left="a}:fence", right="a")
@example(left="%7B", right="{")
def test_no_key_of_one_name_is_a_key_of_another(left: str, right: str) -> None:
    assume(left != right)
    assert not set(Keys("cron:", left).all) & set(Keys("cron:", right).all)


@given(text=names, prefix=st.sampled_from(["cron:", "", "acme/cron:"]))
def test_all_keys_of_a_name_are_in_one_slot_of_a_cluster(text: str, prefix: str) -> None:
    assume(text)
    keys = Keys(prefix, text)
    slot_of: Any = key_slot
    slots = {slot_of(key.encode()) for key in [*keys.all, keys.alive("nonce")]}
    assert len(slots) == 1
    assert slots == {slot_of(keys.lease.removeprefix(prefix)[1:-1].encode())}


@given(text=names)
def test_a_key_has_no_blank_and_no_control_character_that_a_shell_would_trip_over(text: str) -> None:
    key = Keys("cron:", text).lease
    assert not any(character.isspace() or ord(character) < 32 for character in key)
    assert key.count("{") == key.count("}") == 1


def test_keys_are_spelt_as_the_runbook_says() -> None:
    assert Keys("cron:", "curation").all == [
        "cron:{curation}",
        "cron:{curation}:fence",
        "cron:{curation}:slot",
        "cron:{curation}:done",
        "cron:{curation}:ledger",
        "cron:{curation}:runs",
    ]
    assert Keys("cron:", "export:acme inc").lease == "cron:{export%3Aacme%20inc}"

"""Splitting an amount: exact to the last unit, fair, and the same for everybody who does it."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.currency import NoCurrency, exponent, shown
from tasks.periods import Period
from tasks.settlement import Counted, Share, Terms, drafts
from tasks.split import split

SPLITS = 20_000
NAMES = [f"contributor {number}" for number in range(40)]


def shuffled(weights: dict[str, int], dice: random.Random) -> dict[str, int]:
    names = list(weights)
    dice.shuffle(names)
    return {name: weights[name] for name in names}


def assert_fair(amount: int, weights: dict[str, int], shares: dict[str, int]) -> None:
    total = sum(weights.values())
    assert sum(shares.values()) == (amount if total else 0)
    assert shares.keys() == {name for name, weight in weights.items() if weight}
    for name, share in shares.items():
        assert abs(share - Fraction(amount * weights[name], total)) < 1


def test_twenty_thousand_random_splits_are_exact_fair_and_the_same_in_any_order() -> None:
    dice = random.Random(20_260_914)
    for _ in range(SPLITS):
        amount = dice.choice((0, 1, 7, 100, 99_999, 10**6, 10**15)) + dice.randrange(100)
        names = dice.sample(NAMES, dice.randint(0, 12))
        weights = {name: dice.choice((0, 1, 1, 2, 3, 50, 10**6)) for name in names}
        shares = split(amount, weights, "2026-10")
        assert_fair(amount, weights, shares)
        assert split(amount, shuffled(weights, dice), "2026-10") == shares


@given(
    st.integers(0, 2**63 - 1),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**40), max_size=30),
    st.text(),
)
def test_any_amount_and_any_names_are_split_exactly(amount: int, weights: dict[str, int], salt: str) -> None:
    shares = split(amount, weights, salt.encode("utf-8", "ignore").decode())
    assert_fair(amount, weights, shares)
    assert all(shares[a] <= shares[b] + 1 for a in shares for b in shares if weights[a] <= weights[b])


def test_the_units_left_over_go_to_the_largest_fractions() -> None:
    assert split(100, {"a": 1, "b": 2, "c": 4}, "") == {"a": 14, "b": 29, "c": 57}


def test_equal_weights_do_not_favour_the_same_names_every_month() -> None:
    weights = dict.fromkeys("abc", 1)
    wins = dict.fromkeys(weights, 0)
    for month in range(300):
        shares = split(100, weights, f"month {month}")
        assert sorted(shares.values()) == [33, 33, 34]
        wins[max(shares, key=lambda name: shares[name])] += 1
    assert all(70 < won < 130 for won in wins.values()), wins


def test_a_label_without_a_name_earns_nothing_however_it_says_so() -> None:
    month = Period(2026, 9)
    answers = [Counted(n, name, month) for n, name in enumerate(("", "anonymous", "Anonymous", "anna"))]
    (draft,) = drafts([month], answers, 0, Terms(100, "EUR"))
    assert draft.shares == [Share("anna", 1, 100)]


def test_what_is_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="an amount of -1"):
        split(-1, {"a": 1}, "")
    with pytest.raises(ValueError, match="by weights from -2"):
        split(1, {"a": 1, "b": -2}, "")


@pytest.mark.parametrize(
    ("amount", "code", "text"),
    [
        (1_234_567, "EUR", "12,345.67 EUR"),
        (-5, "EUR", "-0.05 EUR"),
        (1_234_567, "JPY", "1,234,567 JPY"),
        (1_234_567, "KWD", "1,234.567 KWD"),
        (0, "EUR", "0.00 EUR"),
        (1_234, "XXY", "1,234 minor units of XXY"),
    ],
)
def test_an_amount_is_shown_with_the_digits_of_its_currency(amount: int, code: str, text: str) -> None:
    assert shown(amount, code) == text


def test_what_is_no_currency_is_refused() -> None:
    for code in ("EUX", "XAU", "eur"):
        with pytest.raises(NoCurrency, match=code):
            exponent(code)

"""Advice as a whole: ranking, what can be added, what a demand costs under commitments, what-if, and judging on later usage."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import owned, what_if
from pricing.advice import KINDS, Advice, Case, advise
from pricing.advice_cost import cost_of
from pricing.advice_judge import after, judge
from pricing.advice_rank import chosen, collide, ranked
from pricing.demand import Demand, DemandKey
from pricing.errors import TermsError
from pricing.owned import Commitment
from pricing.rate_card import FileCard
from pricing.terms import Terms
from tests.support.advising import (
    P4D,
    P5,
    START,
    action,
    card_of,
    demand_of,
    reservation,
)
from tests.support.examples import examples

RATES = {P4D: {"on_demand": "20", "reserved_1y": "12", "reserved_3y": "9"}, P5: {"on_demand": "50", "reserved_1y": "31"}}
NOW = START + timedelta(days=60)
HOURS = 60 * 24


def steady(level: float, swing: float = 0.0, hours: int = HOURS, seed: int = 3) -> list[float]:
    rng = np.random.default_rng(seed)
    return [
        float(max(0, round(level + swing * np.sin(hour / 24 * 2 * np.pi) + rng.normal(0, swing / 4 + 1e-9))))
        for hour in range(hours)
    ]


def case_of(counts: dict[DemandKey, list[float]], card: FileCard | None = None, **more: object) -> Case:
    return Case(demand_of(counts), card_of(RATES) if card is None else card, NOW, **more)  # type: ignore[arg-type]


# --- ranking and adding up ---------------------------------------------------------------------------------------------


def test_what_saves_most_comes_first_and_what_saves_nothing_is_not_told() -> None:
    case = case_of({P4D: [4.0] * 24})
    advice = ranked(case, [action(5), action(0), action(-3), action(9), action(7, kind="spot")], ["a note"])
    assert [float(one.saving_per_month) for one in advice.actions] == [9, 7, 5]
    assert "a note" in advice.notes and advice.spend_per_month == 4 * 20 * 730


def test_the_same_node_is_never_saved_on_twice() -> None:
    case = case_of({P4D: [4.0] * 24})
    advice = ranked(case, [action(9, nodes=("a", "b")), action(7, nodes=("b",)), action(5, nodes=("c",))], [])
    assert advice.overlaps == ((1,), (0,), ()) and advice.together == (0, 2)
    assert advice.saving_per_month == 14 and advice.saving_range == (7, 14)


def test_what_runs_on_spot_already_is_claimed_apart() -> None:
    demand = replace(demand_of({P4D: [4.0] * 24}), bought={P4D: {"spot": np.ones(24)}})
    case = Case(demand, card_of({P4D: {"on_demand": "20", "spot": "8"}}), NOW)
    spot = action(30, kind="spot", claims={P4D: Fraction(4 * 730)})
    there = action(5, kind="move", claims={P4D.as_spot(): Fraction(730)})
    advice = ranked(case, [spot, there], [])
    assert advice.shares == {0: Fraction(3, 4), 1: 1}, "three nodes are left to go to spot; the fourth is there"


def test_of_a_group_only_one_counts() -> None:
    advice = ranked(case_of({P4D: [4.0]}), [action(9, group="x"), action(7, group="x"), action(5)], [])
    assert advice.together == (0, 2) and advice.overlaps[1] == (0,)


def test_node_hours_are_claimed_once_and_what_can_be_scaled_takes_what_is_left() -> None:
    case = case_of({P4D: [4.0] * 24})
    stop, commit = action(10, claims={P4D: Fraction(730)}), action(9, kind="commit", claims={P4D: Fraction(4 * 730)})
    spot = action(40, kind="spot", partial=True, claims={P4D: Fraction(4 * 730)})
    advice = ranked(case, [stop, commit, spot], [])
    assert [one.kind for one in advice.actions] == ["spot", "stop", "commit"]
    assert advice.shares == {1: 1, 0: Fraction(3, 4)}, "what is sure first; spot for the three nodes that are left"
    assert advice.saving_per_month == 10 + 30 and advice.overlaps[0] == (1, 2)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 100), st.sampled_from(KINDS), st.integers(0, 3000), st.sampled_from(("", "g", "h")),
            st.sets(st.sampled_from("abcd"), max_size=2), st.booleans(),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_whatever_is_counted_together_can_be_done_together(drawn: list[tuple]) -> None:  # type: ignore[type-arg]
    actions = [
        action(
            saving, kind=kind, claims={P4D: Fraction(claim)} if claim else {}, group=group, nodes=tuple(nodes), partial=partial
        )
        for saving, kind, claim, group, nodes, partial in drawn
    ]
    hours = {P4D: Fraction(2920)}
    shares = chosen(actions, hours)
    picked = [actions[place] for place in shares]
    claimed = sum((actions[place].claims.get(P4D, Fraction(0)) * share for place, share in shares.items()), Fraction(0))
    assert claimed <= hours[P4D] * (1 + Fraction(1, 1000))
    nodes = [node for one in picked for node in one.nodes]
    groups = [one.group for one in picked if one.group]
    assert len(nodes) == len(set(nodes)) and len(groups) == len(set(groups))
    assert all(0 < share <= 1 for share in shares.values())
    assert all(collide(one, other, hours) == collide(other, one, hours) for one in picked for other in picked)


# --- the cost ------------------------------------------------------------------------------------------------------------


def test_a_demand_costs_its_on_demand_rate_and_the_spot_rate_where_it_runs_on_spot() -> None:
    demand = demand_of({P4D: [3.0, 1.0, 0.0, 2.0]})
    card = card_of({P4D: {"on_demand": "20", "spot": "7"}})
    assert cost_of(demand, card, ()).total == 120
    on_spot = replace(demand, bought={P4D: {"spot": np.array([1.0, 1.0, 0.0, 0.0])}})
    found = cost_of(on_spot, card, ())
    assert (found.total, found.spot, found.uncovered) == (2 * 7 + 4 * 20, 14, 80)


def test_a_commitment_is_paid_used_or_not_and_covers_hour_by_hour() -> None:
    demand = demand_of({P4D: [3.0, 1.0, 0.0, 2.5]})
    found = cost_of(demand, card_of(RATES), [reservation(2, "12")])
    assert found.committed == 4 * 2 * 12 and found.unused == (0 + 1 + 2 + 0) * 12
    assert found.uncovered == Fraction("1.5") * 20 and found.total == 96 + 30
    later = reservation(2, "12", START + timedelta(hours=2))
    assert cost_of(demand, card_of(RATES), [later]).committed == 2 * 2 * 12


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.booleans(), st.booleans())
def test_all_hours_at_once_cost_what_they_cost_one_by_one(seed: int, plans: bool, parts: bool) -> None:
    rng = np.random.default_rng(seed)
    demand = demand_of({P4D: [float(n) / 2 for n in rng.integers(0, 9, 40)], P5: [float(n) for n in rng.integers(0, 3, 40)]})
    minutes = int(rng.integers(1, 2000)) if parts else 120
    held = [
        reservation(2, "12", START + timedelta(minutes=minutes)),
        reservation(1, "13", days=1, id="s"),
        reservation(1, "31", key=P5, id="t"),
    ]
    if plans:
        plan = replace(
            reservation(1, "0", id="u"),
            kind="savings_plan",
            instance_type=None,
            cost_per_hour=Fraction(31),
            percent=Fraction(25),
        )
        held += [plan, replace(plan, id="v", family="p5", percent=Fraction(40), cost_per_hour=Fraction(17))]
    found = cost_of(demand, card_of(RATES), held)
    ways = [cost_of(demand, card_of(RATES), held, most_exact=most) for most in (0, 10**9)]
    slow = [_one_by_one(demand, held, hour) for hour in range(demand.hours)]
    assert found.total == ways[1].total == sum(slow) and abs(ways[0].total - found.total) < Fraction(1, 10**3)
    assert found.committed == ways[0].committed and abs(ways[0].unused - found.unused) < Fraction(1, 10**3)


def _one_by_one(demand: Demand, held: list[Commitment], place: int) -> Fraction:
    hour = demand.first_hour + place
    prices = {P4D: Fraction(20), P5: Fraction(50)}
    demands = {}
    for key, price in prices.items():
        plans = {one.id: price * (1 - one.percent / 100) for one in held if one.percent is not None}
        spot = owned.Place("aws", key.region, None, key.instance_type, "on_demand")
        demands[key] = owned.Demand(spot, Fraction(demand.counts[key][place]), price, plans)
    found = owned.cover(held, demands, hour)
    left = sum(
        (demands[key].node_hours - (found.covered[key].hours if key in found.covered else 0)) * price
        for key, price in prices.items()
    )
    return left + sum((one.whole_cost * one.part_of_hour(hour) for one in held), Fraction(0))


def test_hours_that_are_not_known_cost_nothing_and_a_key_without_a_price_is_named() -> None:
    demand = demand_of({P4D: [3.0, 9.0, 3.0], DemandKey(None, "r", "x"): [1.0] * 3}, known=[True, False, True])
    found = cost_of(demand, card_of(RATES), [reservation(1, "12")])
    assert found.committed == 24 and found.total == 24 + 4 * 20
    assert [str(key) for key, _ in found.unpriced] == ["x in r"] and found.priced_hours == 6


def test_an_unknown_type_is_kept_noted_and_marks_the_answer_as_partial() -> None:
    odd = DemandKey(None, "us-east-1", "p9.huge")
    with_odd, without = (
        advise(case_of(counts), ("commit",)) for counts in ({P4D: steady(6), odd: steady(2)}, {P4D: steady(6)})
    )
    assert with_odd.partial and any("p9.huge in us-east-1" in note for note in with_odd.notes)
    assert [one.saving_per_month for one in with_odd.actions] == [one.saving_per_month for one in without.actions]


# --- the laws of advice --------------------------------------------------------------------------------------------------


def bought_at_the_start(advice: Advice, demand: Demand) -> list[Commitment]:
    """All that is advised together, held over the evidence."""
    first = round(demand.start.timestamp() * 1000)
    return [
        replace(one, starts_ms=first, ends_ms=first + one.ends_ms - one.starts_ms)
        for place in advice.together
        for one in advice.actions[place].buys
    ]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 12), st.integers(0, 6), st.integers(0, 4), st.integers(0, 999), st.integers(1, 19), st.booleans())
def test_advice_never_raises_the_cost_of_the_evidence_it_was_computed_from(
    level: int, swing: int, other: int, seed: int, rate: int, owns: bool
) -> None:
    card = card_of({P4D: {"on_demand": "20", "reserved_1y": str(rate)}, P5: {"on_demand": "50", "savings_plan_1y": "33"}})
    owned = (reservation(2, "12"),) if owns else ()
    demand = demand_of({P4D: steady(level, swing, seed=seed), P5: steady(other, 1, seed=seed + 1)})
    advice = advise(Case(demand, card, NOW, Terms(commitments=owned)), ("commit",))
    before = cost_of(demand, card, owned)
    after_ = cost_of(demand, card, (*owned, *bought_at_the_start(advice, demand)))
    assert after_.total <= before.total
    saved = (before.total - after_.total) * 730 / HOURS
    assert abs(saved - advice.saving_per_month) <= Fraction(1, 50) * (1 + len(advice.actions))


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(("1/3", "0.07", "2", "1000")), st.integers(0, 999))
def test_scaling_all_prices_scales_the_savings_and_nothing_else(factor: str, seed: int) -> None:
    counts = {P4D: steady(7, 3, seed=seed), P5: steady(3, 1, seed=seed)}
    one, other = (advise(case_of(counts, card_of(RATES, scale)), ("commit",)) for scale in (Fraction(1), Fraction(factor)))
    assert other.saving_per_month == one.saving_per_month * Fraction(factor)
    assert [action.what for action in other.actions] == [action.what for action in one.actions]
    assert other.together == one.together


def test_prices_that_are_not_known_change_nothing() -> None:
    counts = {P4D: steady(7, 3)}
    plain = advise(case_of(counts))
    more = {**RATES, DemandKey("aws", "us-west-2", "p4d.24xlarge"): {}, P4D: dict(RATES[P4D])}
    assert [one.what for one in advise(case_of(counts, card_of(more))).actions] == [one.what for one in plain.actions]


def test_a_history_that_is_too_short_gives_no_commitment_and_says_so() -> None:
    advice = advise(case_of({P4D: [6.0] * 24 * 3}), ("commit",))
    assert not advice.actions and any("too short" in note for note in advice.notes)


def test_without_any_usage_there_is_nothing_to_advise_and_no_error() -> None:
    advice = advise(case_of({P4D: [0.0] * HOURS}))
    assert not advice.actions and advice.saving_per_month == 0


# --- judging -------------------------------------------------------------------------------------------------------------


def test_what_was_advised_is_judged_on_usage_that_it_did_not_see() -> None:
    whole = demand_of({P4D: [6.0] * HOURS + [2.0] * 240})
    case = Case(whole.between(START, NOW), card_of(RATES), NOW)
    advice = advise(case, ("commit",))
    (bought,) = [one for place in advice.together for one in advice.actions[place].buys]
    found = judge(advice, case, after(case, whole))
    assert found is not None and found.later.hours == 240
    assert found.without.total == 240 * 2 * 20
    expected = 240 * (bought.whole_cost + max(0, 2 - bought.count) * 20)
    assert found.with_advice.total == expected and found.together.realised == 240 * 40 - expected
    assert found.together.advised == advice.saving_per_month * Fraction(240, 730)
    assert found.hindsight == 240 * 2 * (20 - bought.cost_per_hour), "two were the best number"
    assert found.together.used_ratio == pytest.approx(2 / bought.count)
    assert found.count == bought.count


def test_nothing_bought_is_nothing_to_judge() -> None:
    case = case_of({P4D: [0.0] * HOURS})
    assert judge(advise(case), case, demand_of({P4D: [2.0] * 24}, NOW)) is None


# --- what if -------------------------------------------------------------------------------------------------------------


def changes(folder: Path, text: str) -> what_if.WhatIf:
    file = folder / "what-if.toml"
    file.write_text(text)
    return what_if.load(file)


def test_a_changed_price_demand_and_commitment_change_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    case = case_of({P4D: [4.0] * HOURS, P5: [1.0] * HOURS}, terms=Terms(commitments=(reservation(1, "12"),)))
    text = (
        '[demand]\nfactor = "2"\n[[demand.types]]\ninstance_type = "p5.*"\nfactor = "3"\n'
        '[[prices]]\npurchase = "on_demand"\ninstance_type = "p4d.*"\nfactor = "0.5"\n'
        '[[prices]]\npurchase = "reserved_1y"\ninstance_type = "p5.48xlarge"\nusd_per_hour = "25"\n'
        '[deadline]\nhours = "72"\n'
    )
    other = changes(tmp_path, text).applied(case)
    assert other.demand.counts[P4D].max() == 8 and other.demand.counts[P5].max() == 3
    on_demand, reserved = other.card.on_demand(P4D), other.card.rates(P5, "reserved_1y")
    assert on_demand is not None and on_demand.usd_per_hour == 10
    assert [rate.usd_per_hour for rate in reserved] == [25] and other.card.on_demand(P5) == case.card.on_demand(P5)
    assert other.deadline_hours == 72 and other.terms == case.terms
    assert other.card.rates(P5, "spot") == [], "what is not known stays so"


def test_a_price_that_nobody_knew_can_be_supposed_and_what_matches_nothing_is_said(tmp_path: Path) -> None:
    case = case_of({P4D: steady(5)}, card_of({P4D: {"on_demand": "20"}}))
    supposed = changes(
        tmp_path,
        '[[prices]]\ninstance_type = "p4d.*"\npurchase = "reserved_1y"\nusd_per_hour = "11"\n'
        '[[prices]]\npurchase = "savings_plan_1y"\nfactor = "0.5"\n[[demand.types]]\ninstance_type = "p9*"\nfactor = "2"\n',
    )
    assert not advise(case, ("commit",)).actions
    (action,) = advise(supposed.applied(case), ("commit",)).actions
    assert action.what.startswith("reserve 5 p4d.24xlarge") and action.evidence["rate_source"] == "what-if; was not known"
    assert supposed.unmatched(case) == ["The demand of p9* changes nothing: no such type is in the evidence."]


def test_other_commitments_stand_instead_of_those_owned(tmp_path: Path) -> None:
    case = case_of({P4D: [4.0] * 24}, terms=Terms(commitments=(reservation(1, "12"),)))
    assert changes(tmp_path, 'own = "none"').applied(case).terms.commitments == ()
    text = (
        '[[commitments]]\nid = "x"\nkind = "reservation"\ncloud = "aws"\nregion = "us-east-1"\ninstance_type = "p4d.24xlarge"\n'
        'count = 3\nhourly = "11"\nfrom = 2026-01-01\nto = 2027-01-01\n'
    )
    (one,) = changes(tmp_path, text).applied(case).terms.commitments
    assert (one.count, one.cost_per_hour) == (3, 11)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "changes nothing"),
        ("[demand", "not valid TOML"),
        ('[demand]\nfactr = "2"', "unknown key `demand.factr`; did you mean `factor`"),
        ("[demand]\nfactor = 2.0", "must be a decimal number as text"),
        ('[demand]\nfactor = "-2"', "at least 0"),
        ('[[prices]]\npurchase = "spott"\nfactor = "2"', "did you mean 'spot'"),
        ('[[prices]]\npurchase = "spot"', "is to be given, or else `usd_per_hour`"),
        ('[[prices]]\nfactor = "0"', "above 0"),
        ('[[prices]]\npurchase = "spot"\nusd_per_hour = "3"', "name both"),
        ("[[commitments]]\nid = 'x'", "`commitments\\[1\\].kind` is missing"),
        ("[deadline]\nhours = 0", "as text"),
    ],
)
def test_a_wrong_what_if_is_one_sentence_with_file_and_key(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(TermsError, match=sentence):
        changes(tmp_path, text)


def test_both_sides_stand_beside_each_other_whatever_their_numbers(tmp_path: Path) -> None:
    case = case_of({P4D: steady(6), P5: steady(2)})
    now = advise(case, ("commit",))
    then = advise(changes(tmp_path, '[[prices]]\npurchase = "on_demand"\nfactor = "0.7"').applied(case), ("commit",))
    pairs = what_if.side_by_side(now, then)
    assert {id(pair.now) for pair in pairs if pair.now} == {id(one) for one in now.actions}
    assert {id(pair.then) for pair in pairs if pair.then} == {id(one) for one in then.actions}
    assert sum((pair.change for pair in pairs), Fraction(0)) == sum(
        (one.saving_per_month for one in then.actions), Fraction(0)
    ) - sum((one.saving_per_month for one in now.actions), Fraction(0))
    assert any(pair.now is not None and pair.then is not None for pair in pairs)


def test_the_same_case_gives_the_same_advice() -> None:
    case = case_of({P4D: steady(7, 3), P5: steady(3, 1)})
    one, other = advise(case), advise(case)
    assert one == other and datetime(2026, 1, 1, tzinfo=UTC) < case.now

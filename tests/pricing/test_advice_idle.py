"""Idle advice: what is idle and what only seems so, who holds it, what stopping, shrinking and sharing would save."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction

import pytest

from pricing.advice import Action, Advice, Case, advise
from pricing.advice_shrink import _pack
from pricing.catalog import Catalog
from pricing.demand import from_ledger
from pricing.fleet_read import read_fleet
from pricing.ledger_retention import retain
from pricing.rate_card import CatalogCard, RateCard
from pricing.terms import Terms
from pricing.usage import Owned
from tests.support.advising import P4D, START, Node, card_of, ledger_with, reservation

CARD = card_of({P4D: {"on_demand": "20", "spot": "8"}})
WEEK = 24 * 8
BUSY = ("ann", 0.9)
IDLE = (None, 0.0)


def case_with(
    nodes: Sequence[Node], hours: int = WEEK, card: RateCard = CARD, terms: Terms = Terms(), **options: object
) -> Case:  # noqa: B008
    with ledger_with(nodes, hours) as ledger:
        demand = from_ledger(ledger, 0, 2**50)
        fleet = read_fleet(ledger, 0, 2**50, int(options.get("idle_days", 7)))  # type: ignore[call-overload]
    return Case(demand, card, START + timedelta(hours=hours), terms, fleet, options=options)


def idle(nodes: Sequence[Node], hours: int = WEEK, **more: object) -> Advice:
    return advise(case_with(nodes, hours, **more), ("stop", "shrink"))  # type: ignore[arg-type]


def stops(advice: Advice) -> list[Action]:
    return [action for action in advice.actions if action.kind == "stop"]


def test_a_node_that_nobody_held_is_stopped_for_its_whole_price() -> None:
    (action,) = stops(idle([Node("busy", BUSY), Node("lazy", IDLE)]))
    assert action.what == "stop 1 idle p4d.24xlarge in us-east-1 (on demand; nobody held it): lazy"
    assert action.saving_per_month == 20 * 730 and action.saving_range == (20 * 730, 20 * 730)
    evidence = action.evidence
    assert (evidence["nodes"], evidence["days"], evidence["node_hours"]) == (["lazy"], 7, 168.0)
    assert (evidence["utilization_ratio"], evidence["held_ratio"], evidence["measured_ratio"]) == (0.0, 0.0, 1.0)
    assert not action.partial and action.nodes == ("lazy",) and action.claims == {P4D: 730}
    assert any("aws ec2 stop-instances --region us-east-1" in line for line in action.how)
    assert action.calls[0].operation == "stop_instances" and action.calls[0].parameters["DryRun"] is True


def test_a_node_that_is_held_and_hardly_used_names_its_holder_and_counts_the_use_against_the_saving() -> None:
    (action,) = stops(idle([Node("busy", BUSY), Node("held", ("bob", 0.1))]))
    assert "held, but hardly used" in action.what
    assert action.saving_per_month == pytest.approx(20 * 730 * 0.9, rel=1e-6)
    assert action.saving_range == (0, 20 * 730), "all that is held may be needed"
    (holder,) = action.evidence["holders"]  # type: ignore[misc]
    assert holder == {
        "user": "bob", "project": "vision", "job": "job-bob", "nodes": ["held"], "gpu_hours": 1344.0, "utilization_ratio": 0.1,
    }  # fmt: skip
    assert any("ask them first" in risk for risk in action.risks)


@pytest.mark.parametrize("ratio", [None])
def test_an_unknown_utilisation_never_counts_as_idle_and_is_told(ratio: float | None) -> None:
    for holder in (None, "bob"):
        advice = idle([Node("busy", BUSY), Node("dark", (holder, ratio))])
        assert not stops(advice)
        assert any("1 node could not be judged" in note and "dark" in note for note in advice.notes)


def test_one_gpu_of_eight_that_is_not_measured_is_enough_not_to_judge() -> None:
    use = {gpu: ("bob", 0.05) for gpu in range(8)} | {3: ("bob", None)}
    assert not stops(idle([Node("busy", BUSY), Node("odd", use)]))


def test_too_few_days_are_told_and_fewer_can_be_asked_for() -> None:
    nodes = [Node("busy", BUSY), Node("lazy", IDLE)]
    short = idle(nodes, 24 * 3)
    assert not short.actions and any("3.0 days: too short to call a node idle, which takes 7" in note for note in short.notes)
    assert len(stops(idle(nodes, 24 * 3, idle_days=2))) == 1


def test_a_node_that_is_younger_than_the_window_is_not_judged() -> None:
    with ledger_with([Node("busy", BUSY)], WEEK) as ledger:
        Node("new", IDLE).put(ledger, 48, START + timedelta(hours=WEEK - 48))
        case = Case(from_ledger(ledger, 0, 2**50), CARD, START, fleet=read_fleet(ledger, 0, 2**50))
    advice = advise(case, ("stop",))
    assert not advice.actions and any("ran on fewer than 7 days" in note and "new" in note for note in advice.notes)


def test_a_node_that_is_gone_already_is_not_stopped_again() -> None:
    with ledger_with([Node("busy", BUSY)], 24 * 10) as ledger:
        Node("gone", IDLE).put(ledger, 24 * 8)
        case = Case(from_ledger(ledger, 0, 2**50), CARD, START, fleet=read_fleet(ledger, 0, 2**50))
    assert not advise(case, ("stop",)).actions


def test_one_busy_day_in_the_week_is_not_idle() -> None:
    weekly = Node("weekly", lambda hour, gpu: ("bob", 0.9) if hour // 24 == 5 else IDLE)
    assert not stops(idle([Node("busy", BUSY), weekly]))
    daily = Node("daily", lambda hour, gpu: ("bob", 0.9) if hour % 24 == 5 else IDLE)
    (action,) = stops(idle([Node("busy", BUSY), daily]))
    assert action.nodes == ("daily",) and action.evidence["busiest_day_ratio"] == 0.0375


def test_what_a_commitment_pays_for_saves_nothing_until_it_ends() -> None:
    nodes = [Node("busy", BUSY), Node("lazy-1", IDLE), Node("lazy-2", IDLE)]
    terms = Terms(commitments=(reservation(2, "12"),))
    advice = idle(nodes, terms=terms)
    (action,) = stops(advice)
    assert action.nodes == ("lazy-1",) and action.saving_per_month == 20 * 730, "three run, two are paid for: one may go"
    assert any("lazy-2" in note and "paid for by a commitment" in note and "until 2027-10-01" in note for note in advice.notes)
    labelled = idle([Node("lazy", IDLE, purchase="reserved_1y"), Node("busy", BUSY)])
    assert not stops(labelled) and any("paid for by a commitment" in note for note in labelled.notes)


def test_a_savings_plan_makes_the_saving_uncertain() -> None:
    from dataclasses import replace

    plan = replace(reservation(1, "5"), kind="savings_plan", instance_type=None, percent=Fraction(30))
    (action,) = stops(idle([Node("busy", BUSY), Node("lazy", IDLE)], terms=Terms(commitments=(plan,))))
    assert action.partial and any("savings plan may pay" in risk for risk in action.risks)


def test_spot_nodes_save_the_spot_price_and_are_terminated() -> None:
    (action,) = stops(idle([Node("busy", BUSY), Node("lazy", IDLE, purchase="spot")]))
    assert action.saving_per_month == 8 * 730 and any("terminate-instances" in line for line in action.how)


def test_an_owned_node_and_one_without_a_price_are_named_and_in_no_saving() -> None:
    nodes = [
        Node("cellar", IDLE, cloud="on_premises", instance_type=None, on_premises=Owned(200_000, 4)),  # type: ignore[arg-type]
        Node("odd", IDLE, instance_type="p9.huge"),
        Node("priced", IDLE, cloud="lambda", instance_type="gpu_8x", usd_per_hour="11.5"),
    ]
    advice = idle(nodes)
    (action,) = stops(advice)
    assert action.nodes == ("priced",) and action.saving_per_month == Fraction("11.5") * 730
    assert any("cellar" in note and "owned node" in note for note in advice.notes)
    assert any("odd" in note and "price of p9.huge in us-east-1 is not known" in note for note in advice.notes)


def test_gpus_that_are_held_all_week_and_hardly_used_are_to_be_released_by_their_holder() -> None:
    use = {gpu: ("bob", 0.04) if gpu < 3 else BUSY for gpu in range(8)}
    advice = idle([Node("mixed", use), Node("busy", BUSY)])
    (action,) = [one for one in advice.actions if "release" in one.what]
    assert (
        action.what == "release 3 GPUs that bob / vision / job-bob holds and uses to 4.0 % on p4d.24xlarge in us-east-1: mixed"
    )
    assert action.saving_per_month == pytest.approx(3 / 8 * 20 * 730 * 0.96, rel=1e-3)
    assert action.saving_range[0] == 0 and "rackrate job show job-bob" in action.how


def test_fewer_nodes_suffice_where_the_busiest_hour_fits_on_them() -> None:
    half = {gpu: BUSY for gpu in range(4)}
    advice = idle([Node(f"n{number}", half) for number in range(6)])
    (action,) = [one for one in advice.actions if "run the same jobs" in one.what]
    assert "on 4 instead of 6" in action.what and "at most 24 of 48 GPUs" in action.what
    assert action.saving_per_month == 2 * 20 * 730 and action.saving_range == (20 * 730, 3 * 20 * 730)
    assert len(action.nodes) == 6, "it counts on all of them, so nothing else may stop one of them"


def test_a_smaller_type_of_the_same_gpu_is_found_where_half_of_the_gpus_are_never_held() -> None:
    two = {gpu: BUSY for gpu in range(2)}
    node = Node("wide", two, instance_type="g5.48xlarge", gpu_model="A10G")
    card = CatalogCard(Catalog.embedded(), Terms(), START)
    (action,) = [one for one in idle([node], card=card).actions if "replace" in one.what]
    assert "replace 1 g5.48xlarge in us-east-1 (on demand) by g5.12xlarge: at most 2 of 8 GPUs were held" in action.what
    assert action.saving_per_month == (Fraction("16.288") - Fraction("5.672")) * 730


def test_lightly_used_gpus_share_with_a_slow_down_that_is_a_model() -> None:
    advice = idle([Node(f"n{number}", ("bob", 0.25)) for number in range(4)])
    (action,) = [one for one in advice.actions if "share GPUs" in one.what]
    assert (
        "MPS or MIG" in action.what
        and "32 lightly used GPUs" in action.what
        and "fits on 11, which frees 2 nodes" in action.what
    )
    assert action.partial and action.evidence["expected_slow_down"] == pytest.approx(1.124, abs=0.01)
    assert action.evidence["worst_slow_down"] == pytest.approx(1 + 0.25 * 0.5, abs=0.001)
    assert any("model" in risk for risk in action.risks) and any("memory" in risk for risk in action.risks)
    assert action.saving_range[0] == 2 * 20 * 730 and action.saving_per_month == 2 * 20 * 730


def test_gpus_of_unknown_use_are_shared_with_nobody() -> None:
    advice = idle([Node(f"n{number}", ("bob", None)) for number in range(4)])
    assert not any("share GPUs" in one.what for one in advice.actions)


def test_packing_never_fills_a_gpu_beyond_its_limit() -> None:
    packed = _pack([(0.45, 0.3), (0.4, 0.3), (0.3, 0.2), (0.1, 0.1), (0.05, 0.05)] * 5, 4)
    assert all(sum(busy for busy, _ in members) <= 0.8 + 1e-9 and len(members) <= 4 for members in packed.bins)
    assert sum(len(members) for members in packed.bins) == 25


def test_stopping_and_moving_the_same_node_are_not_added() -> None:
    advice = advise(case_with([Node("busy", BUSY), Node("lazy", IDLE)]), ("stop", "spot"))
    stop = next(place for place, one in enumerate(advice.actions) if one.kind == "stop")
    spot = next(place for place, one in enumerate(advice.actions) if one.kind == "spot")
    assert advice.shares[stop] == 1 and advice.shares.get(spot, Fraction(0)) <= Fraction(1, 2)


def test_rolled_up_hours_leave_nodes_judged_and_single_gpus_not() -> None:
    with ledger_with([Node("busy", BUSY), Node("lazy", IDLE)], WEEK) as ledger:
        retain(ledger, START + timedelta(hours=WEEK), START + timedelta(days=400))
        case = Case(from_ledger(ledger, 0, 2**50), CARD, START, fleet=read_fleet(ledger, 0, 2**50))
    advice = advise(case, ("stop", "shrink"))
    assert [action.nodes for action in advice.actions] == [("lazy",)]
    assert any("single GPUs are not judged" in note for note in advice.notes)


def test_names_from_outside_are_quoted_in_commands() -> None:
    nasty = "a; rm -rf $HOME `id`"
    (action,) = stops(idle([Node("busy", BUSY), Node(nasty, IDLE)]))
    assert f"'node:{nasty}'" in action.how[0] and f"'Name=tag:Name,Values={nasty}'" in action.how[1]
    words = shlex.split(action.how[1].partition("$(")[2].rpartition(")")[0])
    assert f"Name=tag:Name,Values={nasty}" in words


@pytest.mark.parametrize("factor", ["3", "1/7"])
def test_scaled_prices_scale_what_idle_advice_saves(factor: str) -> None:
    nodes = [
        Node("busy", BUSY),
        Node("lazy", IDLE),
        Node("held", ("bob", 0.1)),
        *(Node(f"n{n}", ("cho", 0.3)) for n in range(4)),
    ]
    scaled = card_of({P4D: {"on_demand": "20", "spot": "8"}}, Fraction(factor))
    one, other = idle(nodes), idle(nodes, card=scaled)
    assert [action.what for action in one.actions] == [action.what for action in other.actions]
    assert [action.saving_per_month * Fraction(factor) for action in one.actions] == [a.saving_per_month for a in other.actions]
    assert other.saving_per_month == one.saving_per_month * Fraction(factor)

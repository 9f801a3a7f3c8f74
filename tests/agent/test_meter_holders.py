"""Who holds a GPU, and shares that sum to exactly one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.meter_driver import inventory_known, reading_age_ms
from agent.meter_holders import HELD_BY_UNKNOWN, IDLE, LOST, WHOLE, Holder, held_by, holders_of, shares_of, tenure_of
from agent.meter_placement import decode_facts, encode_facts, placement_facts, refines
from tests.support.metering import ANN, BOB, INFO, gpu, lost, sample

XORG = wire.Process(pid=1, user="root", kind="graphics")
GHOST = wire.Process(pid=99, visible=False)


@given(st.integers(0, WHOLE), st.integers(1, 3000))
def test_shares_sum_to_what_is_shared_and_differ_by_a_millionth_at_most(amount: int, parties: int) -> None:
    shares = shares_of(amount, parties)
    assert sum(shares) == amount and max(shares) - min(shares) <= 1 and len(shares) == parties


def test_two_processes_of_one_user_and_job_are_one_holder() -> None:
    assert holders_of((BOB, wire.Process(pid=9, user="bob", job="j-7")), {}) == (Holder("bob", None, "j-7"),)


def test_holders_stand_in_the_same_order_whatever_the_driver_lists_first() -> None:
    assert holders_of((ANN, BOB), {}) == holders_of((BOB, ANN), {})


def test_a_display_server_beside_a_program_that_computes_holds_nothing() -> None:
    assert holders_of((XORG, ANN), {}) == (Holder("ann", "vision", None),)


def test_a_display_server_alone_holds_the_gpu() -> None:
    assert holders_of((XORG,), {}) == (Holder("root"),)


def test_a_process_that_cannot_be_resolved_is_a_holder_without_a_name() -> None:
    assert holders_of((GHOST, ANN), {"ann": "x"}) == (Holder(), Holder("ann", "vision"))


def test_each_state_of_a_gpu_has_its_tenure() -> None:
    assert tenure_of(gpu(0), {}) == IDLE
    assert tenure_of(lost(0), {}) == LOST
    assert tenure_of(gpu(0, processes=None), {}) == HELD_BY_UNKNOWN
    assert tenure_of(gpu(0, processes=None, state="unsupported"), {}) == HELD_BY_UNKNOWN
    assert tenure_of(gpu(0, ANN), {}) == held_by(Holder("ann", "vision"))


def test_silence_of_the_driver_is_no_inventory() -> None:
    assert not inventory_known(sample(ok=None)) and not inventory_known(sample(ok=False))
    assert inventory_known(sample(ok=True)) and inventory_known(sample(ok=None, reason="no driver"))
    assert inventory_known(sample(gpu(0), ok=None))


def test_the_age_of_a_reading_is_that_of_the_gpu_sensor() -> None:
    assert reading_age_ms(sample(age_ms=7000)) == 7000 and reading_age_ms(sample(ok=None)) == 0


def test_a_placement_refines_another_only_where_that_one_did_not_know() -> None:
    bare = placement_facts("n1", wire.NodeInfo(node="n1", gpus=()), 8, [None])
    full = placement_facts("n1", INFO, 8, ["H100"])
    assert refines(bare, full) and not refines(full, bare)
    assert not refines(bare, placement_facts("n1", INFO, 7, ["H100"]))


def test_models_that_differ_are_all_named() -> None:
    assert placement_facts("n1", INFO, 3, ["T4", "L4", "T4", None]).gpu_model == "L4 + T4"


def test_a_placement_is_read_as_it_was_written() -> None:
    facts = placement_facts("n1", wire.NodeInfo(node="n1", gpus=(), tags={"b": "2", "a": "1"}), 1, [])
    assert decode_facts(encode_facts(facts), 0) == facts and list(facts.tags) == ["a", "b"]

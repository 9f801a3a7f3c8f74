"""What jobs claim of a GPU is theirs from that moment on; the rest is others', or idle. Times as in test_meter.py."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.meter_claims import Claim, checked, claimed_tenure
from agent.meter_holders import LOST, WHOLE, Holder
from tests.support.metering import ANN, EVE, INFO, T0_MS, HandClock, Node, all_rows, check_cover, check_gpu_tiles, gpu, lost, ms, sample

ALL = Claim("ann", "vision", "j1", WHOLE)
HALF = Claim("ann", "vision", "j1", WHOLE // 2)
QUARTER = Claim("bob", None, "j2", WHOLE // 4)
OWN = wire.Process(pid=21, user="ann", project="vision", job="j1")
SERVER = wire.Process(pid=22, user="root", command="/usr/bin/nvidia-cuda-mps-server -d")
SCREEN = wire.Process(pid=23, user="root", kind="graphics")


@pytest.fixture
def node() -> Iterator[Node]:
    one = Node()
    yield one
    one.meter.close()


def parts(node: Node, gpu: str = "GPU-0") -> list[tuple[int, int, str, str | None, Decimal]]:
    """(start, end, kind, reason or job or user, share) of one GPU's rows."""
    return [
        (ms(row.starts_at) - T0_MS, ms(row.ends_at) - T0_MS, row.kind, row.reason or row.job or row.user, row.share)
        for row in node.rows()
        if row.gpu == gpu
    ]


def test_a_job_holds_its_gpu_from_the_moment_it_claims_it_until_it_lets_go(node: Node) -> None:
    node.see(0, gpu(0))
    node.hands.pass_ms(400)
    node.meter.claim({"GPU-0": (ALL,)})
    node.see(600, gpu(0, OWN))
    node.see(1000, gpu(0))
    node.hands.pass_ms(250)
    node.meter.claim({})
    node.see(750, gpu(0))
    assert parts(node) == [(0, 400, "idle", None, 1), (400, 2250, "held", "j1", 1), (2250, 3000, "idle", None, 1)]


def test_after_a_job_has_let_go_its_last_process_still_holds_the_gpu_until_it_is_gone(node: Node) -> None:
    node.meter.claim({"GPU-0": (HALF,)})
    node.see(0, gpu(0, OWN))
    node.hands.pass_ms(500)
    node.meter.claim({})
    node.see(500, gpu(0))
    node.see(1000, gpu(0))
    assert parts(node) == [
        (0, 500, "held", "j1", Decimal("0.5")), (0, 500, "idle", None, Decimal("0.5")),
        (500, 1000, "held", "j1", 1), (1000, 2000, "idle", None, 1),
    ]  # fmt: skip


def test_an_exclusive_claim_leaves_nothing_to_others(node: Node) -> None:
    node.meter.claim({"GPU-0": (ALL,)})
    node.see(0, gpu(0, EVE, OWN))
    node.see(1000, gpu(0))
    assert parts(node) == [(0, 1000, "held", "j1", 1)]


def test_what_is_not_claimed_is_shared_by_the_processes_of_others(node: Node) -> None:
    node.meter.claim({"GPU-0": (HALF, QUARTER)})
    node.see(0, gpu(0, OWN, EVE, ANN))
    node.see(1000, gpu(0))
    assert parts(node) == [
        (0, 1000, "held", "j1", Decimal("0.5")), (0, 1000, "held", "j2", Decimal("0.25")),
        (0, 1000, "held", "ann", Decimal("0.125")), (0, 1000, "held", "eve", Decimal("0.125")),
    ]  # fmt: skip


@pytest.mark.parametrize("process", [OWN, SERVER, SCREEN], ids=["its own", "the MPS server", "a display server"])
def test_these_processes_take_nothing_of_the_rest_of_a_claimed_gpu(node: Node, process: wire.Process) -> None:
    node.meter.claim({"GPU-0": (HALF,)})
    node.see(0, gpu(0, process))
    node.see(1000, gpu(0))
    assert [part[2:4] for part in parts(node)] == [("held", "j1"), ("idle", None)]


def test_the_rest_is_held_by_nobody_known_while_the_driver_does_not_tell(node: Node) -> None:
    node.meter.claim({"GPU-0": (HALF,)})
    node.see(0, gpu(0, processes=None))
    node.see(1000, gpu(0))
    assert [part[2:4] for part in parts(node)] == [("held", "j1"), ("held", None)]


def test_a_millionth_that_is_left_goes_to_one_of_the_others(node: Node) -> None:
    node.meter.claim({"GPU-0": (ALL._replace(share=WHOLE - 1),)})
    node.see(0, gpu(0, ANN, EVE))
    node.see(1000, gpu(0))
    assert [part[3:] for part in parts(node)] == [("j1", Decimal("0.999999")), ("ann", Decimal("0.000001"))]


def test_a_lost_gpu_is_not_the_jobs_whatever_it_claims(node: Node) -> None:
    node.meter.claim({"GPU-0": (ALL,), "GPU-1": (ALL,)})
    node.see(0, gpu(0, OWN), gpu(1, OWN))
    node.see(1000, lost(0))
    node.hands.pass_ms(500)
    node.meter.claim({"GPU-0": (HALF,), "GPU-1": (HALF,)})
    node.see(500, lost(0))
    node.see(1000, gpu(0), gpu(1))
    node.see(1000, gpu(0), gpu(1))
    assert parts(node)[:2] == [(0, 1000, "held", "j1", 1), (1000, 3000, "lost", "gpu_lost", 1)]
    assert parts(node, "GPU-1")[:2] == [(0, 1000, "held", "j1", 1), (1000, 3000, "lost", "gpu_missing", 1)]
    assert [part[2:4] for part in parts(node)[2:]] == [("held", "j1"), ("idle", None)]


def test_claims_made_before_the_first_sample_stand_from_the_beginning_also_of_a_gpu_not_seen_yet(node: Node) -> None:
    node.meter.claim({"GPU-1": (ALL,)})
    node.see(0, gpu(0))
    node.see(1000, gpu(0), gpu(1))
    node.see(1000, gpu(0), gpu(1))
    assert parts(node, "GPU-1") == [(1000, 2000, "held", "j1", 1)]


def test_after_a_restart_the_time_without_an_agent_is_down_and_the_claim_goes_on(tmp_path: Path) -> None:
    before = Node(tmp_path / "usage.db")
    before.meter.claim({"GPU-0": (ALL,)})
    before.see(0, gpu(0, OWN))
    before.hands.pass_ms(1000)
    before.meter.close()
    again = Node(tmp_path / "usage.db", before.hands)
    again.meter.claim({"GPU-0": (ALL,)})
    again.see(4000, gpu(0, OWN))
    again.see(1000, gpu(0, OWN))
    assert parts(again) == [(0, 1000, "held", "j1", 1), (1000, 5000, "down", "agent_stopped", 1), (5000, 6000, "held", "j1", 1)]
    again.meter.close()


def test_a_claim_made_while_the_driver_is_late_is_divided_by_what_it_last_told(node: Node) -> None:
    node.see(0, gpu(0, EVE))
    late = wire.Gpu(index=0, uuid="GPU-0", state="error", reason="the driver does not answer")
    node.see(6000, late, age_ms=6000)
    node.meter.claim({"GPU-0": (HALF,)})
    node.see(1000, late, age_ms=7000)
    node.see(1000, gpu(0))
    assert parts(node)[1:] == [(6000, 8000, "held", "j1", Decimal("0.5")), (6000, 8000, "held", "eve", Decimal("0.5"))]


def test_claims_between_two_samples_do_not_hide_that_nothing_was_measured() -> None:
    node = Node(stall_seconds=30)
    node.see(0, gpu(0))
    node.hands.pass_ms(20_000)
    node.meter.claim({"GPU-0": (ALL,)})
    node.see(20_000, gpu(0))
    assert parts(node)[-1] == (20_000, 40_000, "down", "stalled", 1)
    node.hands.pass_ms(31_000)
    node.meter.claim({})
    assert parts(node)[-1] == (40_000, 71_000, "down", "stalled", 1)
    node.meter.close()


def test_a_clock_that_is_set_forward_just_before_a_claim_is_one_step_and_no_stall(node: Node) -> None:
    node.see(0, gpu(0))
    node.hands.step_wall(3_600_000)
    node.hands.pass_ms(500)
    node.meter.claim({"GPU-0": (ALL,)})
    node.see(500, gpu(0))
    assert [part[2:4] for part in parts(node)] == [("idle", None), ("down", "clock_step"), ("held", "j1")]


def test_what_is_claimed_within_a_moment_begins_and_ends_when_the_caller_says_it_did(node: Node) -> None:
    node.see(0, gpu(0))
    node.hands.pass_ms(400)
    with node.meter.moment() as began:
        node.hands.pass_ms(70)  # a slow disk
        node.meter.claim({"GPU-0": (HALF,)})
        node.meter.claim({"GPU-0": (ALL,)})
    node.see(600, gpu(0))
    node.hands.step_wall(3_600_000)
    with node.meter.moment():  # finds the step
        node.hands.pass_ms(50)
    node.hands.pass_ms(100)
    with node.meter.moment() as ended:
        node.hands.pass_ms(90)
        node.meter.claim({})
    rows = parts(node)
    held = [part for part in rows if part[2] == "held"]
    assert [part[2:4] for part in rows if part[2] == "down"] == [("down", "clock_step")]
    assert ended - began == 820 == sum(end - start for start, end, *_ in held) and held[0][0] == 400
    assert {part[4] for part in held} == {1}, "what stood for no time has no row"


def test_the_same_claims_again_cut_nothing(node: Node) -> None:
    node.meter.claim({"GPU-0": (ALL,)})
    node.see(0, gpu(0))
    for _ in range(3):
        node.hands.pass_ms(500)
        node.meter.claim({"GPU-0": (ALL,), "GPU-7": ()})
        node.see(500, gpu(0))
    assert parts(node) == [(0, 3000, "held", "j1", 1)]


def test_a_claim_cuts_only_the_rows_of_its_own_gpu(node: Node) -> None:
    node.see(0, gpu(0, ANN), gpu(1, ANN))
    node.hands.pass_ms(500)
    node.meter.claim({"GPU-0": (ALL,)})
    node.see(500, gpu(0, ANN), gpu(1, ANN))
    assert parts(node, "GPU-1") == [(0, 1000, "held", "ann", 1)]


def test_energy_is_divided_by_the_shares_and_none_is_lost_by_a_claim(node: Node) -> None:
    node.see(0, gpu(0, energy_joules_total=1000.0))
    node.hands.pass_ms(250)
    node.meter.claim({"GPU-0": (HALF, QUARTER)})
    node.see(750, gpu(0, OWN, energy_joules_total=1400.0))
    node.see(1000, gpu(0, OWN, energy_joules_total=1800.0))
    assert {(row.kind, row.job): row.energy_joules for row in node.rows() if ms(row.starts_at) > T0_MS} == {
        ("held", "j1"): 400.0, ("held", "j2"): 200.0, ("idle", None): 200.0,
    }  # fmt: skip


def test_a_claim_without_a_project_has_that_of_its_user() -> None:
    node = Node(projects={"bob": "speech"})
    node.meter.claim({"GPU-0": (QUARTER, HALF)})
    node.see(0, gpu(0))
    node.see(1000, gpu(0))
    assert {row.user: row.project for row in node.rows() if row.user} == {"bob": "speech", "ann": "vision"}
    node.meter.close()


def test_nothing_is_claimed_of_a_closed_record(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0))
    node.hands.pass_ms(1000)
    node.meter.close()
    node.meter.claim({"GPU-0": (ALL,)})
    again = Node(tmp_path / "usage.db", node.hands)
    assert [row.kind for row in all_rows(again.meter)[0]] == ["idle"]
    again.meter.close()


@pytest.mark.parametrize(
    "claims",
    [(ALL, QUARTER), (HALF._replace(share=0),), (HALF._replace(share=-1),), (HALF._replace(share=WHOLE + 1),), (HALF, HALF)],
    ids=["more than one GPU", "nothing", "less than nothing", "more than all", "twice the same job"],
)
def test_claims_that_cannot_be_are_refused_and_change_nothing(node: Node, claims: tuple[Claim, ...]) -> None:
    node.meter.claim({"GPU-0": (HALF,)})
    with pytest.raises(ValueError, match="GPU-0"):
        node.meter.claim({"GPU-1": (HALF,), "GPU-0": claims})
    node.see(0, gpu(0), gpu(1))
    node.see(1000, gpu(0), gpu(1))
    assert {part[3] for part in parts(node)} == {"j1", None} and {part[3] for part in parts(node, "GPU-1")} == {None}


JOBS = st.sampled_from(["j1", "j2", "j3", None])
PROCESSES = st.lists(
    st.builds(
        wire.Process, pid=st.integers(1, 99), user=st.sampled_from(["ann", "bob", None]), job=JOBS,
        kind=st.sampled_from(["compute", "graphics", "mps"]), command=st.sampled_from([None, "python", "nvidia-cuda-mps-server"]),
    ),
    max_size=5,
)  # fmt: skip


@given(st.lists(st.integers(1, WHOLE), max_size=3), st.one_of(st.none(), PROCESSES), st.booleans())
def test_whatever_is_claimed_and_seen_the_parts_of_a_gpu_sum_to_one(
    weights: list[int], processes: list[wire.Process] | None, gone: bool
) -> None:
    claims = [Claim("ann", None, f"j{place}", max(1, one // 3)) for place, one in enumerate(weights, 1)]
    own = checked({"GPU-0": tuple(claims)}, {"ann": "vision"}).get("GPU-0", ())
    one = lost(0) if gone else gpu(0, processes=None if processes is None else tuple(processes))
    tenure = claimed_tenure(one, own, {"bob": "speech"})
    assert sum(part.share for part in tenure.parts) == WHOLE and all(part.share > 0 for part in tenure.parts)
    assert len({part[:2] for part in tenure.parts}) == len(tenure.parts)
    if gone:
        assert tenure == LOST
    else:
        held = {part.holder: part.share for part in tenure.parts if part.kind == "held"}
        assert all(held[Holder("ann", "vision", claim.job)] == claim.share for claim in claims)


def test_claims_that_change_every_second_leave_rows_that_tile() -> None:
    node = Node(hands=HandClock())
    for second in range(420):
        node.hands.pass_ms(377)
        share = WHOLE * (second % 7) // 7
        node.meter.claim({"GPU-0": (HALF._replace(job=f"j{second % 3}", share=share),)} if share else {})
        node.hands.pass_ms(623)
        node.meter.observe(sample(gpu(0, *[EVE] * (second % 2)), gpu(1), at_ms=node.hands.wall_ms), INFO)
    node.hands.pass_ms(1)
    node.meter._end(None)
    rows, placements = all_rows(node.meter)
    check_gpu_tiles(rows, "GPU-0")
    check_cover(rows, placements)
    held = float(sum(row.gpu_seconds for row in rows if row.job))
    assert held == pytest.approx(sum(second % 7 / 7 for second in range(420)), rel=1e-2)
    node.meter.close()

"""A GPU in MIG mode in the meter: who runs in an instance holds its part, and the rest is one idle row."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.meter_holders import HELD_BY_UNKNOWN, IDLE, LOST, WHOLE, Holder, Part, held_by, tenure_of
from agent.sensors.mig import Slices, parts
from tests.support.metering import ANN, BOB, EVE, Node, check_cover, check_sequences, gpu, lost

MIXED = (Slices(3, 3, 4), Slices(2, 2, 2), Slices(1, 1, 1), Slices(1, 1, 1))
"""3g.20gb, 2g.10gb and two of 1g.5gb on an A100."""
XORG = wire.Process(pid=1, user="root", kind="graphics")


def instances(*slices: Slices) -> tuple[wire.MigInstance, ...]:
    return tuple(
        wire.MigInstance(
            uuid=f"MIG-{place}", gpu_instance=7 + place, compute_instance=0, compute_slices=one.compute, memory_slices=one.memory,
            share=Decimal(share).scaleb(-6),
        )
        for place, (one, share) in enumerate(zip(slices, parts(slices, 7), strict=True))
    )  # fmt: skip


def sliced(*processes: wire.Process, slices: tuple[Slices, ...] = MIXED, **fields: object) -> wire.Gpu:
    given = {"mig_enabled": True, "mig_instances": instances(*slices), "utilization_ratio": None}
    return gpu(0, *processes, **(given | fields))


def inside(process: wire.Process, place: int) -> wire.Process:
    fields = {name: getattr(process, name) for name in ("pid", "user", "project", "job", "kind")}
    return wire.Process(mig_instance=f"MIG-{place}", **fields)


def test_each_holder_has_the_parts_of_the_instances_in_which_he_runs() -> None:
    tenure = tenure_of(sliced(inside(ANN, 0), inside(BOB, 1), inside(ANN, 3)), {"bob": "speech"})
    assert tenure.parts == (
        Part("held", Holder("ann", "vision"), 464_285 + 133_929),
        Part("held", Holder("bob", "speech", "j-7"), 267_857),
        Part("idle", share=133_929),
    )


def test_two_holders_in_one_instance_share_its_part() -> None:
    tenure = tenure_of(sliced(inside(ANN, 0), inside(EVE, 0)), {})
    assert [part.share for part in tenure.parts] == [232_143, 232_142, 535_715]


def test_instances_without_a_process_and_a_gpu_without_instances_are_idle() -> None:
    assert tenure_of(sliced(), {}) == IDLE == tenure_of(sliced(slices=()), {})


def test_what_the_driver_does_not_tell_is_held_by_nobody_known_and_never_idle() -> None:
    untold = tenure_of(sliced(processes=None), {})
    assert untold.parts == (Part("held", Holder(), WHOLE),)  # the four instances are the whole GPU
    seven = tenure_of(sliced(processes=None, slices=(Slices(1, 1, 1),) * 7), {})
    assert seven.parts == (Part("held", Holder(), 937_500), Part("idle", share=62_500))
    assert tenure_of(sliced(mig_instances=None, processes=None), {}) == HELD_BY_UNKNOWN
    assert tenure_of(sliced(inside(ANN, 0), BOB), {}) == held_by(Holder("ann", "vision"), Holder("bob", None, "j-7"))
    assert tenure_of(lost(0), {}) == LOST


def test_a_display_server_beside_an_instance_that_computes_holds_nothing() -> None:
    assert tenure_of(sliced(XORG, inside(ANN, 0)), {}).parts[0] == Part("held", Holder("ann", "vision"), 464_285)


ANYONE = st.builds(inside, st.sampled_from([ANN, BOB, EVE]), st.integers(0, 3))


@given(st.lists(st.tuples(st.lists(ANYONE, max_size=6), st.booleans()), max_size=12))
def test_rows_tile_the_time_with_one_gpu_whatever_runs_in_which_instance(readings: list[tuple[list[wire.Process], bool]]) -> None:
    node = Node(durable=False)
    for processes, known in ([], True), *readings:
        node.see(1_700, sliced(*processes, mig_instances=instances(*MIXED) if known else None))
    rows = node.rows()
    pages = node.meter.usage(0, 10_000)
    check_sequences(rows)
    check_cover(rows, {one.id: one for one in pages.placements})
    node.meter.close()

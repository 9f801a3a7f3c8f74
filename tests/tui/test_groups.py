"""Groups of nodes: each node in exactly one, and money that adds up."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from agent import wire
from tests.support.fleets import (
    AT,
    NOW,
    StubCatalog,
    gpu,
    idle_gpu,
    lost_gpu,
    put,
    small_fleet,
)
from tui.fleet import Fleet
from tui.gpu_strip import strip, strip_text
from tui.gpu_use import family, gpu_use
from tui.groups import NO_PROJECT, NOBODY, gpus_text, groupings, key_of, namer, split

TYPES = ("p4d.24xlarge", "p3.16xlarge", "p5.48xlarge", "g4dn.12xlarge", "x9.unheard")


def random_fleet(rng: Random, nodes: int) -> Fleet:
    """Nodes of all kinds: with and without a price, a state, tags, users, lost GPUs."""
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    for number in range(nodes):
        name = f"n{number:03}"
        kinds = [rng.choice((gpu, gpu, idle_gpu, lost_gpu)) for _ in range(rng.choice((0, 1, 4, 8, 16)))]
        users = [None if rng.random() < 0.1 else (rng.choice(("ada", "bob", "cy")),) for _ in kinds]
        gpus = tuple(
            gpu(i, node=name, util=rng.random(), users=who) if kind is gpu else kind(i, node=name)
            for i, (kind, who) in enumerate(zip(kinds, users, strict=True))
        )
        put(
            fleet, name, gpus, now=NOW - rng.choice((0, 0, 0, 8, 200)), instance_type=rng.choice(TYPES),
            region=rng.choice(("us-east-1", "eu-west-1", None)), cloud=rng.choice(("aws", "gcp", None)),
            tags={"team": rng.choice(("red", "blue"))} if rng.random() < 0.7 else {},
            drain=wire.Drain(since=AT, by="ada") if rng.random() < 0.1 else None,
        )  # fmt: skip
    if nodes:
        fleet.add("never", "http://127.0.0.1:1/")
    return fleet


@pytest.mark.parametrize("seed", range(20))
def test_each_node_is_in_one_group_and_the_money_of_groups_adds_up_exactly(seed: int) -> None:
    fleet = random_fleet(Random(seed), 30)
    whole = fleet.totals(NOW)
    assert "tag:team" in groupings(fleet)
    for by in groupings(fleet):
        parts = split(fleet, by, NOW)
        assert sorted(view.name for views in parts.values() for view in views) == sorted(view.name for view in fleet)
        assert len({key_of(by, name) for name in parts}) == len(parts)
        sums = [fleet.totals(NOW, [view.name for view in views]) for views in parts.values()]
        assert sum((each.usd_per_hour for each in sums), Fraction(0)) == whole.usd_per_hour
        assert sum((each.idle_usd_per_hour for each in sums), Fraction(0)) == whole.idle_usd_per_hour
        assert sum(each.gpus_held for each in sums) == whole.gpus_held and sum(each.nodes for each in sums) == whole.nodes
        free: dict[str, int] = {}
        for each in sums:
            for name, count in each.free:
                free[name] = free.get(name, 0) + count
        assert tuple(sorted(free.items())) == whole.free


def test_a_node_of_several_users_belongs_to_the_one_with_most_of_its_gpus() -> None:
    fleet = small_fleet()
    gpus = (*(gpu(i, users=("zoe",)) for i in range(3)), *(gpu(i, users=("ann", "bob")) for i in range(3, 5)), idle_gpu(5))
    put(fleet, "shared", gpus)
    put(fleet, "even", (gpu(0, users=("zoe",)), gpu(1, users=("ann",))))
    user = namer("user", NOW)
    assert user(fleet["shared"]) == "zoe" and user(fleet["even"]) == "ann", "of equals the first by name"
    put(fleet, "empty", (idle_gpu(0), idle_gpu(1)))
    assert user(fleet["empty"]) == NOBODY and namer("project", NOW)(fleet["empty"]) == NOBODY
    assert user(fleet["mystery"]) is None, "the driver does not tell"
    assert user(fleet["never"]) is None and namer("cloud", NOW)(fleet["never"]) is None


def test_a_job_without_a_project_is_counted_as_such_and_an_allocation_counts_before_it_runs() -> None:
    fleet = Fleet()
    given = wire.GpuAllocation(job="1", user="ada", project=None, share=1)  # type: ignore[arg-type]
    put(fleet, "n", (gpu(0, users=(), allocations=(given,)), idle_gpu(1)))
    assert namer("project", NOW)(fleet["n"]) == NO_PROJECT and namer("user", NOW)(fleet["n"]) == "ada"


def test_a_node_that_drains_is_a_state_of_its_own_and_its_gpus_are_not_free() -> None:
    fleet = Fleet()
    put(fleet, "d", (idle_gpu(0),), drain=wire.Drain(since=AT, by="ada"))
    put(fleet, "l", (idle_gpu(0),), now=NOW - 200)
    put(fleet, "ok", (idle_gpu(0), idle_gpu(1), gpu(2), lost_gpu(3)))
    assert [namer("state", NOW)(view) for view in fleet] == ["draining", "lost", "live"]
    assert fleet.totals(NOW).free == (("A100", 2),)


@pytest.mark.parametrize(
    ("model", "name"),
    [("NVIDIA A100-SXM4-40GB", "A100"), ("NVIDIA H100 80GB HBM3", "H100"), ("Tesla T4", "T4"), ("NVIDIA GeForce RTX 4090", "RTX 4090"),
     ("NVIDIA RTX A6000", "RTX A6000"), ("Tesla V100-SXM2-16GB", "V100"), (None, "GPU"), ("", "GPU"), ("NVIDIA", "GPU"), ("-", "-")],
)  # fmt: skip
def test_the_family_of_a_model(model: str | None, name: str) -> None:
    assert family(model) == name


def test_the_numbers_of_a_group_are_never_cut() -> None:
    totals = random_fleet(Random(1), 0).totals(NOW)
    from msgspec.structs import replace

    assert gpus_text(totals, 8) == "–"
    assert gpus_text(replace(totals, gpus=40, gpus_held=27, gpus_lost=1), 8) == "27/40 ✗1"
    assert gpus_text(replace(totals, gpus=192, gpus_held=118, gpus_lost=3), 8) == "118/192"
    assert gpus_text(replace(totals, gpus=8000, gpus_held=4123), 8) == "4.1k/8.0k"


# -- the strip -----------------------------------------------------------------------------------------------------------


def uses(*gpus: wire.Gpu):  # noqa: ANN201
    return [gpu_use(each) for each in gpus]


def test_sixteen_gpus_fit_into_eight_cells_and_the_worst_of_a_cell_is_told() -> None:
    gpus = [gpu(i, util=1.0) for i in range(16)]
    gpus[3], gpus[6], gpus[7], gpus[9] = lost_gpu(3), idle_gpu(6), idle_gpu(7), idle_gpu(9)
    cells = strip(uses(*gpus), 8)
    assert "".join(cell.character for cell in cells) == "█✗█○▄███"
    assert [cell.look for cell in cells] == ["held", "lost", "held", "idle", "idle", "held", "held", "held"]
    assert len(strip(uses(*gpus), 16)) == 16 and strip(uses(*gpus[:3]), 8)[2].character == "█" and not strip([], 8)
    assert strip_text(uses(*gpus)) == "███✗██○○█○██████" and strip_text([]) == "–"


def test_a_gpu_in_mig_mode_shows_how_many_of_its_instances_are_in_use() -> None:
    from tests.support.fleets import process

    instances = tuple(
        wire.MigInstance(uuid=f"MIG-{n}", profile="3g.20gb", gpu_instance=n, compute_instance=0, compute_slices=3, memory_slices=4, share=0.5)  # type: ignore[arg-type]
        for n in range(2)
    )
    half = gpu(0, util=None, mig_instances=instances, processes=(process(1, "ada", mig_instance="MIG-0"),))
    full = gpu(1, util=None, mig_instances=instances, processes=tuple(process(n, "ada", mig_instance=f"MIG-{n}") for n in range(2)))
    untold = gpu(2, util=None, mig_instances=instances, processes=(process(1, "ada"),))
    empty = gpu(3, util=None, mig_instances=instances, processes=())
    assert [(cell.character, cell.look) for cell in strip(uses(half, full, untold, empty), 4)] == [
        ("1", "idle"), ("2", "held"), ("·", "held"), ("○", "idle"),
    ]  # fmt: skip
    fleet = Fleet()
    put(fleet, "n", (half, full, untold, empty))
    assert fleet.totals(NOW).free == (("3g.20gb", 1), ("A100", 1))


def test_what_the_driver_does_not_tell_is_a_dot_and_an_error_a_sign_of_its_own() -> None:
    assert strip_text(uses(gpu(0, util=None, users=None), gpu(1, state="error"), lost_gpu(2))) == "·!✗"

"""MIG and time-slicing: shares that sum with the idle rest to one GPU."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.errors import BadShares
from pricing.shares import Slices, mig_shares, time_slices

PROFILES = {"1g.5gb": Slices(1, 1), "1g.10gb": Slices(1, 2), "2g.10gb": Slices(2, 2), "3g.20gb": Slices(3, 4), "4g.20gb": Slices(4, 4),
            "7g.40gb": Slices(7, 8)}  # fmt: skip


@given(st.lists(st.sampled_from(sorted(PROFILES)), max_size=8), st.fractions(0, 1))
def test_whatever_fits_on_a_gpu_shares_it_to_the_millionth(names: list[str], weight: Fraction) -> None:
    instances = [PROFILES[name] for name in names]
    fits = sum(one.compute for one in instances) <= 7 and sum(one.memory for one in instances) <= 8
    if not fits:
        with pytest.raises(BadShares, match="do not fit on a GPU"):
            mig_shares(instances, compute_weight=weight)
        return
    shares = mig_shares(instances, compute_weight=weight)
    assert sum(shares.tenants) + shares.idle == 1_000_000
    assert min((*shares.tenants, shares.idle)) >= 0
    for one, share in zip(instances, shares.tenants, strict=True):
        exact = weight * Fraction(one.compute, 7) + (1 - weight) * Fraction(one.memory, 8)
        assert abs(share - exact * 1_000_000) < 1


def test_instances_by_hand() -> None:
    assert mig_shares([PROFILES["7g.40gb"]]) == ((1_000_000,), 0)
    assert mig_shares([]) == ((), 1_000_000)
    # 4g.20gb: (4/7 + 4/8) / 2; 3g.20gb: (3/7 + 4/8) / 2; together all of it
    assert mig_shares([PROFILES["4g.20gb"], PROFILES["3g.20gb"]]) == ((535_714, 464_286), 0)
    # seven of 1g.5gb leave one memory slice: 1/8 of half the weight is idle
    assert mig_shares([PROFILES["1g.5gb"]] * 7).idle == pytest.approx(62_500, abs=1)
    assert mig_shares([PROFILES["1g.5gb"]], compute_slices=4, memory_slices=4).tenants == (250_000,)  # an A30
    with pytest.raises(BadShares, match="between 0 and 1"):
        mig_shares([], compute_weight=Fraction(2))


@given(st.integers(1, 48), st.lists(st.integers(0, 48), max_size=6))
def test_time_slices_sum_to_one_gpu_with_the_idle_replicas(replicas: int, held: list[int]) -> None:
    if sum(held) > replicas:
        with pytest.raises(BadShares, match=f"offered {replicas} times"):
            time_slices(replicas, held)
        return
    shares = time_slices(replicas, held)
    assert sum(shares.tenants) + shares.idle == 1_000_000 and min((*shares.tenants, shares.idle)) >= 0
    assert all(abs(share - Fraction(count, replicas) * 10**6) < 1 for share, count in zip(shares.tenants, held, strict=True))


@pytest.mark.parametrize(("replicas", "held"), [(0, []), (4, [-1]), (-1, [])])
def test_replicas_that_cannot_be_are_refused(replicas: int, held: list[int]) -> None:
    with pytest.raises(BadShares):
        time_slices(replicas, held)

"""Several commitments as one optimisation: seconds and the proven gap to the optimum, for a year of hours.

Invariant: prints figures, asserts none. `python tests/bench/bench_mix.py [POOLS]` (default 40: 1,000 nodes).
"""

from __future__ import annotations

import sys
import time
from fractions import Fraction

import numpy as np

from pricing.commitment_mix import Option, Pool, Problem
from pricing.commitment_mix_lp import cheapest

HOURS = 8760
F = Fraction


def fleet(count: int) -> tuple[list[Pool], np.ndarray]:
    """Pools of 2 to 50 nodes that go up and down by the day and the quarter, and drift."""
    rng = np.random.default_rng(1)
    hours, level = np.arange(HOURS), rng.integers(2, 50, count)
    pools = [Pool(f"p{pool}", F(3 + pool), F(3 + pool)) for pool in range(count)]
    counts = [
        level[pool] * (1 + 0.3 * np.sin(hours * 2 * np.pi / 24 + pool) + 0.2 * np.sin(hours * 2 * np.pi / 2160 + pool))
        + np.cumsum(rng.normal(0, 0.1, HOURS))
        for pool in range(count)
    ]
    return pools, np.maximum(0, np.rint(np.array(counts)))


def main(count: int) -> None:
    pools, counts = fleet(count)
    print(f"{count} pools, {counts.sum(axis=0).mean():,.0f} nodes on average, {HOURS:,} hours")
    reserved = [Option(f"r{p}", "reservation", {p: F(1)}, pools[p].price * F(6, 10)) for p in range(count)]
    rates = {p: pools[p].price * F(70 + p % 10, 100) for p in range(count)}
    every = [Option("any type", "savings_plan", rates, F(1), F(1, 1000), 2)]
    families = [
        Option(f"family {f}", "savings_plan", {p: pools[p].price * F(63 + f % 3, 100) for p in range(f, count, 8)}, F(1), F(1, 1000))
        for f in range(min(8, count))
    ]
    for name, options in (
        ("reservations", reserved),
        ("one savings plan", every),
        ("reservations and a savings plan", reserved + every),
        ("half of the reservations, 9 savings plans", reserved[::2] + every + families),
    ):
        begin = time.process_time()
        found = cheapest(Problem.of(pools, counts, options))
        saved = float(1 - found.cost / found.cost_of_nothing)
        seconds = time.process_time() - begin
        print(f"  {name:<42} {seconds:5.2f} s of CPU   saves {saved:6.2%}   at most {found.gap:.2%} above the optimum")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)

"""Rules of commitment on the Philly clusters, their sum, and openb: cost over the clairvoyant; and how long a decision takes.

Invariant: prints figures, asserts none. `python tests/bench/bench_commitments.py [POLICY ...]` (default: the usual ones).
Terms of 28 and 14 days from day 14 on for Philly (81 days), of 7 and 14 days from day 7 on for openb (33 days); commitments at
70, 63, 55 and 35 % of on-demand; hours after the end are neither charged nor used.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pricing.commitments import recommend
from pricing.commitments_backtest import backtest, first_day
from pricing.commitments_model import Deal, History
from pricing.commitments_own import target
from pricing.commitments_policies import rules
from pricing.demand_series import Series, openb_series, philly_series
from pricing.traces import OPENB_START, openb_pods, philly_jobs

DATA = Path(__file__).parents[3] / "shared" / "data" / "usage"
RATIOS = (0.7, 0.63, 0.55, 0.35)
USUAL = (
    "rackrate", "spell-dp", "spell", "least-look-back", "look-back-7d", "look-back-14d", "look-back-28d", "online", "on-demand",
)  # fmt: skip


class Score(NamedTuple):
    group: str
    series: str
    policy: str
    deal: Deal
    ratio: float
    dearer: bool


def groups() -> dict[str, list[Series]]:
    philly = philly_series(philly_jobs(DATA / "philly_2017_jobs.csv.gz"))
    openb = openb_series(openb_pods(DATA / "openb_2023_pods.csv.gz"), OPENB_START)
    return {"philly": philly[:-1], "sum": philly[-1:], "openb": openb}


def scores(names: Iterable[str]) -> list[Score]:
    policies = {name: rules(name) for name in names}
    found = []
    for group, series in groups().items():
        for one in series:
            start = first_day(len(one.counts) // 24)
            for term, ratio in itertools.product((28, 14) if start == 14 else (7, 14), RATIOS):
                results = backtest(policies, one.name, one.counts, Deal(term, ratio), start)
                found += [Score(group, one.name, r.policy, r.deal, r.ratio or 1, r.dearer) for r in results[:-1]]
    return found


def table(title: str, rows: list[Score], columns: dict[str, Callable[[Score], bool]]) -> None:
    print(f"{title:<18}" + "".join(f"{name:>9}" for name in columns) + "   dearer")
    for policy in dict.fromkeys(row.policy for row in rows):
        own = [row for row in rows if row.policy == policy]
        cells = [[row.ratio for row in own if chosen(row)] for chosen in columns.values()]
        means = "".join(f"{np.mean(cell):9.3f}" if cell else " " * 9 for cell in cells)
        print(f"{policy:<18}{means}{100 * np.mean([row.dearer for row in own]):7.1f} %")
    print()


def timings() -> None:
    hours, rng = np.arange(365 * 24), np.random.default_rng(0)
    fleet = 700 + 250 * hours / len(hours) + 60 * np.sin(hours * np.pi / 12) - 100 * (hours // 24 % 7 >= 5)
    counts = np.rint(fleet + rng.normal(0, 20, len(hours)))
    for days, term in ((365, 365), (365, 28), (60, 1095)):
        begin = time.perf_counter()
        history = History.of(counts[: days * 24])
        made = time.perf_counter()
        count = target(history, Deal(term, 0.63))
        print(
            f"{days} days of {counts.max():.0f} nodes, term {term} days: levels {made - begin:.3f} s, "
            f"decision {time.perf_counter() - made:.3f} s -> {count}"
        )
    begin = time.perf_counter()
    one = recommend(counts, Fraction(63, 100), Fraction(1), term_days=365)
    print(f"recommend with its interval: {time.perf_counter() - begin:.3f} s -> {one.count} ({dict(one.look_backs)})")


def main(names: list[str]) -> None:
    timings()
    if not DATA.is_dir():
        print("no ../shared/data/usage beside the project: no tables")
        return
    begin = time.perf_counter()
    rows = scores(names or USUAL)
    print(f"\ncost over the clairvoyant optimum, {len(rows)} backtests in {time.perf_counter() - begin:.0f} s")
    table(
        "means", rows, {
            "Philly": lambda row: row.group == "philly", "its sum": lambda row: row.group == "sum",
            "openb": lambda row: row.group == "openb", "sum+openb": lambda row: row.group != "philly",
        },
    )  # fmt: skip
    for group in ("philly", "openb"):
        part = [row for row in rows if row.group == group]
        terms = sorted({row.deal.term_days for row in part})
        by_ratio = {f"at {ratio:g}": lambda row, ratio=ratio: row.deal.ratio == ratio for ratio in RATIOS}
        by_term = {f"{term} d": lambda row, term=term: row.deal.term_days == term for term in terms}
        table(group, part, by_ratio | by_term)


if __name__ == "__main__":
    main(sys.argv[1:])

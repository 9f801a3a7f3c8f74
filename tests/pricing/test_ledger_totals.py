"""Sums of a stretch: from days and hours together the same as from the hours alone, whatever its edges are."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.ledger import Ledger
from pricing.ledger_totals import Among, Total, extent, totals
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.examples import examples
from tests.support.usage import HOUR_MS, random_record, take_all

START_MS = 1_774_731_600_000


def joined(found: list[Total]) -> dict[tuple[int, ...], tuple[int | None, ...]]:
    sums: defaultdict[tuple[int, ...], list[int | None]] = defaultdict(lambda: [0, 0, 0, None])
    for total in found:
        amounts = sums[total[:3]]
        for place in range(3):
            amounts[place] += total[3 + place]  # type: ignore[operator]
        if total.energy_mj is not None:
            amounts[3] = (amounts[3] or 0) + total.energy_mj
    return {key: tuple(amounts) for key, amounts in sums.items()}


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 200), st.integers(1, 200), st.booleans())
def test_days_less_hours_are_the_hours(seed: int, first: int, count: int, all_placements: bool) -> None:
    rng = Random(seed)
    with Ledger.open(":memory:") as ledger:
        for n in range(3):
            record = random_record(rng, f"n{n}", START_MS + rng.randrange(60) * HOUR_MS)
            rows = [row._replace(energy_millijoules=rng.choice((0, None, 5))) for row in record.rows]
            take_all(ledger, record._replace(rows=rows))
        among = None if all_placements else Among("[1, 3]", within=rng.random() < 0.5)
        with ledger.reading() as connection:
            known = extent(connection)
            assert known is not None
            start = known[0] + (first - 24) * HOUR_MS
            found = list(totals(connection, start, start + count * HOUR_MS, among))
            each = [
                total
                for hour in range(count)
                for total in totals(connection, start + hour * HOUR_MS, start + (hour + 1) * HOUR_MS, among)
            ]
        assert all(total.share_ms > 0 for total in found)
        assert joined(found) == joined(each)


@pytest.mark.parametrize("offset", range(-12, 13))
def test_a_day_of_any_zone_leaves_out_who_was_there_only_in_the_hours_around_it(offset: int) -> None:
    midnight = START_MS // (24 * HOUR_MS) * 24 * HOUR_MS + 24 * HOUR_MS
    rows = [
        Usage(
            n + 1, midnight + (n - 48) * HOUR_MS, midnight + (n - 47) * HOUR_MS, "GPU-0", "held", None, WHOLE_SHARE, f"user-{n}",
            None, None, None, None, None, 1,
        )
        for n in range(96)
    ]  # fmt: skip
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", rows, [Placed(1, "node", gpu_count=1)], 1)
        with ledger.reading() as connection:
            starts_ms = midnight + offset * HOUR_MS
            found = list(totals(connection, starts_ms, starts_ms + 24 * HOUR_MS))
            names = dict(connection.execute("SELECT id, user FROM holders"))
    assert {names[total.holder_id] for total in found} == {f"user-{n + 48 + offset}" for n in range(24)}

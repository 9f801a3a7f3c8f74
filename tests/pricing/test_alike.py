"""Placements and holders that a report cannot tell apart are added up as one, and no figure changes by that."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import alike
from pricing.attribution import attribute
from pricing.calendar import instant
from pricing.ledger import Ledger
from pricing.money import PerHour
from pricing.report import Report
from tests.support.examples import examples
from tests.support.usage import HOUR_MS, PriceList, random_record, take_all

START_MS = 1_774_731_600_000
START = instant(START_MS)
KEYS = ("", "day", "user", "day,project", "day,user,purchase", "tag:team", "instance_type,gpu_model", "node", "day,job,cloud")
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia")


def fleet(ledger: Ledger, rng: Random) -> None:
    """Nodes of two kinds; one in five has no price, some have no GPUs, some change."""
    prices = ("8", "8", "9.5", None) if rng.random() < 0.5 else ("8", "9.5")
    for number in range(6):
        record = random_record(rng, f"node-{number}", START_MS + rng.randrange(60) * HOUR_MS)
        placements = [
            one._replace(
                cloud=rng.choice(("aws", "on_premises")), region=None, instance_type="gpu_box", purchase=None,
                usd_per_hour=rng.choice(prices),
            )
            for one in record.placements
        ]  # fmt: skip
        rows = [row._replace(energy_millijoules=rng.choice((0, None, 5))) for row in record.rows]
        take_all(ledger, record._replace(placements=placements, rows=rows))


@settings(max_examples=examples(120), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(KEYS), st.sampled_from(ZONES), st.integers(0, 40 * 60), st.booleans())
def test_a_report_is_the_same_to_the_last_digit_whether_what_is_alike_is_added_up_as_one(
    seed: int, by: str, tz: str, minutes: int, own_price: bool
) -> None:
    rng = Random(seed)
    prices = {"node-1": PerHour.parse("3", "USD")} if own_price else {}
    with Ledger.open(":memory:") as ledger, pytest.MonkeyPatch.context() as patch:
        fleet(ledger, rng)
        patch.setattr(alike, "_worth", lambda placements, holders: True)

        def reported() -> Report:
            start = START + timedelta(minutes=minutes)
            until = start + timedelta(hours=rng.choice((3, 30, 300)))
            return attribute(ledger, PriceList(), start, until, by, tz=tz, prices=prices)

        state = rng.getstate()
        patch.setattr(alike, "FEW", 0)
        together = reported()
        patch.setattr(alike, "FEW", 10**9)
        rng.setstate(state)
        assert together == reported()


def test_a_thousand_nodes_are_few_numbers_and_none_is_left_behind_when_something_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    with Ledger.open(":memory:") as ledger:
        for number in range(100):
            record = random_record(Random(number % 3), f"node-{number}", START_MS)
            placements = [one._replace(usd_per_hour="8", gpu_count=2) for one in record.placements]
            take_all(ledger, record._replace(placements=placements))
        original = alike.Alike.names
        monkeypatch.setattr(alike.Alike, "names", lambda self, number: asked.append(number) or original(self, number))
        attribute(ledger, PriceList(), START, START + timedelta(days=9), "project")
        assert 0 < len(set(asked)) < 40
        monkeypatch.setattr(alike.Alike, "names", lambda self, number: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            attribute(ledger, PriceList(), START, START + timedelta(days=9), "project")
        monkeypatch.setattr(alike.Alike, "names", original)
        assert attribute(ledger, PriceList(), START, START + timedelta(days=9), "project").rows


def test_sums_of_many_gpus_over_long_fit() -> None:
    """40,000 GPUs held for two years would not fit into one sum."""
    ledger = Ledger.open(":memory:")
    with ledger.writing() as connection:
        connection.execute("INSERT INTO nodes VALUES (1, 'n')")
        connection.execute("INSERT INTO holders (id, key, user) VALUES (1, 'k', 'ann')")
        for id in range(1, 61):
            connection.execute("INSERT INTO meters (id, node_id, name) VALUES (?, 1, ?)", (id, f"m{id}"))
            connection.execute(
                "INSERT INTO placements (id, meter_id, number, node, usd_per_hour, gpu_count, tags) VALUES (?, ?, 1, 'n', '1', 600, '{}')",
                (id, id),
            )
            for day in range(730):
                connection.execute(
                    "INSERT INTO days VALUES (?, ?, 0, 1, ?, 0, 0, NULL)", (20_000 + day, id, 600 * 86_400_000 * 10**6)
                )
        connection.execute("INSERT INTO hours SELECT 20000 * 24, placement_id, 0, 1, 1, 0, 0, NULL FROM days WHERE at = 20000")
        connection.execute("INSERT INTO hours SELECT 20730 * 24 - 1, placement_id, 0, 1, 1, 0, 0, NULL FROM days WHERE at = 20000")
    start = instant(20_000 * 24 * HOUR_MS)
    report = attribute(ledger, PriceList(), start, start + timedelta(days=730), "user")
    assert report.totals.total_cost == 60 * 730 * 24 and len(report.rows) == 1
    ledger.close()

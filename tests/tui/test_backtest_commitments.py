"""`backtest commitments`: what it prints, in which shape, with which exit code, and what it says of series it cannot judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pricing.commitments_backtest import cost
from pricing.commitments_lp import clairvoyant
from pricing.commitments_model import Deal
from pricing.demand_series import hour_name
from tests.support.cli import Done
from tests.support.demand import plateaus

Run = Callable[..., Done]
WORDS = ("backtest", "commitments")
FIRST = 24 * 20_000
DEAL = ("--term", "14d", "--discount", "0.4")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str = "fleet.csv", first: int = FIRST, **series: np.ndarray) -> Path:
        rows = [
            f"{hour_name(first + place)},{count:g},{one}" for one, counts in series.items() for place, count in enumerate(counts)
        ]
        path = tmp_path / name
        path.write_text("hour_utc,count,name\n" + "\n".join(rows) + "\n")
        return path

    return write


def test_json_has_one_row_for_each_policy_and_series_and_then_the_means(run: Run, write: Callable[..., Path]) -> None:
    series = {"a": plateaus(50, 1), "b": plateaus(30, 2)}
    done = run(write(**series), *DEAL, "--policy", "rackrate", "--policy", "on_demand", "--json")
    assert done.code == 0
    told = json.loads(done.out)
    assert list(told) == ["policies", "means"]
    assert {(row["policy"], row["series"]) for row in told["policies"]} == {
        (policy, name) for policy in ("rackrate", "on-demand", "clairvoyant") for name in series
    }
    assert all(list(row)[:4] == ["policy", "series", "cost_to_clairvoyant", "saving_ratio"] for row in told["policies"])
    rows = {(row["policy"], row["series"]): row for row in told["policies"]}
    for name, start in (("a", 14), ("b", 7)):
        scored = series[name][24 * start :]
        best = clairvoyant(scored, Deal(14, 0.6)).cost
        assert rows["on-demand", name]["cost_to_clairvoyant"] == pytest.approx(scored.sum() / best)
        assert rows["clairvoyant", name]["saving_ratio"] == pytest.approx(1 - best / scored.sum())
        assert rows["on-demand", name]["saving_ratio"] == 0
    (own,) = [one for one in told["means"] if one["policy"] == "rackrate"]
    ratios = [rows["rackrate", name]["cost_to_clairvoyant"] for name in series]
    assert own["series"] == 2 and own["cost_to_clairvoyant"] == pytest.approx(sum(ratios) / 2)
    assert own["cost_standard_error"] == pytest.approx(abs(ratios[0] - ratios[1]) / 2)


def test_the_table_fits_eighty_columns_and_stands_in_the_order_of_cost(run: Run, write: Callable[..., Path]) -> None:
    done = run(write(a=plateaus(50, 1), b=plateaus(50, 2), c=plateaus(50, 3) * 9), *DEAL)
    lines = done.out.splitlines()
    assert done.code == 0 and max(map(len, lines)) <= 80
    assert lines[0].split() == ["policy", "series", "cost", "/", "optimum", "saving", "dearer", "worst"]
    costs = [float(line.split()[2]) for line in lines[1:]]
    assert costs == sorted(costs) and costs[0] == 1 and lines[1].startswith("clairvoyant") and len(lines) == 13
    assert "daily decisions from day 14 (day 7 of a series of at most 40 days)" in done.err
    assert "14 days at 60 % of on-demand" in done.err


def test_one_series_has_no_standard_error(run: Run, write: Callable[..., Path]) -> None:
    path = write(a=plateaus(50, 1))
    done = run(path, path, "--term", "2w", "--discount", "0.4", "--policy", "peak")
    assert done.code == 0 and "±" not in done.out, "the same file twice is one file"


def test_start_and_tail_are_those_asked_for(run: Run, write: Callable[..., Path]) -> None:
    counts = plateaus(50, 1)
    done = run(write(a=counts), *DEAL, "--policy", "on-demand", "--start", "3w", "--tail", "mature", "--json")
    row = json.loads(done.out)["policies"][1]
    best = clairvoyant(counts[24 * 21 :], Deal(14, 0.6), last_purchase=50 - 21 - 14)
    assert row["clairvoyant_node_hours"] == pytest.approx(best.cost)
    assert best.cost == pytest.approx(cost(counts[24 * 21 :], best.purchases, Deal(14, 0.6), 0))
    assert not best.purchases[50 - 21 - 14 + 1 :].any() and "from day 21 on; nothing is bought that ends later" in done.err


def test_hours_before_the_first_midnight_and_after_the_last_are_left_out(run: Run, write: Callable[..., Path]) -> None:
    counts = plateaus(30, 1)
    whole = run(write("a.csv", a=counts), *DEAL, "--json").out
    edges = np.concatenate([np.full(5, 90.0), counts, np.full(7, 90.0)])
    assert run(write("b.csv", FIRST - 5, a=edges), *DEAL, "--json").out == whole


def test_series_that_cannot_be_judged_are_named_and_the_rest_is_told(run: Run, write: Callable[..., Path]) -> None:
    short, idle = plateaus(5, 2), np.concatenate([np.full(24 * 7, 3.0), np.zeros(24 * 13)])
    done = run(write(good=plateaus(50, 1), short=short, idle=idle), *DEAL, "--policy", "rackrate", "--json")
    assert done.code == 4 and {row["series"] for row in json.loads(done.out)["policies"]} == {"good"}
    assert "left out: short: it has 5 whole days (UTC), and the first decision is at the end of day 7 (--start)" in done.err
    assert "left out: idle: nothing ran from day 7 on" in done.err
    done = run(write(short=short), *DEAL)
    assert done.code == 2 and done.out == "" and "No series could be judged" in done.err
    done = run(write(good=plateaus(20, 1)), *DEAL, "--tail", "mature")
    assert done.code == 2 and "its 13 days from day 7 on are shorter than a term of 14 days" in done.err


def test_a_name_that_two_files_use_is_told_with_its_file(run: Run, write: Callable[..., Path]) -> None:
    paths = [write(name, pool=plateaus(30, 1)) for name in ("a.csv", "b.csv")]
    done = run(*paths, *DEAL, "--policy", "peak", "--json")
    assert {row["series"] for row in json.loads(done.out)["policies"]} == {f"{path}:pool" for path in paths}


FAULTS = [
    (("--term", "0d", "--discount", "0.4"), "--term 0d: write a number of days"),
    (("--term", "soon", "--discount", "0.4"), "--term soon"),
    (("--term", "-3d", "--discount", "0.4"), "--term"),
    (("--term", "14d", "--discount", "1"), "--discount 1: it must be at least 0 and below 1; write 0.37 for 37 %"),
    (("--term", "14d", "--discount", "37"), "--discount 37"),
    (("--term", "14d", "--discount", "nan"), "--discount nan"),
    (("--term", "14d", "--discount", "much"), "--discount much"),
    (("--term", "14d"), "--discount"),
    (("--discount", "0.4"), "--term"),
    ((*DEAL, "--policy", "magic"), "There is no policy 'magic'; there are rackrate, look-back-7d"),
    ((*DEAL, "--start", "1.5d"), "--start 1.5d"),
    ((*DEAL, "--tail", "cut"), "--tail"),
]


@pytest.mark.parametrize(("options", "sentence"), FAULTS)
def test_a_wrong_option_is_a_sentence(run: Run, write: Callable[..., Path], options: tuple[str, ...], sentence: str) -> None:
    done = run(write(a=plateaus(20, 1)), *options)
    assert done.code == 2 and done.out == "" and sentence in done.err and "Traceback" not in done.err


def test_a_wrong_file_is_a_sentence_and_gaps_and_fractions_can_be_filled(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    hours = [f"{hour_name(FIRST + hour)},{2.5 if hour % 5 else 3}" for hour in range(24 * 20) if hour % 50 != 7]
    path.write_text("hour_utc,count\n" + "\n".join(hours) + "\n")
    done = run(path, *DEAL)
    assert done.code == 2 and "line 3, column count: '2.5' is not a whole number of nodes; --round" in done.err
    done = run(path, *DEAL, "--round")
    assert done.code == 2 and f"has no row for {hour_name(FIRST + 7)} (10 hours are missing in all)" in done.err
    assert run(path, *DEAL, "--round", "--gaps", "zero").code == 0
    assert run(tmp_path / "none.csv", *DEAL).code == 2

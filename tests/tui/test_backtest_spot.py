"""`rackrate backtest spot`: the shape of its JSON, its table, and what it says of input that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tui.cli import main

FIGURES = ["--work", "4h", "--deadline", "6h", "--changeover", "0.2h", "--on-demand", "3.06", "--spot", "0.9731"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Two zones of three windows each."""
    rng, folder = np.random.default_rng(0), tmp_path / "traces"
    for zone in ("east", "west"):
        for window in range(3):
            states = (np.cumsum(rng.random(40) < 0.15) % 2).tolist()
            path = folder / zone / f"{window}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": states}))
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path / "home"))

    def call(*words: object) -> tuple[int, str, str]:
        try:
            code = main(["backtest", "spot", *map(str, words)])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_json_has_the_agreed_shape(run: Run, traces: Path) -> None:
    code, out, _ = run(traces, *FIGURES, "--available", 1, "--json")
    found = json.loads(out)
    assert code == 0 and len(found["policies"]) == 7
    first = list(found["policies"][0])
    assert first[:7] == ["policy", "runs", "late_runs", "saving_ratio", "standard_error", "on_demand_hours", "spot_hours"]
    rows = {row["policy"]: row for row in found["policies"]}
    assert {row["late_runs"] for row in rows.values()} == {0} and {row["runs"] for row in rows.values()} == {6}
    assert rows["omniscient"]["saving_ratio"] == max(row["saving_ratio"] for row in rows.values())
    assert rows["on_demand"]["cost"] == "13.2600", "26 ticks of ten minutes: four hours and a changeover"
    assert rows["on_demand"]["on_demand_hours"] == 4 and rows["on_demand"]["spot_hours"] == 0
    assert [zone["zone"] for zone in found["zones"]] == ["east", "west"] and found["tick_seconds"] == 600


def test_the_table_fits_eighty_columns(run: Run, traces: Path) -> None:
    code, out, err = run(traces, *FIGURES, "--available", 1, "--zones")
    assert code == 0 and max(len(line) for line in out.splitlines()) <= 80
    assert out.startswith("policy") and "6 starts in 2 zones" in out and "judging rackrate" in err


def test_only_the_policies_that_were_asked_for_are_told(run: Run, traces: Path) -> None:
    words = ("--policy", "greedy", "--policy", "time_sliced(8)")
    _, out, _ = run(traces, *FIGURES, "--available", 1, "--json", *words)
    assert [row["policy"] for row in json.loads(out)["policies"]] == ["greedy", "time_sliced_8"]
    code, out, err = run(traces, *FIGURES, "--available", 1, "--policy", "clever")
    assert code == 2 and not out and "`clever`; there are" in err


def test_the_other_number_for_available_is_asked_for(run: Run, traces: Path) -> None:
    code, out, err = run(traces, *FIGURES, "--json")
    assert code == 2 and not out and "Add --available 1 where 1 means available" in err
    as_one, as_zero = (json.loads(run(traces, *FIGURES, "--available", told, "--json")[1]) for told in (1, 0))
    shares = [(one["available_ratio"], other["available_ratio"]) for one, other in zip(as_one["zones"], as_zero["zones"], strict=True)]
    assert all(one + other == pytest.approx(1, abs=1e-3) for one, other in shares)


def test_an_impossible_deadline_says_the_least_time(run: Run, traces: Path) -> None:
    words = ["--work", "48h", "--deadline", "48h", *FIGURES[4:]]
    code, out, err = run(traces, *words, "--available", 1)
    assert code == 2 and not out and "48.20 h even on demand" in err


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [(1, "48", "hours or seconds?"), (1, "soon", "is no length of time"), (5, "-1h", "is no length"), (9, "0", "a price of 0")],
)
def test_a_figure_that_is_none_is_named(run: Run, traces: Path, place: int, value: str, said: str) -> None:
    words = [*FIGURES]
    words[place] = value
    words[place - 1 : place + 1] = [f"{words[place - 1]}={value}"]
    code, out, err = run(traces, *words, "--available", 1)
    assert code == 2 and not out and said in err and "Traceback" not in err


def test_traces_that_are_too_short_or_damaged_are_told_and_the_rest_is_judged(run: Run, traces: Path) -> None:
    (traces / "east" / "short.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [1, 1]}')
    (traces / "east" / "cut.json").write_text('{"metadata"')
    code, out, err = run(traces, *FIGURES, "--available", 1, "--policy", "greedy", "--json")
    assert code == 4 and json.loads(out)["policies"][0]["runs"] == 6
    assert "short.json: tells 0.33 h" in err and "cut.json" in err
    code, out, err = run(traces / "east" / "short.json", *FIGURES, "--available", 1)
    assert code == 2 and "use longer traces" in err


def test_our_policy_is_fitted_on_other_traces_when_asked(run: Run, traces: Path) -> None:
    base = (*FIGURES, "--available", 1, "--policy", "rackrate", "--json")
    shipped = json.loads(run(traces, *base)[1])
    fitted = json.loads(run(traces, *base, "--fit", traces)[1])
    assert "us-west-2" in shipped["model"]["source"] and fitted["model"]["source"] == str(traces)
    out = json.loads(run(traces, *base, "--leave-one-zone-out")[1])
    assert {zone: one["source"] for zone, one in out["models"].items()} == {
        "east": "all zones but east", "west": "all zones but west",
    }  # fmt: skip
    code, _, err = run(traces / "east", *base, "--leave-one-zone-out")
    assert code == 2 and "two zones or more" in err


def test_spot_that_is_not_cheaper_is_said_and_never_used(run: Run, traces: Path) -> None:
    words = [*FIGURES[:-1], "3.06"]
    code, out, err = run(traces, *words, "--available", 1, "--json")
    rows = json.loads(out)["policies"]
    assert code == 0 and "not cheaper" in err
    assert all(row["spot_hours"] == 0 for row in rows if row["policy"] != "omniscient")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seed", "-1"), "--seed has to be 0 or more"),
        (("--starts", "0"), "--starts has to be 1 or more"),
        (("--starts", "1000000000"), "too many at once"),
        (("--history", "long"), "is no length of time"),
        (("--policy", "time_sliced_0"), "There is no policy named"),
    ],
)
def test_an_option_that_cannot_be_is_named(run: Run, traces: Path, words: tuple[str, ...], said: str) -> None:
    code, out, err = run(traces, *FIGURES, "--available", 1, *words)
    assert code == 2 and not out and said in err

"""`rackrate plan --recipe`, and the quote of a recipe: each row with its mark, its time and its money worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from pricing.catalog import Catalog
from tests.support.cli import Done, rackrate_inside
from tests.support.fleets import idle_gpu, put
from tests.tui.test_calibrations import output
from tui import calibrations, recipes
from tui.fleet import Fleet
from tui.plan_recipe import asked, calibration_of, measured_of
from tui.quote import place_of, quote
from tui.quote_text import lines, record
from tui.ui.live_quote import _quoted as live_quoted

CATALOG = Catalog.embedded()
EIGHT_A100 = ("--node", "gpu-07", "--type", "p4d.24xlarge", "--region", "us-east-1")
Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """With a calibration: eight A100 of 40 GB train 8,000 samples of 256 tokens a second."""
    (tmp_path / "log").write_text(output())
    assert rackrate_inside(tmp_path, "calibrate", "add", str(tmp_path / "log"), *EIGHT_A100).code == 0
    return lambda *arguments: rackrate_inside(tmp_path, "plan", "--recipe", "language", *map(str, arguments))


def per_hour(name: str) -> Fraction:
    price = CATALOG.offers("aws", instance_type=name, purchase="on_demand")[0].price
    assert price is not None and price.currency == "USD"
    return price.fraction


def row(done: Done, name: str) -> dict[str, Any]:
    [found] = [one for one in done.json()["rows"] if one["instance_type"] == name]
    return dict(found)


def test_each_type_is_marked_measured_or_scaled_with_time_and_money(run: Run) -> None:
    """100 epochs of 4,096: 409,600 samples, 51.2 s at 8,000 a second, 2 % either way; a million tokens are 3,906.25 samples."""
    done = run("--epochs", 100, "--cloud", "aws", "--all", "--json")
    mine = row(done, "p4d.24xlarge")
    assert (mine["how"], mine["gpus"], mine["seconds"], mine["precision"]) == ("measured", 8, 51.2, "bf16")
    assert (mine["seconds_low"], mine["seconds_high"]) == (round(51.2 / 1.02, 3), round(51.2 / 0.98, 3))
    usd = per_hour("p4d.24xlarge") * Fraction("51.2") / 3600
    assert Decimal(mine["usd"]) == round(Decimal(usd.numerator) / usd.denominator, 6)
    assert float(mine["usd_per_epoch"]) == pytest.approx(float(usd) / 100, abs=1e-6)
    assert float(mine["usd_per_million_tokens"]) == pytest.approx(float(usd) / 104.8576, abs=1e-6)
    assert float(mine["usd_per_million_samples"]) == pytest.approx(float(usd) / 0.4096, abs=1e-6)
    other = row(done, "p5.48xlarge")
    assert other["how"] == "scaled" and other["samples_per_second"] == pytest.approx(8000 * 989 / 312, rel=1e-6)
    assert other["samples_per_second_low"] == pytest.approx(8000 * 3350 / 1555 * 0.98, rel=1e-6), "by memory bandwidth, less the spread"
    rows = done.json()["rows"]
    assert {one["how"] for one in rows} == {"measured", "scaled"}
    amounts = [float(one["usd"] or "inf") for one in rows]
    assert amounts == sorted(amounts) and amounts[0] < 1, "what has no price is last"


def test_the_table_names_what_each_row_rests_on(run: Run) -> None:
    done = run("--steps", 1000, "--gpu", "A100", "--gpu", "T4", "--cloud", "aws")
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 110
    assert done.out.startswith("language: 64,000 samples in batches of 64, 15.6 epochs, 16.38 million tokens\n")
    [mine] = [line for line in done.out.splitlines() if line.startswith("p4d.24xlarge")]
    assert mine.split()[3:9] == ["8", "A100", "measured", "8s", "7.8s-8.2s", f"${float(per_hour('p4d.24xlarge') * 8 / 3600):.4f}"]
    text = " ".join(done.out.split())
    assert "measured: p4d.24xlarge: 8 x NVIDIA A100-SXM4-40GB, 2026-11-30, gpu-07" in text
    assert "scaled from 8 x NVIDIA A100-SXM4-40GB, 2026-11-30, gpu-07: g4dn.xlarge," in text
    assert "by 0.208 x peak matrix products, the number of GPUs, 8 to 1" in text


def test_what_was_measured_is_shown_also_where_others_are_cheaper(run: Run, tmp_path: Path) -> None:
    rows = run("--cloud", "aws", "--top", 1, "--json").json()["rows"]
    assert [one["instance_type"] for one in rows][1:] == ["p4d.24xlarge"] and rows[0]["how"] == "scaled"
    (tmp_path / "log").write_text(output(gpu=None, gpus=0, ranks=1, host="attic"))
    assert rackrate_inside(tmp_path, "calibrate", "add", str(tmp_path / "log"), "--node", "attic").code == 0
    assert run("--top", 1, "--json").json()["rows"][-1]["node"] == "attic"


def test_without_a_measurement_every_row_is_marked_peak_and_has_no_range(tmp_path: Path) -> None:
    done = rackrate_inside(tmp_path, "plan", "--recipe", "vision", "--gpu", "H100", "--cloud", "aws", "--json")
    rows = done.json()["rows"]
    assert rows and {one["how"] for one in rows} == {"peak"} and {one["seconds_low"] for one in rows} == {None}
    shown = rackrate_inside(tmp_path, "plan", "--recipe", "vision", "--gpu", "H100", "--cloud", "aws").out
    assert "nothing was measured yet: `rackrate calibrate NODE`" in shown
    nothing = rackrate_inside(tmp_path, "plan", "--recipe", "recommender")
    assert nothing.code == 1 and "nothing tells how fast the recipe recommender would be" in nothing.err


def test_a_deadline_takes_away_what_is_late_and_tells_the_soonest(run: Run) -> None:
    """409,600 samples: 51.2 s on eight A100; a minute is enough for them, and 0.1 s for nothing."""
    found = run("--epochs", 100, "--cloud", "aws", "--deadline", "60s", "--all", "--json").json()
    assert found["late"] > 0 and max(one["seconds"] for one in found["rows"]) <= 60
    late = run("--epochs", 100, "--cloud", "aws", "--deadline", "0.1s")
    assert late.code == 1 and "nothing trains it within 0.1s: the least time is" in late.err


def test_a_workload_takes_the_measured_speed_of_a_recipe(run: Run, tmp_path: Path) -> None:
    [one] = measured_of(calibrations.load(next(tmp_path.rglob(calibrations.FILE)).parent), "language")
    assert (one.gpu_model, one.samples_per_second, one.gpus, one.precision, one.gpu_memory_bytes) == ("A100", 8000, 8, "bf16", 40_000_000_000)
    work = tmp_path / "w.toml"
    work.write_text(
        '[model]\nparameters = "10M"\ntokens_per_sample = 256\nprecision = "bf16"\n[train]\nsamples = "100M"\nglobal_batch = 64\n'
        '[limits]\nclouds = ["aws"]\ninstance_types = ["p4d.24xlarge"]\nmax_nodes = 1\n'
    )
    option = rackrate_inside(tmp_path, "plan", str(work), "--recipe", "language", "--json").json()["front"][0]
    assert option["speed"]["how"] == "measured" and option["speed"]["samples_per_second"] == 1000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--steps", "10", "--epochs", "2"), "--steps and --epochs cannot be asked for together"),
        (("--steps", "1.5"), "--steps 1.5: it has to be a whole number."),
        (("--samples", "many"), "--samples many: it has to be a number above 0, such as 90, 10k or 3M."),
        (("--set", "data=/data/texts", "--epochs", "2"), "--epochs: how many samples the data have is not known here; say so with --epoch-samples."),
        (("--set", "wide=2"), "--set wide: the recipe language has no such setting; did you mean width?"),
        (("--buy", "rent"), "--buy rent: it is one of on_demand, spot,"),
        (("--cloud", "mars"), "--cloud mars: it is one of aws, "),
        (("--deadline", "soon"), "--deadline: 'soon' is no length of time"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = rackrate_inside(tmp_path, "plan", "--recipe", "language", *arguments)
    assert done.code == 2 and words in done.err and len(done.err.splitlines()) == 1, done.err


def test_other_recipes_and_options_without_a_recipe_are_told(tmp_path: Path) -> None:
    for arguments, words in (
        (("--recipe", "compress"), "--recipe compress: it trains nothing by samples; vision, language, recommender do."),
        (("--recipe", "langage"), "--recipe langage: there is no such recipe; did you mean language?"),
        (("recommender", "--steps", "3"), "--steps goes with --recipe alone"),
    ):
        done = rackrate_inside(tmp_path, "plan", *arguments)
        assert done.code == 2 and words in done.err, done.err


# The quote of a job


def test_a_quote_of_a_recipe_tells_time_and_money_by_its_calibration(run: Run, tmp_path: Path) -> None:
    """5,000 steps of 64 on four of eight A100 at 1,000 samples a second and GPU: 80 s, half of the node's price."""
    fleet = Fleet(CATALOG)
    put(fleet, "gpu-01", tuple(idle_gpu(i, node="gpu-01") for i in range(8)))
    place = place_of(fleet["gpu-01"])
    data_dir = next(tmp_path.rglob(calibrations.FILE)).parent

    def quoted(gpus: int, **more: Any):  # noqa: ANN202
        command = tuple(recipes.command("language", {"steps": 5000, "data": "/data"} | more, "--set", ranks=gpus))
        spec = wire.JobSpec(command=command, gpus=gpus)
        usd = Decimal(per_hour("p4d.24xlarge").numerator) / per_hour("p4d.24xlarge").denominator * gpus / 8
        plan = wire.JobPlan(
            node="gpu-01", starts_now=True, reason="", argv=command, environment=(), user="ada", enforcement="v2", usd_per_hour=usd
        )
        return quote(spec, plan, place, CATALOG, calibrated=calibration_of(data_dir, spec, place, CATALOG))

    found = quoted(4, data="")
    assert found.basis == "calibration" and found.calibrated is not None and found.calibrated.how == "scaled"
    assert found.seconds == 80 and found.usd == found.usd_per_hour * 80 / 3600
    shown = "\n".join(lines(found))
    assert "expected       $0.24 ($0.24 to $0.25): 1m20s (1m18s to 1m21s) of training, scaled" in shown, shown
    told = record(found)
    assert (told["expected_from"], told["expected_seconds"], told["calibration"]["how"]) == ("calibration", 80.0, "scaled")
    spec = wire.JobSpec(command=tuple(recipes.command("language", {"steps": 5000}, "--set", ranks=4)), gpus=4)
    plan = wire.JobPlan(node="gpu-01", starts_now=True, reason="", argv=spec.command, environment=(), user="ada", enforcement="v2", usd_per_hour=Decimal(4))
    form = live_quoted(spec, plan, place, CATALOG, None, data_dir)
    assert form.calibrated == found.calibrated and form.usd == Fraction(4) * 80 / 3600, "the form's quote is the same"
    assert quoted(8, data="").calibrated == replace_how(found.calibrated, "measured", Fraction(40))
    assert quoted(4, parallel="tensor").calibrated is None or quoted(4, parallel="tensor").calibrated.how == "peak"


def replace_how(one: Any, how: str, seconds: Fraction) -> Any:
    """The same by a measurement of exactly this."""
    import msgspec

    halves = {"shortest": one.shortest / 2, "longest": one.longest / 2}
    return msgspec.structs.replace(one, how=how, seconds=seconds, why="8 x NVIDIA A100-SXM4-40GB, 2026-11-30, gpu-07", **halves)


def test_a_job_that_is_no_recipe_has_no_calibration(tmp_path: Path) -> None:
    fleet = Fleet(CATALOG)
    put(fleet, "gpu-01", (idle_gpu(0, node="gpu-01"),))
    place = place_of(fleet["gpu-01"])
    for command in (("python", "train.py"), tuple(recipes.command("compress", {}, "--set")), ("python3", "-m", "agent.recipes.language", "--stepps=1")):
        assert calibration_of(tmp_path, wire.JobSpec(command=command), place, CATALOG) is None


# The recipe's settings, and its price


def test_settings_come_back_from_the_command_that_they_made() -> None:
    command = recipes.command("language", {"steps": "70", "checkpoint-activations": "true", "learning_rate": 0.5}, "--set", ranks=2)
    found = recipes.of_command(command)
    assert found is not None and found[0] == "language"
    assert {key: value for key, value in found[1].items() if value != recipes.defaults("language")[key]} == {
        "steps": 70, "checkpoint_activations": True, "learning_rate": 0.5,
    }  # fmt: skip
    ask = asked(*found, "--set")
    assert (ask.samples, ask.epoch_samples, ask.tokens_per_sample) == (70 * 64, 4096, 256)


def test_compress_is_told_the_price_of_what_it_runs_on_unless_somebody_told_it() -> None:
    command = recipes.command("compress", {"checkpoint": "/c"}, "--set")
    assert recipes.with_price(command, Decimal("4.500000"))[-2:] == ("--price-from=the price of its job when it was sent", "--usd-per-hour=4.5")
    assert recipes.with_price(command, None) == tuple(command)
    mine = recipes.command("compress", {"checkpoint": "/c", "usd_per_hour": "3"}, "--set")
    assert recipes.with_price(mine, Decimal(4)) == tuple(mine)
    other = recipes.command("vision", {}, "--set")
    assert recipes.with_price(other, Decimal(4)) == tuple(other) and recipes.with_price(("python", "x.py"), Decimal(4)) == ("python", "x.py")

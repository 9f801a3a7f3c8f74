"""`rackrate plan`: what it prints at 80 columns, its JSON, what-ifs, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Done

Run = Callable[..., Done]
WORDS = ("plan",)
HURRY = '[run]\ndeadline = "2m"\ninterruptible = false\n'


@pytest.mark.parametrize("name", ["image-classifier", "language-model", "recommender"])
def test_an_example_is_planned_within_eighty_columns_with_its_assumptions(run: Run, name: str) -> None:
    done = run(name)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    assert done.out.startswith(name) and "What no other option beats" in done.out and "The hardware in mind (" in done.out
    for told in (
        "Cheapest: ",
        "In mind: ",
        "- speed: ",
        "- exchange: ring all-reduce",
        "- prices: as of 20",
        "types do not fit",
    ):
        assert told in done.out


def test_the_hardware_in_mind_of_the_image_classifier_is_four_a100_with_nvme(run: Run) -> None:
    done = run("image-classifier")
    assert "The hardware in mind (4 x A100, 500 GB of local NVMe), without the deadline:" in done.out
    assert any("NC96ads_A100_v4" in line and "nvme" in line and line.endswith("$200.78") for line in done.out.splitlines())


def test_the_json_carries_inputs_and_intermediate_figures(run: Run) -> None:
    found = run("recommender", "--json", "--top", 3).json()
    assert found["name"] == "as it is" and len(found["options"]) == 3 and found["what_if"] == []
    assert found["workload"]["model"]["parameters"] == 180_000_000 and found["workload"]["assumed"]["overlap"] == 0.5
    option = found["front"][0]
    assert {"memory", "speed", "step", "timing", "storage", "spot", "price", "costs", "wiring", "gpu_source"} <= set(option)
    assert option["price"]["as_of"] and option["price"]["source"] and option["speed"]["how"] == "peak"
    assert isinstance(option["cost"], str) and option["cost"].count(".") == 1
    assert found["counts"]["options"] > 1000 and found["misfits"][0]["reason"]


def test_a_what_if_stands_beside_the_plan(run: Run, tmp_path: Path) -> None:
    over = tmp_path / "dear.toml"
    over.write_text('[[prices]]\ncloud = "aws"\nfactor = 100\n')
    done = run("recommender", "--what-if", over)
    (titles,) = [line for line in done.out.splitlines() if "as it is" in line]
    assert done.code == 0 and titles.split() == ["as", "it", "is", "dear"]
    assert any("aws" in line and "gcp" in line for line in done.out.splitlines() if line.startswith("  where"))
    found = run("recommender", "--what-if", over, "--json").json()
    assert [one["name"] for one in found["what_if"]] == ["dear"]
    assert float(found["what_if"][0]["front"][0]["cost"]) >= float(found["front"][0]["cost"])


def test_a_deadline_that_nothing_meets_is_told_with_the_least_time(run: Run, tmp_path: Path) -> None:
    over = tmp_path / "hurry.toml"
    over.write_text(HURRY)
    done = run("image-classifier", "--what-if", over)
    assert done.code == 1
    assert "hurry: no hardware meets the deadline of 2m: the least time is" in done.err and "limits.max_nodes" in done.err


def test_all_lists_every_option_and_why_the_others_do_not_fit(run: Run, tmp_path: Path) -> None:
    over = tmp_path / "w.toml"
    over.write_text(
        '[model]\nparameters = "500M"\ntokens_per_sample = 1024\nprecision = "bf16"\n[train]\ntokens = "1B"\nglobal_batch = 64\n'
        '[limits]\ngpu_models = ["A10G", "V100", "T4"]\nclouds = ["aws"]\nmax_nodes = 1\n'
    )
    done = run(over, "--all")
    assert done.code == 0 and "What does not fit:" in done.out
    (reason,) = [line for line in " ".join(done.out.split()).split("- ") if line.startswith("the V100 has no bf16;")]
    assert "`fallback` may name another precision: aws p3.16xlarge," in reason and max(map(len, done.out.splitlines())) <= 80


def test_prices_in_yuan_are_shown_and_ranked_with_a_rate(run: Run, tmp_path: Path) -> None:
    work = tmp_path / "w.toml"
    work.write_text(
        '[model]\nparameters = "25M"\nflops_per_sample = "24 GFLOP"\nprecision = "fp16"\nactivations_per_sample = "50MB"\n'
        '[train]\nsamples = "1M"\nglobal_batch = 256\n[limits]\nclouds = ["alibaba"]\n'
    )
    without = run(work)
    assert without.code == 1 and "no option with a known price" in without.err and "CNY " in without.out
    (tmp_path / "terms.toml").write_text('[currency]\nCNY = [{ from = 2026-01-01, usd = "0.14" }]\n')
    with_rate = run(work, "--terms", tmp_path / "terms.toml")
    assert with_rate.code == 0 and "$" in with_rate.out


def test_the_examples_are_listed(run: Run) -> None:
    done = run("--examples")
    assert done.code == 0 and [line.split()[0] for line in done.out.splitlines()] == [
        "NAME",
        "image-classifier",
        "language-model",
        "recommender",
    ]
    assert [Path(one["file"]).name for one in run("--examples", "--json").json()][0] == "image-classifier.toml"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "plan what? Give a workload file"),
        (("nothing.toml",), "no such file, and no example of that name"),
        (("recommender", "--what-if", "nothing.toml"), "--what-if nothing.toml: no such file"),
        (("recommender", "--top", "0"), "at least 1"),
    ],
)
def test_wrong_usage_is_a_sentence_and_exit_code_2(run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.code == 2 and words in done.err and done.out == ""


def test_a_fault_in_the_file_names_it_and_the_key(run: Run, tmp_path: Path) -> None:
    work = tmp_path / "w\x1b[2J.toml"
    work.write_text('[model]\nparameters = "-3M"\n')
    done = run(work)
    assert done.code == 2 and "`model.parameters` is '-3M': it must be above 0." in done.err and "\x1b" not in done.err


def test_nothing_that_fits_says_how_to_find_out_why(run: Run, tmp_path: Path) -> None:
    work = tmp_path / "w.toml"
    work.write_text(
        '[model]\nparameters = "900T"\nflops_per_sample = "1 GFLOP"\nprecision = "fp16"\n[train]\nsamples = 5\nglobal_batch = 256\n'
    )
    done = run(work)
    assert (
        done.code == 1
        and "nothing in the catalog fits this workload (most often: needs more than 16,200,000.0 GB on each GPU" in done.err
        and "too little memory" in done.out
    )

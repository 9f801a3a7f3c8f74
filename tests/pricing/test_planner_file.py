"""Reading workloads: units, what is refused and with which words, what-ifs."""

from __future__ import annotations

import copy
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import planner_units as units
from pricing.errors import WorkloadError
from pricing.planner_file import example_names, find, laid, load, read, table_of
from tests.support.examples import examples

TEXT = """
[model]
parameters = "25.6M"
flops_per_sample = "24.6 GFLOP"
precision = "fp16"
[train]
samples = 1_000_000
global_batch = 256
"""


def table(**changes: dict[str, Any]) -> dict[str, Any]:
    found = tomllib.loads(TEXT)
    for place, keys in changes.items():
        found[place] = {**found.get(place, {}), **keys}
    return found


def fault(found: dict[str, Any]) -> str:
    with pytest.raises(WorkloadError) as raised:
        read(found, "w.toml")
    assert raised.value.exit_code == 2 and "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("read_one", "text", "value"),
    [
        (units.count, "25.6M", 25_600_000), (units.count, "70B", 70 * 10**9), (units.count, 1281167, 1281167), (units.count, "1e9", 10**9),
        (units.count, 0.5, Fraction(1, 2)), (units.flops, "24.6 GFLOP", 24_600_000_000), (units.flops, "8e6", 8_000_000),
        (units.flops, "2 PFLOP", 2 * 10**15), (units.size, "500GB", 500 * 10**9), (units.size, "40GiB", 40 * 2**30), (units.size, "110kB", 110_000),
        (units.size, "60B", 60), (units.size, 60, 60), (units.seconds, "1h30m", 5400), (units.seconds, "2d", 172_800),
        (units.seconds, "0.5h", 1800), (units.dollars, "$450", 450), (units.dollars, "450 usd", 450), (units.dollars, 12.5, Fraction(25, 2)),
        (units.number, 0, 0), (units.number, "0.1", Fraction(1, 10)), (units.share, 0.35, Fraction(7, 20)),
    ],
)  # fmt: skip
def test_quantities_are_read_exactly(read_one: Any, text: object, value: object) -> None:
    assert read_one(text) == value


@pytest.mark.parametrize(
    ("read_one", "text", "words"),
    [
        (units.count, "-3M", "must be above 0"), (units.count, 0, "must be above 0"), (units.count, "many", "no count"),
        (units.count, True, "true or false"), (units.count, float("inf"), "finite"), (units.count, [3], "a list"),
        (units.flops, "24.6 TFLOPS", "a speed"), (units.flops, "3 TFLOP/s", "a speed"), (units.size, "500G", "two meanings"),
        (units.size, "500Gb", "two meanings"), (units.size, "25Gbit", "no size"), (units.size, "5 GB/s", "no size"), (units.size, "-5GB", "above 0"),
        (units.seconds, 48, "no unit"), (units.seconds, "48 hours", "no length of time"), (units.seconds, "0s", "above 0"),
        (units.dollars, "3 EUR", "in EUR"), (units.dollars, "cheap", "no amount"), (units.share, 35, "0.35 for 35 %"), (units.number, -1, "at least 0"),
        (units.number, "1,5", "no number"), (units.count, "9" * 40, "too large"),
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_how_to_write_it(read_one: Any, text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_one(text)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": {"deadlin": "3h"}}, "unknown key `run.deadlin`; did you mean `deadline`?"),
        ({"modle": {}}, "unknown key `modle`; did you mean `model`?"),
        ({"model": {"precision": "bf61"}}, "`model.precision` is 'bf61', which is none: did you mean 'bf16'?"),
        ({"model": {"precision": "int8"}}, "in which nothing is trained"),
        ({"model": {"task": "infer", "optimizer": "adam"}}, "leave one of them out"),
        ({"model": {"exchanged_parameters": "1B"}}, "more than `parameters`"),
        ({"model": {"gpu_memory": "3GB", "activations_per_sample": "1MB"}}, "contradicts `gpu_memory`: give only one"),
        ({"model": {"layers": 12}}, "only together with `hidden`, `heads` and `tokens_per_sample`"),
        ({"train": {"tokens": "3B"}}, "`train.tokens` contradicts `samples`"),
        ({"train": {"global_batch": 2.5}}, "must be a whole number from 1"),
        ({"data": {"size": "1GB"}}, "`data.bytes_per_sample` is missing"),
        ({"data": {"size": "1GB", "bytes_per_sample": "2GB"}}, "smaller than one sample"),
        ({"data": {"size": "1GB", "bytes_per_sample": "1kB", "region": "us-east-1"}}, "needs `cloud`"),
        ({"data": {"size": "1GB", "bytes_per_sample": "1kB", "storage": ["nvme"]}}, "'nvme', which is none"),
        ({"run": {"spot_wait": "5m"}}, "write interruptible = true"),
        ({"run": {"interruptible": "yes"}}, "must be true or false"),
        ({"limits": {"clouds": "aws"}}, "must be a list of texts"),
        ({"limits": {"gpu_models": ["H10O"]}}, "did you mean 'H100'?"),
        ({"limits": {"max_nodes": 0}}, "from 1 to 1024"),
        ({"assume": {"overlap": 2}}, "from 0 to 1"),
        ({"reference": {"gpus": 2}}, "`reference.gpu_model` is missing"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_file_and_key(changes: dict[str, dict[str, Any]], words: str) -> None:
    sentence = fault(table(**changes))
    assert sentence.startswith("w.toml: ") and words in sentence, sentence


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"measured": [{"gpu": "A100", "samples_per_second": 3}]}, "`measured[1].source` is missing"),
        ({"measured": [{"gpu": "A100", "source": "x"}]}, "`measured[1].samples_per_second` is missing"),
        ({"measured": [{"gpu": "A100", "tokens_per_second": 3, "source": "x"}]}, "needs `model.tokens_per_sample`"),
        ({"measured": {"gpu": "A100"}}, "written as [[measured]]"),
        ({"prices": [{"instance_type": "p4d.*"}]}, "`prices[1].usd_per_hour` is missing"),
        ({"prices": [{"factor": 2, "usd_per_hour": 3}]}, "contradicts `usd_per_hour`"),
    ],
)
def test_faults_in_lists_are_numbered(lists: dict[str, Any], words: str) -> None:
    assert words in fault({**table(), **lists})


def test_without_operations_or_a_measurement_nothing_can_be_planned() -> None:
    found = table()
    del found["model"]["flops_per_sample"]
    assert "give it, or tokens_per_sample, or a [[measured]] throughput" in fault(found)
    found["model"]["tokens_per_sample"] = 1024
    assert read(found).model.flops_per_sample == 6 * 25_600_000 * 1024


@pytest.mark.parametrize("name", ["model", "train"])
def test_a_missing_table_is_named(name: str) -> None:
    found = table()
    del found[name]
    assert f"the table [{name}] is missing" in fault(found)


def test_the_examples_are_read_and_are_the_three_promised() -> None:
    assert example_names() == ["image-classifier", "language-model", "recommender"]
    images, text, clicks = (load(find(name)) for name in example_names())
    assert images.reference is not None and (images.reference.gpu_model, images.reference.gpus) == ("A100", 4)
    assert images.reference.local_nvme_bytes == 500 * 10**9 and images.samples == 405_000_000
    assert text.reference is not None and (text.reference.gpu_model, text.reference.gpus, text.model.precision) == (
        "V100",
        8,
        "fp16",
    )
    assert clicks.reference is not None and (clicks.reference.gpu_model, clicks.reference.gpus) == ("T4", 2)


def test_a_what_if_is_laid_over_key_by_key_and_adds_prices(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(TEXT + '[[prices]]\nfactor = 2\n[run]\ndeadline = "5h"\nstartup = "1m"\n')
    (tmp_path / "if.toml").write_text('[run]\ndeadline = "2h"\n[[prices]]\ninstance_type = "p4d.*"\nusd_per_hour = 9\n')
    before, after = load(tmp_path / "w.toml"), load(tmp_path / "w.toml", tmp_path / "if.toml")
    assert (before.run.deadline_seconds, after.run.deadline_seconds, after.run.startup_seconds) == (18_000, 7200, 60)
    assert [(one.factor, one.usd_per_hour) for one in after.prices] == [(2, None), (None, 9)]
    (tmp_path / "if.toml").write_text("[run]\nbudget = 3\n")
    with pytest.raises(WorkloadError, match=r"w.toml under .*if.toml: unknown key `run.budget`"):
        load(tmp_path / "w.toml", tmp_path / "if.toml")


def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no such file, and no example of that name; did you mean recommender"):
        find("recomender")
    (tmp_path / "w.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(WorkloadError, match="not UTF-8"):
        table_of(tmp_path / "w.toml")
    (tmp_path / "w.toml").write_text("[model")
    with pytest.raises(WorkloadError, match="not valid TOML"):
        table_of(tmp_path / "w.toml")


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.lists(st.integers(), max_size=2)
    | st.just({})
)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_no_value_in_any_place_is_more_than_a_sentence(data: st.DataObject) -> None:
    found = copy.deepcopy(table_of(find(data.draw(st.sampled_from(example_names())))))
    place = data.draw(st.sampled_from(sorted(found)))
    if isinstance(found[place], dict):
        key = data.draw(st.sampled_from(sorted(found[place])))
        found = laid(found, {place: {key: data.draw(JUNK)}})
    else:
        found[place] = data.draw(JUNK)
    try:
        read(found)
    except WorkloadError as error:
        assert "\n" not in str(error)

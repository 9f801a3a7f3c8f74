"""The same language for GPUs, alerts, jobs and offers, and in the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing.catalog import Catalog
from tests.support.cli import rackrate_here, write_config
from tests.support.fleets import AT, NOW, small_fleet
from tui.alerts import all_alerts
from tui.columns import GpuRow
from tui.job_rows import JOB_WORDS
from tui.offers import select_offers
from tui.query import NODE_WORDS, Words, parse
from tui.query_rows import ALERT_WORDS, GPU_WORDS, OFFER_WORDS, AlertLook


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 33),
        ("state:idle", 4),
        ("state:idle node:a100-half cost>4", 4),
        ("state:lost node:v100-broken", 1),
        ("user:carol", 3),
        ("index=0 gpu:a100 state:live", 4),
        ("temp>60 node:a100-busy util>80", 2),
        ("GPU-a100-half-3", 1),
        ("buy:spot or node:mystery", 9),
    ],
)
def test_a_query_selects_single_gpus(text: str, count: int) -> None:
    wanted = parse(text, GPU_WORDS)
    rows = [GpuRow(view, use) for view in small_fleet() for use in view.uses]
    assert sum(wanted(row, NOW) for row in rows) == count


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", {"gpu_idle_held", "node_silent"}),
        ("severity:critical", {"node_silent"}),
        ("rule:/^gpu_/", {"gpu_idle_held"}),
        ("node:a100-half age>20m", {"gpu_idle_held"}),
        ("age>30m", set()),
        ("cost>50", {"node_silent"}),
        ("user:bob", {"gpu_idle_held"}),
        ("user:fay", {"node_silent"}),
        ("what:'ask bob' or h100-gone", {"gpu_idle_held", "node_silent"}),
        ("gpu:GPU-a100-half-1", {"gpu_idle_held"}),
        ("type:p5", {"node_silent"}),
    ],
)
def test_a_query_selects_alerts(text: str, rules: set[str]) -> None:
    fleet, wanted = small_fleet(), parse(text, ALERT_WORDS)
    found = {alert.rule for alert in all_alerts(fleet, NOW, AT) if wanted(AlertLook(alert, fleet[alert.node], AT), NOW)}
    assert found == rules


def test_a_query_selects_offers_the_cheapest_first() -> None:
    offers = select_offers(parse("gpu:H100 (region:us-east-1 or region:us-west-2) !buy:spot gpus=8", OFFER_WORDS), Catalog.embedded())
    assert offers and {offer.region for offer in offers} == {"us-east-1", "us-west-2"}
    assert {offer.purchase for offer in offers} and all(offer.purchase != "spot" for offer in offers)
    cheap = select_offers(parse("each<1 cloud:aws", OFFER_WORDS), Catalog.embedded())
    assert cheap and all(Catalog.embedded().per_gpu(offer) < 1 for offer in cheap)  # type: ignore[operator]


@pytest.mark.parametrize("words", [NODE_WORDS, GPU_WORDS, ALERT_WORDS, JOB_WORDS, OFFER_WORDS])
def test_every_key_can_be_asked(words: Words) -> None:
    for key in words.text_keys:
        parse(f"{key}:x !{key}:/y$/ {key}:=z", words)
    for key in words.number_keys:
        parse(f"{key}>1 {key}:1..2 {key}!=3", words)
    assert set(words.known) <= set(words.text_keys)


@pytest.mark.parametrize("key", ["node", "user", "project"])
def test_a_kept_filter_about_people_or_nodes_serves_every_kind_of_row(key: str) -> None:
    for words in (NODE_WORDS, GPU_WORDS, ALERT_WORDS, JOB_WORDS):
        parse("@kept", words, {"kept": f"{key}:x"})


def test_prices_take_filters_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary) -> None:  # noqa: ANN001
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    write_config(tmp_path, '[filters]\nbig = "gpu:H100 or gpu:H200"\nodd = "gpu:H100 or"\n')
    done = rackrate_here(capfdbinary, "prices", "@big", "buy:spot", "cloud:aws", "--json")
    assert done.code == 0 and {offer["gpu_model"] for offer in done.json()} >= {"H100"}
    done = rackrate_here(capfdbinary, "prices", "@bog")
    assert done.code == 2 and "query at character 1 (`@bog`): no filter of this name is kept; there are @big, @odd." in done.err
    done = rackrate_here(capfdbinary, "prices", "x", "@odd")
    assert done.code == 2 and "in the filter `odd`, query at character 10 (`or`)" in done.err
    done = rackrate_here(capfdbinary, "prices", "gpu:H100 regoin:us-east-1")
    assert done.code == 2 and done.out == "" and "character 10 (`regoin`): unknown key `regoin`; did you mean `region`?" in done.err


@pytest.mark.parametrize(
    ("toml", "part"),
    [
        ('[filters]\n"a b" = "x"\n', "filters: `a b` is no name"),
        ("[filters]\nmine = 5\n", "`filters[...]`: Expected `str`, got `int`."),
        ('filters = "x"\n', "`filters`: Expected `object`, got `str`."),
    ],
)
def test_a_wrong_table_of_filters_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary, toml: str, part: str) -> None:  # noqa: ANN001
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    write_config(tmp_path, toml)
    done = rackrate_here(capfdbinary, "prices", "@mine")
    assert done.code == 2 and part in done.err and "config.toml" in done.err

"""The filter language: the same text selects the same nodes everywhere."""

from __future__ import annotations

import pytest

from tests.support.fleets import NOW, small_fleet
from tui.errors import WrongUsage
from tui.query import parse


def selected(text: str) -> set[str]:
    wanted = parse(text)
    return {view.name for view in small_fleet() if wanted(view, NOW)}


ALL = {"a100-busy", "a100-half", "v100-broken", "mystery", "cpu-head", "t4-stale", "h100-gone", "never"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ALL),
        ("   ", ALL),
        ("a100-b", {"a100-busy"}),
        ("A100-B", {"a100-busy"}),
        ("state:live", {"a100-busy", "a100-half", "v100-broken", "mystery", "cpu-head"}),
        ("state:lost", {"v100-broken", "h100-gone"}),
        ("state:idle", {"a100-half"}),
        ("state:stale", {"t4-stale"}),
        ("user:bob", {"a100-half"}),
        ("user:carol user:dan", {"v100-broken"}),
        ("user:bob user:dan", set()),
        ("gpu:a100 !user:ada !user:bob state:live", {"v100-broken", "mystery"}),
        ("buy:spot", {"a100-half"}),
        ("!spot state:live", {"a100-busy", "v100-broken", "mystery", "cpu-head"}),
        ("cost>50", {"h100-gone"}),
        ("$>50", {"h100-gone"}),
        ("idle>0", {"a100-half", "v100-broken"}),
        ("util<40", {"a100-half"}),
        ("util<40%", {"a100-half"}),
        ("gpus<=1 state:live", {"mystery", "cpu-head"}),
        ("age>5", {"t4-stale", "h100-gone"}),
        ("alert:idle", {"a100-half"}),
        ("project:vision user:eve", {"t4-stale"}),
        ("zone:use1-az4", {"v100-broken"}),
        ('"a100-busy"', {"a100-busy"}),
    ],
)
def test_a_query_selects(text: str, names: set[str]) -> None:
    assert selected(text) == names


def test_a_value_that_is_not_known_matches_no_comparison() -> None:
    assert "mystery" not in selected("cost>0") | selected("cost<=0") | selected("idle<=0")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("stat:idle", "stat"),
        ("util<abc", "abc"),
        ("utl<5", "utl"),
        ("user:ada 'open", "close the quotation"),
        ("a b c:d", "character 5"),
    ],
)
def test_a_wrong_query_says_what_and_where(text: str, part: str) -> None:
    with pytest.raises(WrongUsage, match="query") as error:
        parse(text)
    assert part in str(error.value)

"""owned.toml: written and read back, merged with terms.toml, contradictions in words, ages."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.errors import TermsError
from pricing.owned_file import RESERVATIONS, SAVINGS_PLANS, Reading, age_note, read_owned, reading, replaced, written
from pricing.terms import Terms, load

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
RI = {
    "id": "ri-1", "kind": "reservation", "cloud": "aws", "region": "us-east-1", "instance_type": "p4d.24xlarge", "count": 2,
    "upfront": "60000", "hourly": "6.85", "currency": "USD", "from": datetime(2026, 1, 1, 7, 30, tzinfo=UTC),
    "to": datetime(2027, 1, 1, 7, 30, tzinfo=UTC),
}  # fmt: skip
SP = {
    "id": "sp-1", "kind": "savings_plan", "cloud": "aws", "per_hour": "12.5", "currency": "CNY", "upfront": "0",
    "from": NOW, "to": NOW + timedelta(days=365), "rates": {"us-east-1/p4d.24xlarge": "11.1", "p5.48xlarge": "40"},
}  # fmt: skip
TERMS = (
    '[[commitments]]\nid="ri-1"\nkind="reservation"\ncloud="aws"\nregion="us-east-1"\ninstance_type="P4D.24xlarge"\n'
    'count=2\nupfront="60000"\nhourly="6.85"\nfrom=2026-01-01\nto=2027-01-01\n'
)


def kept(*tables: dict, region: str | None = "us-east-1", at: datetime = NOW, account: str = "1") -> Reading:
    return reading("aws", account, RESERVATIONS if region else SAVINGS_PLANS, region, at, tables)


def terms(tmp_path: Path, text: str | None, *readings: Reading) -> Terms:
    if text is not None:
        (tmp_path / "terms.toml").write_text(text)
    (tmp_path / "owned.toml").write_text(written(readings))
    return load(tmp_path / "terms.toml", must_exist=False)


def test_what_is_written_is_read_back_whole() -> None:
    parts = [kept(RI), kept(SP, region=None), kept(region="eu-west-1")]
    back = read_owned(tomllib.loads(written(parts)), "owned.toml", frozenset())
    assert [part.commitments for part in back] == [part.commitments for part in parts]
    assert [part.place for part in back] == [part.place for part in parts]
    assert written(back) == written(parts)


@given(st.text(min_size=1, max_size=40).filter(str.strip))
def test_whatever_a_cloud_calls_a_commitment_the_file_stays_readable(name: str) -> None:
    text = written([kept({**RI, "id": name}), kept({**SP, "rates": {name: "1"}}, region=None)])
    first, second = read_owned(tomllib.loads(text), "owned.toml", frozenset())
    assert first.commitments[0].count == 2 and list(second.commitments[0].rates.values()) == [1]


def test_a_reading_takes_the_place_of_an_earlier_one_of_the_same_place_only() -> None:
    old = [kept(RI), kept(SP, region=None), kept(RI, account="2")]
    new = kept({**RI, "id": "ri-9"}, at=NOW + timedelta(days=1))
    ids = [(part.account, part.of, [one.id for one in part.commitments]) for part in replaced(old, [new])]
    assert ids == [("1", RESERVATIONS, ["ri-9"]), ("1", SAVINGS_PLANS, ["sp-1"]), ("2", RESERVATIONS, ["ri-1"])]
    assert replaced(old, []) == sorted(old, key=lambda part: part.place)


def test_commitments_of_both_files_count_and_one_in_both_counts_once(tmp_path: Path) -> None:
    found = terms(tmp_path, TERMS, kept(RI, {**RI, "id": "ri-2"}), kept(SP, region=None, at=NOW - timedelta(days=3)))
    assert [one.id for one in found.commitments] == ["ri-1", "ri-2", "sp-1"]
    assert (found.notes, found.owned_at) == ((), NOW - timedelta(days=3))
    assert found.commitments[0].starts_ms % 86_400_000 == 0, "the user's words count"


def test_without_terms_of_the_user_what_was_read_counts(tmp_path: Path) -> None:
    found = terms(tmp_path, None, kept(RI))
    assert [one.id for one in found.commitments] == ["ri-1"]
    with pytest.raises(TermsError, match="cannot be read"):
        load(tmp_path / "terms.toml")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": 3}, "terms.toml says 2, and aws said 3 on 2026-11-30 (count)"),
        ({"region": "us-west-2"}, "says us-east-1, and aws said us-west-2"),
        ({"zone": "use1-az1"}, "says none, and aws said use1-az1"),
        ({"instance_type": "p5.48xlarge"}, "said p5.48xlarge"),
        ({"to": datetime(2029, 1, 1, tzinfo=UTC)}, "says 2027-01-01, and aws said 2029-01-01"),
        ({"upfront": "61000"}, "(cost per hour)"),
        ({"currency": "CNY"}, "says USD, and aws said CNY"),
    ],
)
def test_a_contradiction_is_a_sentence_and_the_users_words_count(tmp_path: Path, change: dict, says: str) -> None:
    found = terms(tmp_path, TERMS, kept({**RI, **change}))
    (note,) = found.notes
    assert note.startswith("commitment ri-1: ") and says in note and "correct it there, or take it out" in note
    assert found.commitments[0].count == 2 and found.commitments[0].cost_per_hour == Fraction(60_000, 8760) + Fraction("6.85")


@pytest.mark.parametrize("text", ["[[read]]\ncloud='aws'\n", "surprise=1\n", "[read]\n", "[[read", "[[read]]\ncloud=1\n"])
def test_a_damaged_file_is_a_sentence_that_says_how_to_make_it_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "owned.toml").write_text(text)
    with pytest.raises(TermsError, match=r"owned\.toml: "):
        load(tmp_path / "terms.toml", must_exist=False)


def test_what_was_read_a_while_ago_says_its_age() -> None:
    assert age_note(None, NOW) is None and age_note(NOW - timedelta(days=6), NOW) is None
    note = age_note(NOW - timedelta(days=12, hours=3), NOW)
    assert note is not None and "12 days ago, on 2026-11-18" in note and "prices owned --write" in note

"""Ids: unique, in order, and nothing else ever becomes part of a path."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import JobUnknown
from agent.jobs import ids
from agent.jobs.ids import IdSource


def test_ids_sort_as_they_were_made_and_repeat_never_also_when_the_clock_goes_back() -> None:
    times = iter([1000.0] * 5000 + [999.0] * 5000 + [2000.0])
    source = IdSource(lambda: next(times), random.Random(1))
    made = [source.new() for _ in range(10_001)]
    assert made == sorted(set(made))
    assert all(ids.is_job_id(one) and len(one) == 12 for one in made)


def test_ids_of_two_sources_at_the_same_moment_differ() -> None:
    assert IdSource(lambda: 5.0, random.Random(1)).new() != IdSource(lambda: 5.0, random.Random(2)).new()


def test_ids_still_have_twelve_characters_at_the_end_of_the_century() -> None:
    assert len(ids.encode(4_102_444_800 * 8 * 32**5)) == 12
    assert IdSource(lambda: 4_102_444_800.0).new() > IdSource(lambda: 1_800_000_000.0).new()


@pytest.mark.parametrize(
    "text",
    ["", "..", "../../etc/passwd", "000000000000/..", "000000000000\n", "000000000000_", "00000000000A", "000000000000_1234567",
     "００００００００００００", "0" * 5000],
)  # fmt: skip
def test_what_is_no_id_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(JobUnknown, match="is not the id of a job") as told:
        ids.checked(text)
    assert len(str(told.value)) < 200
    assert "\n" not in str(told.value)


@given(st.sampled_from(["0" * 12, "0" * 12 + "_999999"]), st.integers(1, 10**8))
def test_a_unit_name_gives_its_job_and_attempt_back(id: str, attempt: int) -> None:
    assert ids.parse_unit(ids.unit_name(id, attempt)) == (id, attempt)


@pytest.mark.parametrize("name", ["job-1-1", "cgroup.procs", "job-000000000000-0", "job-000000000000-1/x", "job-000000000000"])
def test_other_folders_are_no_units(name: str) -> None:
    assert ids.parse_unit(name) is None

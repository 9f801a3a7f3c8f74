"""Regular expressions of the filter language: what Python's `re` finds, and nothing that hangs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tui.query_regex import POSITIONS, Automaton, PatternError, compile_pattern

_ATOMS = st.sampled_from(["a", "b", "B", "1", ".", r"\d", r"\w", r"\s", "[ab]", "[^a]", "[a-c1]", r"[^\d]", "-", r"\."])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    many = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, many).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


PATTERNS = st.builds(
    lambda begin, body, end: begin + body + end,
    st.sampled_from(["", "^", "(^|-)"]),
    st.recursive(_ATOMS, _grown, max_leaves=6),
    st.sampled_from(["", "$", "(-|$)"]),
)


@settings(max_examples=examples(300), deadline=None)
@given(PATTERNS, st.text("abB1- .x", max_size=12))
def test_it_finds_what_re_finds(regex: str, text: str) -> None:
    try:
        automaton = Automaton(regex)
    except PatternError:
        return
    assert automaton.search(text) == bool(re.search(regex, text, re.IGNORECASE))


@pytest.mark.parametrize(
    ("regex", "text", "found"),
    [
        ("gpu-0[1-3]", "gpu-02.lab", True),
        ("gpu-0[1-3]", "GPU-04", False),
        ("^gpu", "xgpu", False),
        ("", "", True),
        ("", "x", True),
        ("^$", "", True),
        ("^$", "x", False),
        ("$", "x", True),
        ("a|", "", True),
        ("[A-C]x", "bX", True),
        ("é+", "CAFÉ", True),
        ("(?i)abc", "ABC", True),
        ("a{0}b", "b", True),
    ],
)
def test_it_looks_for_a_part_and_ignores_case(regex: str, text: str, found: bool) -> None:
    assert Automaton(regex).search(text) is found


@pytest.mark.parametrize("regex", ["(a+)+$", "(a|a)*$", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)x", "a*a*a*a*a*a*a*b", "(a|b)*a(a|b){20}c"])
def test_what_hangs_other_engines_takes_a_step_a_character(regex: str) -> None:
    automaton = Automaton(regex)
    for text in ("a" * 5000, "ab" * 2500, "aab" * 1000 + "!"):
        automaton.search(text)
    assert len(automaton._tests) <= POSITIONS and len(automaton._steps) <= 4096


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        ("(", "unterminated"),
        ("a**", "multiple repeat"),
        ("[z-a]", "range"),
        (r"(a)\1", "back-reference"),
        ("(?=a)", "look-ahead"),
        (r"\bgpu", r"\\b"),
        ("a{300}", "repetition"),
        ("(a{20}){20}", "more than"),
        ("(((((){99}){99}){99}){99}){99}", "too many"),
        ("a" * 201, "characters"),
        ("(?s).", "flags"),
        ("(?x: a)", "flags"),
        ("(" * 100 + ")" * 100, "hundred deep is fine"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_reason(regex: str, why: str) -> None:
    if why.endswith("fine"):
        Automaton(regex)
        return
    with pytest.raises(PatternError, match=why):
        Automaton(regex)


def test_the_memory_for_texts_is_limited() -> None:
    automaton = compile_pattern("1$")
    for number in range(10_000):
        automaton.search(str(number))
    assert len(automaton._known) <= 4096 and automaton.search("901") and not automaton.search("902")

"""The filter language: the same text selects the same nodes everywhere."""

from __future__ import annotations

import getpass
import operator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.fleets import NOW, gpu, put, small_fleet
from tui.errors import WrongUsage
from tui.query import QueryError, Words, compile_tree, parse, parse_tree
from tui.query_tree import All, Compare, Everything, Named, Not, Pattern, Range, Some, Text, Tree, Word, spell


def selected(text: str, **named: str) -> set[str]:
    wanted = parse(text, named=named)
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
        ("bob or fay", {"a100-half", "h100-gone"}),
        ("user:bob or user:eve state:stale", {"a100-half", "t4-stale"}),
        ("(user:bob or user:eve) state:stale", {"t4-stale"}),
        ("(user:bob OR user:eve) AND state:stale", {"t4-stale"}),
        ("!(user:bob or user:eve) gpu:a100 gpus>1 buy:on_demand state:live", {"a100-busy", "v100-broken"}),
        ("!!user:bob", {"a100-half"}),
        ("node:/^a100-(busy|half)$/", {"a100-busy", "a100-half"}),
        ("/^t4/", {"t4-stale"}),
        ("node:=never", {"never"}),
        ("node:=neve", set()),
        ("!cloud:", {"never"}),
        ("gpus:4", {"v100-broken", "t4-stale"}),
        ("gpus=4", {"v100-broken", "t4-stale"}),
        ("gpus:1..4", {"v100-broken", "t4-stale", "mystery"}),
        ("cost:..4", {"cpu-head", "t4-stale"}),
        ("cost:90..", {"h100-gone"}),
        ("cost>$50", {"h100-gone"}),
        ("age>3m", {"h100-gone"}),
        ("age:5s..1h", {"t4-stale", "h100-gone"}),
        ("free>0", {"a100-half"}),
        ("free=0 gpus>0", {"a100-busy", "v100-broken", "t4-stale", "h100-gone", "mystery"}),
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


WRONG = [  # query, the spot, what is said
    ("stat:idle", "stat", "did you mean `state`?"),
    ("util>5 STATE:x", "STATE", "did you mean `state`?"),
    ("zzzqq:1", "zzzqq", "there are node, state"),
    ("user:ada state<5", "state<", "`state` is text"),
    ("util<", "util<", "a number is missing"),
    ("util<nan", "nan", "no number"),
    ("util<1e999", "1e999", "too large"),
    ("util<5m", "5m", "no number"),
    ("age<5%", "5%", "no number"),
    ("util:20..10", "20..10", "ends before it begins"),
    ("util:..", "..", "no number"),
    ("(a or b", "(", "not closed"),
    ("a or b)", ")", "closes nothing"),
    ("a ()", "()", "nothing between"),
    ("(", "(", "not closed"),
    ("a or", "or", "between two terms"),
    ("or a", "or", "between two terms"),
    ("and a", "and", "between two terms"),
    ("a (b or) c", "or", "between two terms"),
    ("a ! b", "!", "negates the term behind it"),
    ("!", "!", "negates the term behind it"),
    ("a(b)", "(", "inside a word"),
    ("node:/a(/", "(", "unterminated"),
    ("node:/abc", "/abc", "not closed"),
    ("/data/train.py", "/data/t", "a path goes in quotes"),
    ("a @minne", "@minne", "there are @bad, @deep, @loop, @mine"),
    ("@", "@", "no filter of this name"),
    ("@loop", "@loop", "means itself"),
    ("a @bad", "@bad", "in the filter `bad`, query at character 1 (`stat`)"),
    ("!" * 50 + "a", "!", "inside each other"),
    ("(" * 50, "(", "inside each other"),
    ("a" * 2001, "a", "at most 2000 characters"),
]
NAMED = {"mine": "user:me", "loop": "a or @loop", "bad": "stat:idle", "deep": "@mine state:live"}


@pytest.mark.parametrize(("text", "spot", "why"), WRONG, ids=lambda part: str(part)[:20])
def test_an_error_knows_its_spot_and_says_what_to_do(text: str, spot: str, why: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, named=NAMED)
    error = caught.value
    assert why in str(error) and "\n" not in str(error) and f"character {error.start + 1}" in str(error)
    assert text[error.start : error.end] == spot
    assert error.caret(2)[2:] == " " * error.start + "^" * len(spot)


def test_the_caret_stands_below_wide_characters_too() -> None:
    with pytest.raises(QueryError) as caught:
        parse("節点 stat:x")
    assert caught.value.caret() == "     ^^^^"


def test_me_is_exactly_the_one_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "al")
    fleet = small_fleet()
    put(fleet, "two", (gpu(0, users=("al",)), gpu(1, users=("alice",))))
    put(fleet, "other", (gpu(0, users=("alice",)),))
    assert {view.name for view in fleet if parse("user:me")(view, NOW)} == {"two"}
    assert {view.name for view in fleet if parse("user:al")(view, NOW)} == {"two", "other"}


def test_a_filter_that_is_kept_is_a_term_like_any_other() -> None:
    assert selected("@bobs", bobs="user:bob or user:eve") == {"a100-half", "t4-stale"}
    assert selected("@bobs state:stale", bobs="user:bob or user:eve") == {"t4-stale"}, "as a whole, as if in parentheses"
    assert selected("!@bobs user:ada", bobs="user:bob") == {"a100-busy"}
    assert selected("@outer", outer="@inner !eve", inner="bob or eve") == {"a100-half"}


# -- any tree ----------------------------------------------------------------------------------------------------------

TEXT_KEYS, NUMBER_KEYS = ("node", "user", "tag"), ("util", "age", "$")


def _texts(row: dict[str, Any], key: str, now: float) -> list[str]:
    return row[key]


WORDS = Words(TEXT_KEYS, NUMBER_KEYS, _texts, lambda row, key, now: row[key], lambda row: [*row["node"], *row["user"]])
_texts_of_rows = st.lists(st.text("abB /\"(1:.@", max_size=5), max_size=2)
_numbers = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 2))
ROWS = st.fixed_dictionaries(
    {**{key: _texts_of_rows for key in TEXT_KEYS}, **{key: st.none() | _numbers for key in NUMBER_KEYS}}
)
_keys, _number_keys = st.sampled_from(TEXT_KEYS), st.sampled_from(NUMBER_KEYS)
_free = st.text("abB /\\\"'()=!@.:<>-~or1é", max_size=6) | st.sampled_from(["or", "AND", "me", "=x", "/a/", "a..b", "$", "node:a"])
LEAVES = st.one_of(
    st.builds(Word, _free),
    st.builds(Text, _keys, _free, st.booleans()),
    st.builds(Pattern, st.none() | _keys, st.sampled_from(["a", "^b$", "/", "a/b", "\\\\", "[ab]+ ", "\\d", "(a|b)", "1?"])),
    st.builds(Compare, _number_keys, st.sampled_from(["<", ">", "<=", ">=", "=", "!="]), _numbers),
    st.builds(
        lambda key, low, high: Range(key, *sorted((low, high))), _number_keys, _numbers, _numbers
    ),
    st.builds(Range, _number_keys, st.none(), _numbers),
    st.builds(Range, _number_keys, _numbers, st.none()),
    st.just(Named("mine", Text("user", "me"))),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Some, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(TREES)
def test_what_is_spelled_is_read_as_the_same_tree(tree: Tree) -> None:
    assert parse_tree(spell(tree), WORDS, {"mine": "user:me"}) == tree


def test_an_empty_query_is_spelled_as_nothing() -> None:
    assert parse_tree(" ", WORDS) == Everything() and spell(Everything()) == ""


@settings(max_examples=examples(300), deadline=None)
@given(TREES, ROWS)
def test_a_tree_selects_what_a_plain_reading_of_it_selects(tree: Tree, row: dict[str, Any]) -> None:
    assert compile_tree(tree, WORDS)(row, 0.0) == plainly(tree, row)


def plainly(tree: Tree, row: dict[str, Any]) -> bool:
    """The meaning of each kind of term, written down a second time."""
    import re

    match tree:
        case Not(term) | Named(_, term):
            return plainly(term, row) != isinstance(tree, Not)
        case All(terms):
            return not any(not plainly(term, row) for term in terms)
        case Some(terms):
            return bool([term for term in terms if plainly(term, row)])
        case Word(text):
            return any(text.lower() in one.lower() and (one or text) for one in row["node"] + row["user"])
        case Text("user", "me", False):
            return getpass.getuser().lower() in [one.lower() for one in row["user"]]
        case Text(key, text, whole):
            return any(one.lower() == text.lower() if whole else one and text.lower() in one.lower() for one in row[key])
        case Pattern(key, regex):
            return any(re.search(regex, one, re.IGNORECASE) for one in (row[key] if key else row["node"] + row["user"]))
        case Range(key, low, high):
            value = row[key]
            return value is not None and (low is None or value >= low) and (high is None or value <= high)
        case Compare(key, sign, limit):
            names = {"<": "lt", ">": "gt", "<=": "le", ">=": "ge", "=": "eq", "!=": "ne"}
            return row[key] is not None and getattr(operator, names[sign])(row[key], limit)
    return True


@settings(max_examples=examples(300), deadline=None)
@given(st.text("ab:<>()!@/\"' or\\.1%$=", max_size=20))
def test_any_text_is_a_query_or_one_error_with_a_spot(text: str) -> None:
    try:
        tree = parse_tree(text, WORDS, {"a": "user:me"})
    except QueryError as error:
        assert 0 <= error.start < error.end and str(error).endswith((".", "?"))
    else:
        assert parse_tree(spell(tree), WORDS, {"a": "user:me"}) == tree

"""What is offered while a query is typed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.fleets import NOW, small_fleet
from tui.query import NODE_WORDS, parse
from tui.query_complete import Options, extended, options


def offered(text: str, **named: str) -> Options:
    fleet = small_fleet()
    return options(text, NODE_WORDS, lambda: fleet, NOW, named)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("st", ("state:",)),
        ("!st", ("state:",)),
        ("a (st", ("state:",)),
        ("ut", ("util<",)),
        ("user:b", ("bob",)),
        ("user:=b", ("bob",)),
        ("user:ob", ("bob",)),
        ("user:bob", ()),
        ("project:", ("vision",)),
        ("zone:use", ("use1-az1", "use1-az4")),
        ("buy:s", ("spot", "savings_plan_1y", "savings_plan_3y")),
        ("@m", ("@mine", "@more")),
        ("util<1", ()),
        ("util:1", ()),
        ("nokey:1", ()),
        ("node:/a100 st", ()),
        ("node:/a100/ st", ("state:",)),
        ("/a b", ()),
        ('"red st', ()),
        ("gpu:nv", ("NVIDIA A100-SXM4-40GB",)),
    ],
)
def test_keys_values_of_the_rows_and_kept_filters_are_offered(text: str, shown: tuple[str, ...]) -> None:
    found = offered(text, mine="user:me", more="x", other="y")
    assert found.shown[: len(shown)] == shown and (bool(found.shown) == bool(shown))


def test_what_most_rows_have_comes_first_and_known_words_follow() -> None:
    found = offered("state:")
    assert found.shown[:3] == ("busy", "live", "lost") and "connecting" in found.shown and len(set(found.shown)) == len(found.shown)


def test_a_value_with_blanks_is_put_in_quotes() -> None:
    assert offered("!gpu:nv").terms == ('gpu:"NVIDIA A100-SXM4-40GB"',) and offered("!gpu:nv").start == 1


def test_what_is_missing_is_shown_behind_the_cursor() -> None:
    assert extended("x us", offered("x us")) == "x user:"
    assert extended("user:B", offered("user:B")) == "user:Bob"
    assert extended("gpu:nv", offered("gpu:nv")) is None, "quotes come before what was typed"
    assert extended("zzz", offered("zzz")) is None


@settings(max_examples=examples(200), deadline=None)
@given(st.text("abdelnosturv:=@!/\"' (", max_size=10))
def test_every_option_is_a_term_once_it_is_put_in(text: str) -> None:
    found = offered(text, mine="user:me")
    for term in found.terms:
        parse(term if not term.endswith("<") else f"{term}1", named={"mine": "user:me"})
        assert 0 <= found.start <= len(text)


@pytest.mark.parametrize(
    ("line", "words", "reply"),
    [
        ("rackrate nodes sta", "nodes sta", "state: state:live"),
        ("rackrate nodes state:i", "nodes state : i", "idle"),
        ("rackrate jobs cause:oo", "jobs cause : oo", "oom"),
        ("rackrate prices 'H100 buy:sp", "prices \"'H100 buy:sp\"", "H100 buy:spot"),
        ("rackrate gpus @m", "gpus @m", "@mine"),
        ("rackrate nodes --s", "nodes --s", "--sum"),
    ],
)
def test_bash_completes_queries_without_asking_a_node(tmp_path: Path, line: str, words: str, reply: str) -> None:
    import shtab

    from tui.cli import build_parser
    from tui.query_shell import prepare

    parser = build_parser()
    script = tmp_path / "completion.bash"
    script.write_text(shtab.complete(parser, "bash", preamble=prepare(parser, {"mine": "user:me"})))
    before = line.replace("'", "'\\''")
    test = f"source {script}; COMP_LINE='{before}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=(rackrate {words}); "
    test += 'COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _shtab_rackrate 2>/dev/null; echo "${COMPREPLY[*]}"'
    done = subprocess.run(["bash", "-c", test], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(reply), (done.stdout, done.stderr)


def test_every_command_with_a_query_is_completed_in_zsh_too() -> None:
    import shtab

    from tui.cli import build_parser
    from tui.query_shell import kinds, prepare

    parser = build_parser()
    script = shtab.complete(parser, "zsh", preamble=prepare(parser, {}))
    for command in kinds():
        assert script.count(f"_rackrate_query_{command}") == 2, "its function and where it is used"

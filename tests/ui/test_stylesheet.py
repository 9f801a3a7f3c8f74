"""What is parsed once has the rules that Textual makes of it, with the variables of its theme."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet, StylesheetParseError

from tests.support.screens import make_app, running
from tui.ui.stylesheet import KeptStylesheet
from tui.ui.theme import DARK, LIGHT


def told_of(rules: list[RuleSet]) -> list[tuple[object, ...]]:
    return [
        (str(rule.selector_set), {name: str(value) for name, value in rule.styles.get_rules().items()}, rule.is_default_rules, rule.tie_breaker)
        for rule in rules
    ]  # fmt: skip


def rules_of(sheet: Stylesheet) -> list[tuple[object, ...]]:
    return told_of(sheet.rules)


async def test_the_rules_are_those_of_textual_in_each_theme_and_another_app_takes_them_over() -> None:
    told = []
    for theme in (DARK, LIGHT, DARK):
        app, _ = make_app(theme=theme)
        async with running(app):
            assert isinstance(app.stylesheet, KeptStylesheet)
            plain = Stylesheet(variables=app.get_css_variables())
            plain.source = dict(app.stylesheet.source)
            plain.parse()
            told.append(rules_of(app.stylesheet))
            assert told[-1] == rules_of(plain) and len(told[-1]) > 20
            app.stylesheet.reparse()
            assert rules_of(app.stylesheet) == told[-1]
            assert app.current_theme is app.get_theme(theme)
            kept = {id(rule) for rule in app.stylesheet.rules}
    other, _ = make_app(theme=DARK)
    async with running(other):
        assert {id(rule) for rule in other.stylesheet.rules} == kept
    assert told[0] == told[2] != told[1]


def test_variables_that_change_are_those_of_the_rules() -> None:
    sheet = KeptStylesheet(variables={"ink": "#102030"})
    sheet.add_source("Label { color: $ink; }", read_from=("a", "b"))
    assert sheet.rules[0].styles.color == Color(0x10, 0x20, 0x30)
    sheet.set_variables({"ink": "#405060"})
    sheet.reparse()
    assert sheet.rules[0].styles.color == Color(0x40, 0x50, 0x60)


def test_a_piece_with_an_error_leaves_the_rules_as_they_were() -> None:
    sheet = KeptStylesheet()
    sheet.add_source("Label { color: red; }", read_from=("a", "b"))
    before = rules_of(sheet)
    sheet.add_source("Label { color: nothing-like-it; }", read_from=("a", "c"))
    with pytest.raises(StylesheetParseError):
        sheet.reparse()
    assert told_of(sheet._rules) == before

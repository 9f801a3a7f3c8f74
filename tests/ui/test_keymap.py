"""Other keys by configuration, and no keys at all for what changes something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import rackrate_here, write_config
from tests.support.jobs import job_fleet
from tests.support.screens import make_app, press, running, text
from tui.cli import main
from tui.errors import ConfigurationError
from tui.ui import actions
from tui.ui.keymap import key_of, markdown, remapped, shown_key

README = Path(__file__).parents[2] / "README.md"


def test_the_table_in_the_readme_is_the_registry() -> None:
    table = "\n".join(markdown(actions.ACTIONS, actions.SCREENS))
    assert table in README.read_text(encoding="utf-8"), "put the output of `rackrate keys --markdown` into README.md"


@pytest.mark.parametrize("action", actions.ACTIONS, ids=lambda action: action.id)
def test_every_key_is_shown_as_it_is_written(action: actions.Action) -> None:
    for key in action.keys:
        assert key_of(shown_key(key)) == key


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("Q", "Q"), ("q", "q"), ("/", "slash"), ("?", "question_mark"), ("F5", "f5"), ("Ctrl+T", "ctrl+t"), ("esc", "escape"),
        ("Shift+F6", "shift+f6"), ("Del", "delete"), (" ", "space"), ("Ctrl+Shift+F2", "ctrl+shift+f2"), ("Ctrl+→", "ctrl+right"),
        ("", None), ("qq", None), ("F99", None), ("Hyper+x", None), ("\n", None), ("\x1b", None), ("Ctrl+", None),
    ],
)  # fmt: skip
def test_a_key_is_written_as_people_write_it(written: str, key: str | None) -> None:
    assert key_of(written) == key


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"quit": "j"}, "`j` would be both `quit` (Quit) and `jobs` (Jobs of the fleet, or of this node) on the screen `fleet`"),
        ({"quit": "Q", "theme": "Q"}, "`Q` would be both `theme` (Next theme) and `quit` (Quit)"),
        ({"quti": "Q"}, "there is no action `quti`; did you mean `quit`?"),
        ({"quit": "qq"}, "quit: `qq` is no key; write one like Q"),
        ({"quit": "down"}, "`down` is no key"),
        ({"quit": "ctrl+c"}, "`ctrl+c` quits from anywhere on every screen"),
        ({"interrupt": "F5"}, "`interrupt` stays as it is: it is the way out"),
        ({"sort_column": "F5"}, "`sort_column` stays as it is"),
        ({"move": "h"}, "`move` stays as it is"),
        ({"send": "s"}, "`s` is typed into the form"),
        ({"palette": []}, "nothing would open the palette"),
        ({"palette_typing": []}, "palette_typing: it needs a key"),
    ],
)
def test_keys_that_cannot_be_are_refused_with_a_sentence(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        remapped(actions.ACTIONS, keys, "config.toml")
    assert sentence in str(error.value) and str(error.value).startswith("config.toml: keys: ") and error.value.exit_code == 2


def test_two_actions_may_change_their_keys_for_each_other() -> None:
    changed = {action.id: action for action in remapped(actions.ACTIONS, {"jobs": "a", "alerts": ["j", "F4"]}, "x")}
    assert changed["jobs"].keys == ("a",) and changed["alerts"].keys == ("j", "f4") and changed["alerts"].shown == "j"


async def test_other_keys_work_and_are_shown_in_footer_help_and_hints() -> None:
    registry = remapped(actions.ACTIONS, {"quit": "Q", "jobs": ["F5", "J"], "help": "%", "filter": "f"}, "x")
    app, _ = make_app(registry=registry)
    async with running(app, (120, 30)) as pilot:
        assert "Q quit" in text(app) and "F5 jobs" in text(app) and "f filter" in text(app)
        await press(pilot, "q")
        assert app.is_running and "q does nothing here; % shows the keys." in text(app)
        await press(pilot, "escape")
        assert "Q quits" in text(app)
        await press(pilot, "J")
        assert type(app.screen).__name__ == "JobsScreen"
        await press(pilot, "escape", "f", *"bob", "escape", "percent_sign")
        assert type(app.screen).__name__ == "HelpScreen" and "F5" in text(app)
        await press(pilot, "Q")
    assert app.return_code == 0
    make_app()


@pytest.mark.parametrize("action", [one for one in actions.ACTIONS if one.palette and one.id != "palette"], ids=lambda one: one.id)
def test_every_action_of_the_palette_has_a_method_on_each_of_its_screens(action: actions.Action) -> None:
    from tests.support.screens import make_app as make

    app, _ = make()
    screens = _screen_classes()
    for scope in action.scopes:
        name = f"action_{action.call.partition('(')[0].removeprefix('app.')}"
        assert hasattr(app if action.call.startswith("app.") else screens[scope], name), (scope, action.call)


def _screen_classes() -> dict[str, type]:
    import importlib
    import pkgutil

    import tui.ui.screens
    from tui.ui.screens.base import RackrateScreen

    for module in pkgutil.iter_modules(tui.ui.screens.__path__):
        importlib.import_module(f"tui.ui.screens.{module.name}")
    found: dict[str, type] = {}
    waiting = list(RackrateScreen.__subclasses__())
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        if "SCOPE" in vars(each):
            found[each.SCOPE] = each
    assert set(found) == set(actions.SCREENS)
    return found


# -- read-only -----------------------------------------------------------------------------------------------------------


async def test_read_only_takes_away_keys_hints_help_and_palette_of_what_changes_something() -> None:
    app, _ = make_app(job_fleet(), read_only=True)
    async with running(app, (160, 40)) as pilot:
        assert "read-only" in text(app).split("\n")[-1]
        changing = [action for action in actions.ACTIONS if action.changes]
        await press(pilot, "j")
        assert "stop" not in text(app).split("\n")[-1] and "new" not in text(app).split("\n")[-1]
        for action in (one for one in changing if "jobs" in one.scopes):
            for key in action.keys:
                await press(pilot, key)
                assert len(app.screen_stack) == 2, (action.id, key)
        await press(pilot, "x")
        assert "x is off: this is read-only." in text(app)
        await press(pilot, "f2", *"stop")
        assert "nothing of that name" in text(app)
        await press(pilot, "escape", "question_mark")
        assert all(action.title not in text(app) for action in changing)
    make_app()


async def test_read_only_refuses_in_the_registry_however_an_action_is_called() -> None:
    app, _ = make_app(job_fleet(), read_only=True)
    async with running(app) as pilot:
        await press(pilot, "j")
        for call in dict.fromkeys(action.call for action in actions.ACTIONS if action.changes):
            await app.run_action(call, app.screen)
            await pilot.pause()
            assert len(app.screen_stack) == 2, call
    make_app()
    assert not actions.read_only() and actions.in_force() == actions.ACTIONS


def test_commands_that_change_a_node_are_refused_by_option_and_by_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary  # noqa: ANN001
) -> None:
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    done = rackrate_here(capfdbinary, "--read-only", "job", "cancel", "4711")
    assert done.code == 2 and "this would change something on a node, and --read-only was given." in done.err
    write_config(tmp_path, "read_only = true\n")
    for words in (("run", "--", "true"), ("job", "cancel", "1"), ("job", "signal", "USR1", "1")):
        done = rackrate_here(capfdbinary, *words)
        assert done.code == 2 and "read_only is set in" in done.err
    done = rackrate_here(capfdbinary, "keys", "--json")
    assert not any(one["changes"] for one in done.json()) and any(one["id"] == "quit" for one in done.json())


def test_keys_prints_what_the_configuration_changed_and_refuses_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary  # noqa: ANN001
) -> None:
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    write_config(tmp_path, '[keys]\nquit = "Q"\nfilter = ["f", "F3"]\n')
    done = rackrate_here(capfdbinary, "keys", "--json")
    found = {one["id"]: one["keys"] for one in done.json()}
    assert done.code == 0 and found["quit"] == ["Q"] and found["filter"] == ["f", "F3"] and len(found) == len(actions.ACTIONS)
    assert "| `Q` | Quit |" in rackrate_here(capfdbinary, "keys", "--markdown").out
    write_config(tmp_path, '[keys]\nquit = "j"\n')
    done = rackrate_here(capfdbinary, "keys")
    assert done.code == 2 and done.out == "" and "`quit` (Quit) and `jobs`" in done.err
    write_config(tmp_path, "[keys]\nquit = 5\n")
    assert rackrate_here(capfdbinary, "keys").code == 2


def test_an_action_that_is_the_same_on_other_screens_goes_with_its_keys() -> None:
    found = {one.id: one.keys for one in remapped(actions.ACTIONS, {"costs": "$"}, "config.toml")}
    assert found["costs"] == found["costs_from_jobs"] == ("dollar_sign",)
    found = {one.id: one.keys for one in remapped(actions.ACTIONS, {"costs": "$", "costs_from_jobs": "C"}, "config.toml")}
    assert found["costs"] == ("dollar_sign",) and found["costs_from_jobs"] == ("C",)
    known = {one.id: one for one in actions.ACTIONS}
    assert all(one.call.removeprefix("app.") == known[one.like].call.removeprefix("app.") for one in known.values() if one.like)


def test_the_demo_goes_by_the_keys_and_the_theme_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    write_config(tmp_path, 'theme = "rackrate-light"\n\n[keys]\nquit = "Q"\n')
    given: list[dict[str, Any]] = []
    monkeypatch.setattr("tui.terminal.has_terminal", lambda: True)
    monkeypatch.setattr("tui.demo.run_demo", lambda *, seed, handling: given.append(handling) or 0)
    assert main(["demo", "--read-only"]) == 0
    keys = {one.id: one.keys for one in given[0]["registry"]}
    assert keys["quit"] == ("Q",) and given[0]["theme"] == "rackrate-light" and given[0]["read_only"]
    write_config(tmp_path, 'theme = "pink"\n')
    assert main(["demo"]) == 2 and len(given) == 1
    assert "config.toml: theme: there is none called `pink`; themes: rackrate-dark, rackrate-light, ansi" in capsys.readouterr().err

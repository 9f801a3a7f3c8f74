"""The recipes as a job takes them: which there are, their settings, the command that runs one, and the files it needs.

Invariant: `agent.recipes` is never imported (it needs torch): what can be said of a recipe stands in its NAME.toml, and the
program is sent as files, so a node needs a Python with torch and nothing of Rackrate.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import agent
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json

PACKAGE = Path(agent.__file__).parent
FOLDER = PACKAGE / "recipes"
MODULE = "agent.recipes."
PYTHON = "python3"
TORCHRUN = ("-m", f"{MODULE}torchrun")
PRICE_FROM = "the price of its job when it was sent"
INSTEAD = {("compress", "checkpoint_dir"): "out"}
"""What other recipes call otherwise."""
_SETTING = re.compile(r"(\w+) = ")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class Taken(NamedTuple):
    """Which values a setting takes beside those of its type."""

    choices: tuple[str, ...] = ()
    least: float | None = None


def names() -> list[str]:
    """Of the recipes that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def title(name: str) -> str:
    """One line on what it is."""
    return _text(name).partition("\n")[0].lstrip("# ")


def defaults(name: str) -> dict[str, Any]:
    """Its settings. Raises `WrongUsage` for a recipe that there is not."""
    return tomllib.loads(_text(name))


def taken(name: str) -> dict[str, Taken]:
    """Setting -> which values it takes, as its file says above it (agent/recipes/settings.py). Raises `WrongUsage`."""
    found, above = {}, Taken()
    for line in _text(name).splitlines():
        if line.startswith("# one of "):
            above = above._replace(choices=tuple(line.removeprefix("# one of ").split(", ")))
        elif line.startswith("# at least "):
            above = above._replace(least=float(line.removeprefix("# at least ")))
        elif setting := _SETTING.match(line):
            found[setting[1]], above = above, Taken()
    return found


def pairs(value: object, where: str) -> dict[str, object]:
    """Of `K=V` texts, or of a table of a file. Raises `WrongUsage`."""
    if isinstance(value, Mapping):
        return dict(value)
    found: dict[str, object] = {}
    for text in value if isinstance(value, list) else [value]:
        key, sign, word = str(text).partition("=")
        if not isinstance(text, str) or not sign or not key.strip():
            raise WrongUsage(f"{where} {text}: it is written KEY=VALUE, as in --set steps=5000.")
        found[key.strip()] = word
    return found


def command(name: str, settings: Mapping[str, object], where: str, *, ranks: int = 1, nodes: int = 1) -> list[str]:
    """argv on the node, with torchrun in front for more than one rank: over nodes their agents tell it where they meet.

    Raises `WrongUsage`.
    """
    known, takes = defaults(name), taken(name)
    flags = []
    for key, value in settings.items():
        plain = key.replace("-", "_")
        if plain not in known:
            other = INSTEAD.get((name, plain))
            near = [other] if other else difflib.get_close_matches(plain, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"`rackrate run --recipe {name} --set list` shows them."
            raise WrongUsage(f"{where} {key}: the recipe {name} has no such setting; {hint}")
        text = _checked(known[plain], value, f"{where} {key}", takes[plain])
        flags.append(f"--{plain.replace('_', '-')}={text}")
    alone = ("--standalone", "--nproc-per-node", str(ranks)) if ranks > 1 and nodes == 1 else ()
    torchrun = (*TORCHRUN, *alone) if alone or nodes > 1 else ()
    return [PYTHON, *torchrun, "-m", f"{MODULE}{name}", *flags]


def refusal(name: str, given: Mapping[str, object]) -> str | None:
    """Why the recipe would refuse these settings together, which are right one by one; None: not for what is known here."""
    given = {key.replace("-", "_"): value for key, value in given.items()}
    if name == "compress" and not given.get("checkpoint"):
        return "checkpoint: which folder of checkpoints is to be compressed? The first line of a training names its own."
    if name == "calibrate" and (text := str(given.get("recipes", "none"))) != "none":
        known = str(defaults(name)["recipes"]).split(",")
        for one in filter(None, map(str.strip, text.split(","))):
            if one not in known:
                return f"recipes {one}: there is no such recipe to measure; {', '.join(known)}, or none."
    return None


def settings(name: str, given: Mapping[str, object], where: str) -> dict[str, Any]:
    """All settings of a recipe, `given` over its own, each of the type that it has. Raises `WrongUsage`."""
    command(name, given, where)
    known = defaults(name)
    changed = {key.replace("-", "_"): value for key, value in given.items()}
    return {**known, **{key: _typed(known[key], value) for key, value in changed.items()}}


def _typed(default: object, value: object) -> object:
    if isinstance(default, bool):
        return value if isinstance(value, bool) else value == "true"
    return type(default)(value)  # type: ignore[call-arg]


def of_command(words: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    """(recipe, its settings) of a command that `command` made; None: it is another one."""
    for place, word in enumerate(words[:-1]):
        name = words[place + 1].removeprefix(MODULE)
        if word == "-m" and words[place + 1].startswith(MODULE) and name in names():
            flags = [one[2:].partition("=") for one in words[place + 2 :] if one.startswith("--")]
            try:
                return name, settings(name, {key.replace("-", "_"): value for key, _, value in flags}, "--set")
            except WrongUsage:
                return None
    return None


def with_price(words: Sequence[str], usd_per_hour: Decimal | None) -> tuple[str, ...]:
    """The command of a recipe that tells what inference would cost, with what it runs on by the hour and whose price that is.

    As it is where somebody told a price, or none is known.
    """
    found = of_command(words) if usd_per_hour else None
    if found is None or found[1].get("usd_per_hour") != "":
        return tuple(words)
    assert usd_per_hour is not None
    return (*words, f"--price-from={PRICE_FROM}", f"--usd-per-hour={usd_per_hour.normalize():f}")


def _checked(default: object, value: object, where: str, takes: Taken) -> str:
    """As a text that the recipe reads as the same value. What it would refuse is refused here, in the same words."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        if isinstance(default, bool):
            right = text in ("true", "false")
        else:
            right = type(default)(text) is not None and text.isprintable()  # type: ignore[call-arg]
    except ValueError:
        right = False
    if not right or isinstance(value, (list, dict)):
        raise WrongUsage(f"{where}: {text!r} has to be {_KINDS[type(default)]}.")
    if takes.choices and text not in takes.choices:
        raise WrongUsage(f"{where}: {text!r} is none of {', '.join(takes.choices)}.")
    if isinstance(default, float) and not math.isfinite(float(text)):
        raise WrongUsage(f"{where}: {text} is no finite number.")
    if takes.least is not None and float(text) < takes.least:
        raise WrongUsage(f"{where}: {text} is too small; it is at least {takes.least:g}.")
    return text


@contextlib.contextmanager
def program() -> Iterator[Path]:
    """A folder from which `python -m agent.recipes.NAME` runs, and nothing else of ours."""
    with tempfile.TemporaryDirectory(prefix="rackrate-recipe-") as folder:
        package = Path(folder) / "agent"
        package.mkdir()
        shutil.copyfile(PACKAGE / "__init__.py", package / "__init__.py")
        no_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(FOLDER, package / "recipes", ignore=no_caches, copy_function=shutil.copyfile)
        yield Path(folder)


def show(name: str | None, *, as_json: bool) -> int:
    """`--recipe list` and `--recipe NAME --set list`."""
    if name is None:
        raise WrongUsage("--set goes with --recipe; `--recipe list` names the recipes.")
    if name == "list":
        if as_json:
            print_json([{"recipe": one, "title": title(one), "settings": defaults(one)} for one in names()])
        else:
            print("\n".join(f"{one:<12}{title(one)}" for one in names()))
    elif as_json:
        print_json(defaults(name))
    else:
        print(_text(name), end="")
    return ExitCode.DONE


def _text(name: str) -> str:
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names())}."
        raise WrongUsage(f"--recipe {name}: there is no such recipe; {hint}")
    return (FOLDER / f"{name}.toml").read_text("utf-8")

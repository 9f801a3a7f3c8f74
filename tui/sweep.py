"""A sweep as a person writes it (SWEEP.toml), checked and turned into the plan that its driver reads.

Invariant: what cannot be meant is one sentence that names the file and the key, before any node is asked.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from tui import amounts, recipes
from tui.errors import WrongUsage
from tui.job_options import BY_KEY

LARGEST_FILE = 1 << 20
MOST_TRIALS = 10_000
FILE = "sweep.json"
SEARCHES = ("random", "optuna", "hyperopt", "grid")
SCHEDULERS = ("asha", "none")
NUMBERS = ("uniform", "loguniform", "randint")
LISTS = ("choice", "grid")
TABLES = ("sweep", "settings", "space", "job")
NOT_OF_SWEEPS = ("recipe", "set", "array", "shell", "chdir", "gpu_share", "gpu_memory", "processes_per_node", "on_node_loss", "budget")
"""Options of `rackrate run` that a sweep decides itself."""
JOB_KEYS = tuple(key for key in BY_KEY if key not in NOT_OF_SWEEPS)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}", re.ASCII)


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep."""

    name: str
    recipe: str | None
    command: tuple[str, ...]
    """Of a trial, with `{key}` where a value of the space goes."""
    train: tuple[str, ...]
    """The command line that trains the best one, alike."""
    metric: str
    mode: str
    trials: int
    at_once: int
    gpus: Decimal
    cpus: Decimal
    """Of each trial."""
    search: str
    scheduler: str
    grace: int
    reduction: float
    max_steps: int | None
    budget: Decimal | None
    seed: int
    space: dict[str, dict[str, list[Any]]]
    job: dict[str, Any]
    """Options of `rackrate run`."""
    checkpoint_dir: str | None

    def plan(self, nodes: int, reserve_seconds: float = 0.0) -> str:
        """What the driver reads (agent/recipes/sweep_plan.py)."""
        return json.dumps({
            "name": self.name, "metric": self.metric, "mode": self.mode, "trials": self.trials, "at_once": self.at_once,
            "cpus": float(self.cpus), "gpus": _plain(self.gpus), "nodes": nodes, "search": self.search,
            "scheduler": self.scheduler, "grace": self.grace, "reduction": self.reduction, "max_steps": self.max_steps,
            "budget": None if self.budget is None else str(self.budget), "reserve_seconds": reserve_seconds, "seed": self.seed,
            "space": self.space,
            "command": self.command, "train": self.train,
        })  # fmt: skip

    def gpus_a_node(self, nodes: int) -> int:
        """That all trials at a time need, spread over the nodes."""
        here = math.ceil(Decimal(self.at_once) / nodes)
        return here * int(self.gpus) if self.gpus >= 1 else math.ceil(here / int(1 / self.gpus))


def _plain(number: Decimal) -> int | float:
    return int(number) if number == int(number) else float(number)


def read(path: Path) -> Sweep:
    """Raises `WrongUsage`."""
    return _Reader(path).sweep()


class _Reader:
    """One file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables = _toml(path)
        for name, table in self._tables.items():
            if name not in TABLES:
                raise self._wrong(name, f"there is no such table;{_near(name, TABLES)}")
            if not isinstance(table, dict):
                raise self._wrong(name, "has to be a table.")
        self._of = self._tables.get("sweep", {})
        known = ("name", "recipe", "command", "metric", "mode", "trials", "trials_at_a_time", "gpus_per_trial", "cpus_per_trial",
                 "search", "scheduler", "grace", "reduction", "max_steps", "budget", "seed", "checkpoint_dir")  # fmt: skip
        for key in self._of:
            if key not in known:
                raise self._wrong(key, f"there is no such key in [sweep];{_near(key, known)}")

    def sweep(self) -> Sweep:
        if "sweep" not in self._tables:
            raise WrongUsage(f"{self._path} has no table [sweep]; `rackrate sweep --example` prints a whole file.")
        metric = self._text("metric", "the number of a trial's lines that is to become best, such as loss")
        recipe, space = self._optional("recipe"), self._space()
        search = self._choice("search", SEARCHES, "random")
        self._search_fits(space, search)
        gpus = self._amount("gpus_per_trial", "0", least=0)
        if gpus > 1 and gpus != int(gpus):
            raise self._wrong("gpus_per_trial", f"{gpus} is neither a part of one GPU nor whole ones.")
        fixed = self._tables.get("settings", {})
        command, train, steps = self._recipe(recipe, space, fixed, int(gpus)) if recipe else self._command(space, fixed)
        max_steps = self._whole("max_steps", 1) if "max_steps" in self._of else steps
        scheduler = self._choice("scheduler", SCHEDULERS, "asha" if max_steps else "none")
        if scheduler == "asha" and max_steps is None:
            raise self._wrong("max_steps", "scheduler asha needs to know how many steps a trial has at most.")
        return Sweep(
            name=self._optional("name") or recipe or self._path.stem, recipe=recipe, command=tuple(command), train=tuple(train),
            metric=metric, mode=self._choice("mode", ("min", "max"), None), trials=self._trials(space, search),
            at_once=self._whole("trials_at_a_time", 1, 1), gpus=gpus, cpus=self._amount("cpus_per_trial", "1", least=None),
            search=search, scheduler=scheduler, grace=self._grace(max_steps), reduction=self._reduction(), max_steps=max_steps,
            budget=self._budget(), seed=self._whole("seed", 0, 0), space=space, job=self._job(),
            checkpoint_dir=self._optional("checkpoint_dir"),
        )  # fmt: skip

    # What a trial runs

    def _recipe(
        self, name: str, space: Mapping[str, Any], fixed: Mapping[str, Any], ranks: int
    ) -> tuple[list[str], list[str], int | None]:
        if "command" in self._of:
            raise self._wrong("command", "does not go with recipe, which brings its own program.")
        where = f"{self._path}: [settings]"
        try:
            known = recipes.defaults(name)
        except WrongUsage as error:
            raise self._wrong("recipe", str(error).removeprefix("--recipe ")) from None
        for key, one in space.items():
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                raise self._wrong(f"[space] {key}", f"the recipe {name} has no such setting{f'; did you mean {near[0]}?' if near else '.'}")
            if key in fixed:
                raise self._wrong(f"[settings] {key}", "is in [space] too; leave it out of one of them.")
            if next(iter(one)) in ("uniform", "loguniform") and not isinstance(known[key], float):
                raise self._wrong(f"[space] {key}", "the recipe wants a whole number, or no number, there; use randint or choice.")
            for value in next(iter(one.values())):
                recipes.command(name, {key: value}, f"{self._path}: [space]")
        flags = [f"--{key.replace('_', '-')}={{{key}}}" for key in space]
        program = recipes.command(name, fixed, where, ranks=max(1, ranks))
        words = ["{python}", *program[1:], *flags]
        sets = [word for key, value in fixed.items() for word in ("--set", f"{key}={_word(value)}")]
        gpus = ["--gpus", str(max(1, ranks))] if self._amount("gpus_per_trial", "0", least=0) else []
        train = ["rackrate", "run", "--recipe", name, *gpus, *sets, *(w for key in space for w in ("--set", f"{key}={{{key}}}"))]
        steps = fixed.get("steps", known.get("steps"))
        return words, train, None if "steps" in space or type(steps) is not int else steps

    def _command(self, space: Mapping[str, Any], fixed: Mapping[str, Any]) -> tuple[list[str], list[str], int | None]:
        words = self._of.get("command")
        if words is None:
            raise self._wrong("recipe", "is missing; name a recipe, or a command as a list of texts.")
        if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
            raise self._wrong("command", "has to be a list of texts, of which the first is a program.")
        if fixed:
            raise self._wrong("[settings]", "goes with a recipe; write fixed values into the command.")
        named = {name for word in words for name in _PLACE.findall(word)} - {"python"}
        if unknown := sorted(named - set(space)):
            raise self._wrong("command", f"{{{unknown[0]}}} is not in [space].")
        if unused := [key for key in space if key not in named]:
            raise self._wrong(f"[space] {unused[0]}", f"the command has no {{{unused[0]}}}, so it would change nothing.")
        return list(words), [], None

    # What is searched

    def _space(self) -> dict[str, dict[str, list[Any]]]:
        table = self._tables.get("space", {})
        if not table:
            raise self._wrong("[space]", "is empty: there is nothing to search.")
        return {key: self._axis(key, value) for key, value in table.items()}

    def _axis(self, key: str, value: Any) -> dict[str, list[Any]]:
        where, kinds = f"[space] {key}", (*NUMBERS, *LISTS)
        if not _KEY.fullmatch(key) or key == "python":
            raise self._wrong(where, "is no name of a setting.")
        if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in kinds:
            raise self._wrong(where, f"is written {key} = {{ uniform = [0.1, 0.9] }}; there are {', '.join(kinds)}.")
        (kind, values), = value.items()
        if not isinstance(values, list) or not values:
            raise self._wrong(where, f"{kind} has to be a list of values.")
        if kind in LISTS:
            if not all(isinstance(one, (str, int, float)) for one in values):
                raise self._wrong(where, f"{kind} has to be a list of numbers, texts, or true and false.")
            return {kind: values}
        numbers = [one for one in values if type(one) is int or kind != "randint" and isinstance(one, float) and math.isfinite(one)]
        if len(values) != 2 or len(numbers) != 2 or not values[0] < values[1]:
            raise self._wrong(where, f"{kind} has to be two {'whole ' * (kind == 'randint')}numbers, the smaller one first.")
        if kind == "loguniform" and values[0] <= 0:
            raise self._wrong(where, "loguniform has to begin above 0.")
        return {kind: values if kind == "randint" else [float(one) for one in values]}

    def _search_fits(self, space: Mapping[str, Any], search: str) -> None:
        for key, one in space.items():
            kind = next(iter(one))
            if search == "grid" and kind not in LISTS:
                raise self._wrong(f"[space] {key}", f'{kind} has no end of values; search = "grid" takes grid = [...].')
            if search != "grid" and kind == "grid":
                raise self._wrong(f"[space] {key}", f'grid goes with search = "grid"; for {search} write choice = [...].')

    def _trials(self, space: Mapping[str, Any], search: str) -> int:
        if search != "grid":
            return self._whole("trials", 1)
        every = math.prod(len(next(iter(one.values()))) for one in space.values())
        if every > MOST_TRIALS:
            raise self._wrong("[space]", f"the grid has {every:,} combinations; at most {MOST_TRIALS:,} are possible.")
        return min(every, self._whole("trials", 1, every))

    def _grace(self, max_steps: int | None) -> int:
        grace = self._whole("grace", 1, max(1, (max_steps or 1) // 10))
        if max_steps is not None and grace > max_steps:
            raise self._wrong("grace", f"{grace} is more than the {max_steps} steps of a trial.")
        return grace

    def _reduction(self) -> float:
        value = self._of.get("reduction", 3)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 < value <= 100:
            raise self._wrong("reduction", "has to be a number above 1, such as 3: of three trials one goes on.")
        return float(value)

    def _job(self) -> dict[str, Any]:
        job = self._tables.get("job", {})
        for key in job:
            if key == "budget":
                raise self._wrong("[job] budget", "stands in [sweep]: it is of the whole sweep.")
            if key not in JOB_KEYS:
                raise self._wrong(f"[job] {key}", f"a sweep has no such option;{_near(key, JOB_KEYS)}")
        return dict(job)

    # Values

    def _budget(self) -> Decimal | None:
        if "budget" not in self._of:
            return None
        return self._parsed("budget", amounts.dollars)

    def _amount(self, key: str, default: str, *, least: int | None) -> Decimal:
        value = self._of.get(key, default)
        if least == 0 and str(value) in ("0", "0.0"):
            return Decimal(0)
        return self._parsed(key, amounts.number) if key in self._of else Decimal(default)

    def _parsed(self, key: str, parse: Callable[[str], Any]) -> Any:
        value = self._of[key]
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self._wrong(key, "has to be a text or a number.")
        try:
            return parse(str(value))
        except ValueError as error:
            raise self._wrong(key, f"{str(value)!r} {error}.") from None

    def _whole(self, key: str, least: int, default: int | None = None) -> int:
        value = self._of.get(key, default)
        if value is None:
            raise self._wrong(key, "is missing.")
        if type(value) is not int or not least <= value <= 10**9 or key == "trials" and value > MOST_TRIALS:
            most = f" and at most {MOST_TRIALS}" if key == "trials" else ""
            raise self._wrong(key, f"has to be a whole number, at least {least}{most}.")
        return value

    def _text(self, key: str, what: str) -> str:
        if key not in self._of:
            raise self._wrong(key, f"is missing: {what}.")
        value = self._of[key]
        if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 1000:
            raise self._wrong(key, "has to be a text.")
        return value

    def _optional(self, key: str) -> str | None:
        return self._text(key, "") if key in self._of else None

    def _choice(self, key: str, choices: Sequence[str], default: str | None) -> str:
        value = self._of.get(key, default)
        if value is None:
            raise self._wrong(key, f"is missing: {' or '.join(choices)}.")
        if value not in choices:
            raise self._wrong(key, f"{value!r} is none of {', '.join(choices)}.")
        return str(value)

    def _wrong(self, key: str, why: str) -> WrongUsage:
        return WrongUsage(f"{self._path}: {key if key.startswith('[') else f'`{key}`'}: {why}")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f" did you mean {near[0]}?" if near else f" there are {', '.join(known)}."


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes()[: LARGEST_FILE + 1].decode("utf-8"))
    except OSError as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
        raise WrongUsage(f"{path}: {what}; `rackrate sweep --example` prints one.") from None
    except UnicodeDecodeError:
        raise WrongUsage(f"{path} is no TOML file (it is not UTF-8).") from None
    except tomllib.TOMLDecodeError as error:
        raise WrongUsage(f"{path} is not valid TOML: {error}.") from None

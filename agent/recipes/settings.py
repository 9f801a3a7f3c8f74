"""The settings of a recipe: defaults in a dataclass, a TOML file above them, flags above that.

Invariant: a setting has one name everywhere (`batch_size` in a file, `--batch-size` as a flag) and the type of its default;
what cannot be meant is a sentence that names the flag, or the file and its key.
"""

from __future__ import annotations

import argparse
import difflib
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from agent.recipes.faults import WrongSettings

Value = bool | int | float | str


def setting(default: Value, help: str, *, least: float | None = None, choices: tuple[str, ...] = ()) -> Any:
    """A field of a settings class; `least`: no smaller number."""
    return field(default=default, metadata={"help": help, "least": least, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What every recipe can be told of the machine that it runs on."""

    precision: str = setting("auto", "of the arithmetic; auto: bf16 or fp16 on a GPU, else fp32",
                             choices=("auto", "fp32", "bf16", "fp16"))
    device: str = setting("auto", "auto: a GPU where there is one", choices=("auto", "cpu", "cuda"))
    deterministic: bool = setting(False, "the same settings give the same weights, bit for bit; slower")
    threads: int = setting(0, "threads of each rank on the CPU; 0: as torch likes", least=0)


@dataclass(frozen=True, kw_only=True)
class Settings(Machine):
    """What every training can be told."""

    steps: int = setting(1000, "steps in all, those before a resume included", least=1)
    batch_size: int = setting(128, "samples a step, of all ranks together", least=1)
    accumulate: int = setting(1, "pieces that a rank cuts its part of the batch into: less memory, same result", least=1)
    learning_rate: float = setting(0.1, "at its highest", least=0)
    warmup_steps: int = setting(20, "steps in which the learning rate rises; then it falls as a cosine", least=0)
    weight_decay: float = setting(5e-4, "pull of the weights towards zero", least=0)
    seed: int = setting(0, "of the weights, the order, the augmentation and the data made on the spot", least=0)
    data: str = setting("", "folder of the data, or s3://BUCKET/PREFIX; none: they are made on the spot")
    cache: str = setting("", "where objects of S3 are kept; none: RACKRATE_CACHE_DIR, else the folder for temporary files")
    samples: int = setting(4096, "how many, where they are made on the spot", least=1)
    max_broken: float = setting(0.01, "share of the folder's files that may be broken", least=0)
    workers: int = setting(0, "processes of each rank that load data ahead; 0: the rank itself", least=0)
    checkpoint_dir: str = setting("", "where checkpoints go; none: RACKRATE_CHECKPOINT_DIR, else ./checkpoints")
    checkpoint_every: int = setting(100, "steps between checkpoints; 0: only at the end and when it is stopped", least=0)
    keep_checkpoints: int = setting(2, "newest ones that are kept", least=1)
    tensorboard: str = setting("auto", "folder of TensorBoard's curves; auto: beside the checkpoints, where tensorboard is installed; off: none")
    log_every: int = setting(1, "steps between lines", least=1)
    held_out: int = setting(512, "samples that are kept apart and judged at the end; 0: none", least=0)


Kind = TypeVar("Kind")
TELLS = "One JSON line a step goes to stdout. SIGTERM or SIGUSR1: it saves, and goes on from there when run again."


def shown(kind: type[Any]) -> list[Field[Any]]:
    """A recipe's settings as they are listed: its own, then those of the machine."""
    machine = {one.name for one in fields(Machine)}
    return sorted(fields(kind), key=lambda one: one.name in machine)


def read(kind: type[Kind], name: str, argv: Sequence[str] | None = None) -> Kind:
    """Of the command line. Raises `WrongSettings`; `--help` prints and exits."""
    parser = _parser(kind, name)
    words, rest = parser.parse_known_args(argv)
    if rest:
        raise WrongSettings(f"{rest[0]}: there is no such flag{_near(rest[0].split('=')[0], kind, _flag)}; --help lists them.")
    given: dict[str, Value] = {}
    if words.settings:
        given |= dict(_from_file(kind, Path(words.settings)))
    for one in fields(kind):
        if (text := getattr(words, one.name)) is not None:
            given[one.name] = _of_text(one.default, text, _flag(one.name))
            _check(kind, one.name, given[one.name], _flag(one.name))
    return kind(**given)


def to_toml(kind: type[Any], title: str) -> str:
    """The file that ships beside a recipe: each setting with its default, what it is, and which values it takes.

    `rackrate run` reads the last of these from it (tui/recipes.py), so that a wrong value is refused where it is typed.
    """
    lines = [f"# {title}"]
    for one in shown(kind):
        lines += ["", f"# {one.metadata['help']}", *_taken(one), f"{one.name} = {_toml(one.default)}"]
    return "\n".join(lines) + "\n"


def _taken(one: Field[Any]) -> Iterator[str]:
    if one.metadata["choices"]:
        yield "# one of " + ", ".join(one.metadata["choices"])
    if one.metadata["least"] is not None:
        yield f"# at least {one.metadata['least']:g}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _parser(kind: type[Any], name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=(prog := f"python -m agent.recipes.{name}"), usage=f"{prog} [--settings FILE.toml] [--SETTING VALUE ...]",
        description=(kind.__doc__ or "").split("\n")[0], allow_abbrev=False,
        epilog=getattr(kind, "TELLS", TELLS),
    )  # fmt: skip
    parser.add_argument("--settings", metavar="FILE.toml", help="a file of these settings; flags beat it")
    for one in shown(kind):
        default = one.default if one.default != "" else "none"
        choices = one.metadata["choices"]
        metavar = "{" + ",".join(choices) + "}" if choices else type(one.default).__name__.upper()
        options: dict[str, Any] = {"nargs": "?", "const": "true"} if isinstance(one.default, bool) else {}
        help = f"{one.metadata['help']} (default {default})".replace("%", "%%")
        parser.add_argument(_flag(one.name), dest=one.name, metavar=metavar, help=help, **options)
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _near(word: str, kind: type[Any], written: Callable[[str], str] = str) -> str:
    """What may have been meant; a name of other recipes that this one calls otherwise stands in its INSTEAD."""
    names = {written(old): written(new) for old, new in getattr(kind, "INSTEAD", {}).items()}
    near = [names[word]] if word in names else difflib.get_close_matches(word, [written(one.name) for one in fields(kind)], 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _from_file(kind: type[Any], path: Path) -> Iterator[tuple[str, Value]]:
    defaults = {one.name: one.default for one in fields(kind)}
    for key, value in _table(path).items():
        where = f"{path}: `{key}`"
        if key not in defaults:
            raise WrongSettings(f"{where}: there is no such setting{_near(key, kind)}; --help lists them.")
        if isinstance(defaults[key], float) and type(value) is int:
            value = float(value)
        if type(value) is not type(defaults[key]):
            raise WrongSettings(f"{where} has to be {_called(defaults[key])}.")
        _check(kind, key, value, where)
        yield key, value


def _table(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise WrongSettings(f"--settings {path}: {(error.strerror or str(error)).lower()}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WrongSettings(f"--settings {path} is not valid TOML: {error}.") from None


def _of_text(default: Value, text: str, where: str) -> Value:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(default)(text)
    except (ValueError, KeyError):
        raise WrongSettings(f"{where} {text}: it has to be {_called(default)}.") from None


def _called(default: object) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[type(default)]


def _check(kind: type[Any], name: str, value: Value, where: str) -> None:
    about = next(one.metadata for one in fields(kind) if one.name == name)
    if about["choices"] and value not in about["choices"]:
        raise WrongSettings(f"{where}: {value!r} is none of {', '.join(about['choices'])}.")
    least = about["least"]
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongSettings(f"{where}: {value} is no finite number.")
    if least is not None and value < least:  # type: ignore[operator]
        raise WrongSettings(f"{where}: {value} is too small; it is at least {least:g}.")

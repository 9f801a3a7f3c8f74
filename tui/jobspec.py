"""What a person asks a job to be, from options and a TOML file, as the spec that an agent takes.

Invariant: the command line beats the file; a value that cannot be meant is one sentence that names the option, or the
file and its key, and nothing has been sent by then. The content of a secret is read here and shown nowhere.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from agent import wire
from tui import amounts
from tui.errors import WrongUsage
from tui.job_options import BY_KEY, FILE_KEYS
from tui.whoami import user_name

MOST_GPUS = 1024
MOST_NODES = 1000
LARGEST_SECRETS = 256 * 1024
LARGEST_FILE = 1024 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_AFTER = re.compile(r"(?:(any|notok|ok):)?(.+)")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was asked for, and where it may run."""

    spec: wire.JobSpec
    """`after` still has names and beginnings of ids; `upload` and the node's price are not known yet."""
    folder: Path | None = None
    """Files that go along."""
    recipe: str | None = None
    """The recipe that it runs: its program goes along."""
    at: tuple[str, ...] = ()
    """Names of nodes."""
    on: str | None = None
    """A query that selects nodes."""
    nodes: int = 1
    processes_per_node: int | None = None
    on_node_loss: str = "stop"
    rendezvous: str | None = None
    """HOST or HOST:PORT where the nodes of a run meet."""


_PARSE: dict[str, Callable[[str], Any]] = {
    "gpus": amounts.whole(0, MOST_GPUS), "gpu_share": amounts.number, "gpu_memory": amounts.size,
    "nodes": amounts.whole(1, MOST_NODES), "processes_per_node": amounts.whole(1, 4096), "cpus": amounts.number,
    "memory": amounts.size, "pids": amounts.whole(1, 4_194_304), "io_weight": amounts.whole(1, 10_000),
    "time_limit": amounts.duration, "budget": amounts.dollars, "retries": amounts.whole(0, 1000),
    "priority": amounts.whole(-1000, 1000), "grace": amounts.duration, "idle_stop": amounts.duration,
    "log_quota": amounts.size, "array": amounts.array,
}  # fmt: skip
_FIELDS = {
    "gpus": "gpus", "gpu_share": "gpu_share", "gpu_memory": "gpu_memory_bytes", "cpus": "cpus", "cpu_quota": "cpu_quota",
    "memory": "memory_bytes", "pids": "pids", "io_weight": "io_weight", "time_limit": "time_limit_seconds",
    "budget": "budget_usd", "interruptible": "interruptible", "retries": "retries", "priority": "priority", "name": "name",
    "project": "project", "user": "user", "chdir": "workdir", "shell": "shell", "stop_signal": "stop_signal",
    "grace": "grace_seconds", "idle_stop": "idle_stop_seconds", "log_quota": "log_quota_bytes", "strict": "strict",
}  # fmt: skip
"""Key -> field of the spec, where the value goes over as it is."""


class _Given(msgspec.Struct, frozen=True):
    """A value and how to call where it came from in a sentence."""

    value: Any
    where: str
    base: Path
    """Paths are relative to this folder."""


def read(
    options: Mapping[str, Any],
    command: Sequence[str],
    file: str | None = None,
    *,
    table: tuple[Path, Mapping[str, Any]] | None = None,
    environ: Mapping[str, str] = os.environ,
    now: datetime | None = None,
) -> Wanted:
    """`options`: key -> text, list of texts, True, or None where it was not given. Raises `WrongUsage`.

    `table`: a file's [job], with keys that are known to be options.
    """
    given = _from_file(Path(file)) if file else {}
    if table is not None:
        path, keys = table
        given |= {key: _Given(value, f"{path}: [job] `{key}`", path.absolute().parent) for key, value in keys.items()}
    here = Path.cwd()
    for key, value in options.items():
        if key in BY_KEY and value not in (None, [], False):
            given[key] = _Given(value, BY_KEY[key].flag, here)
    if command:
        given["command"] = _Given(list(command), "the command", here)
    return _wanted(given, environ, now or datetime.now())


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        raw = tomllib.loads(path.read_bytes()[: LARGEST_FILE + 1].decode("utf-8"))
    except OSError as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
        raise WrongUsage(f"{path}: {what}; a command goes after --, as in `rackrate run -- python train.py`.") from None
    except UnicodeDecodeError:
        raise WrongUsage(f"{path} is no TOML file (it is not UTF-8); a command goes after --.") from None
    except tomllib.TOMLDecodeError as error:
        raise WrongUsage(f"{path} is not valid TOML: {error}.") from None
    base = path.absolute().parent
    return {_key_of(key, path): _Given(value, f"{path}: `{key}`", base) for key, value in raw.items()}


def _key_of(key: str, path: Path) -> str:
    found = key.replace("-", "_")
    if found in FILE_KEYS:
        return found
    near = difflib.get_close_matches(found, FILE_KEYS, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(FILE_KEYS)}."
    raise WrongUsage(f"{path}: unknown key `{key}`; {hint}")


def _wanted(given: dict[str, _Given], environ: Mapping[str, str], now: datetime) -> Wanted:
    _expand_recipe(given)
    fields = {field: _value(key, given[key]) for key, field in _FIELDS.items() if key in given}
    fields |= _listed(given, environ, now)
    spec = wire.JobSpec(command=_command(given), **{"user": user_name(), **fields})
    wanted = Wanted(
        spec=spec,
        folder=_folder(given["workdir"]) if "workdir" in given else None,
        recipe=_text(given["recipe"]) if "recipe" in given else None,
        at=tuple(_texts(given["node"])) if "node" in given else (),
        on=_text(given["on"]) if "on" in given else None,
        nodes=_value("nodes", given["nodes"]) if "nodes" in given else 1,
        processes_per_node=_value("processes_per_node", given["processes_per_node"]) if "processes_per_node" in given else None,
        on_node_loss=_value("on_node_loss", given["on_node_loss"]) if "on_node_loss" in given else "stop",
        rendezvous=_text(given["rendezvous"]) if "rendezvous" in given else None,
    )
    for wrong in _contradictions(wanted, given):
        raise WrongUsage(wrong)
    return wanted


def _expand_recipe(given: dict[str, _Given]) -> None:
    """Puts a recipe's command and name in, as if they had been given."""
    if "recipe" not in given:
        if "set" in given:
            raise WrongUsage(f"{given['set'].where} goes with --recipe.")
        return
    from tui import recipes

    for key in ("command", "workdir", "chdir", "shell"):
        if key in given:
            raise WrongUsage(f"{given[key].where} does not go with --recipe, which brings its own program.")
    recipe = given["recipe"]
    name, sets = _text(recipe), given.get("set")
    gpus = _value("gpus", given["gpus"]) if "gpus" in given else 0
    nodes = _value("nodes", given["nodes"]) if "nodes" in given else 1
    pairs = recipes.pairs(sets.value, sets.where) if sets else {}
    where = sets.where if sets else "--set"
    command = recipes.command(name, pairs, where, ranks=gpus, nodes=nodes)
    if why := recipes.refusal(name, pairs):
        raise WrongUsage(f"{where} {why}")
    given["command"] = _Given(command, recipe.where, recipe.base)
    given.setdefault("name", _Given(name, recipe.where, recipe.base))


def _listed(given: dict[str, _Given], environ: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Fields that are made of more than one value, or depend on here and now."""
    fields: dict[str, Any] = {}
    if "array" in given:
        fields["array"], fields["array_at_once"] = _value("array", given["array"])
    if "deadline" in given:
        fields["deadline"] = _deadline(given["deadline"], now)
    if "env" in given:
        fields["env"] = _environment(given["env"], environ)
    if "secret" in given:
        fields["secrets"] = _secrets(given["secret"])
    if "after" in given:
        fields["after"] = tuple(_texts(given["after"]))
    if "retry_on" in given:
        words = _texts(given["retry_on"])
        fields["retry_on"] = tuple(word.strip() for text in words for word in text.split(",") if word.strip())
    return fields


def _command(given: dict[str, _Given]) -> tuple[str, ...]:
    if "command" not in given:
        raise WrongUsage("there is no command to run; it goes after --, as in `rackrate run -- python train.py`.")
    value, where = given["command"].value, given["command"].where
    shell = "shell" in given and given["shell"].value is True
    if isinstance(value, str):
        if not shell:
            raise WrongUsage(f'{where}: write it as a list, ["python", "train.py"], or say shell = true.')
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value) or not value[0]:
        raise WrongUsage(f"{where} has to be a list of texts, of which the first is a program.")
    if shell and len(value) != 1:
        raise WrongUsage("with --shell the command is one text: quote it, as in -- 'python a.py && python b.py'.")
    return tuple(value)


def _value(key: str, given: _Given) -> Any:
    option, value = BY_KEY[key], given.value
    if option.metavar is None:
        if not isinstance(value, bool):
            raise WrongUsage(f"{given.where} has to be true or false.")
        return value
    text = _text(given)
    if option.choices and text not in option.choices:
        raise WrongUsage(f"{given.where}: {text!r} is none of {', '.join(option.choices)}.")
    if key == "stop_signal":
        return signal_name(text, given.where)
    if key in _PARSE:
        try:
            return _PARSE[key](text)
        except ValueError as error:
            raise WrongUsage(f"{given.where}: {text!r} {error}.") from None
    if not text or len(text) > 4096 or not text.isprintable():
        raise WrongUsage(f"{given.where} has to be a text without control characters.")
    return text


def _text(given: _Given) -> str:
    """TOML's numbers are texts too: `gpus = 2`, `gpu_share = 0.5`."""
    if isinstance(given.value, bool) or not isinstance(given.value, (str, int, float, datetime)):
        raise WrongUsage(f"{given.where} has to be a text or a number.")
    return given.value.isoformat() if isinstance(given.value, datetime) else str(given.value)


def _texts(given: _Given) -> list[str]:
    values = given.value if isinstance(given.value, list) else [given.value]
    if not values or not all(isinstance(value, str) and value for value in values):
        raise WrongUsage(f"{given.where} has to be a text, or a list of texts.")
    return values


def signal_name(text: str, where: str) -> str:
    """`TERM` of `TERM`, `SIGTERM` or `15`. Raises `WrongUsage`."""
    name = text.strip().upper().removeprefix("SIG")
    if name.isascii() and name.isdigit():
        try:
            return signal.Signals(int(name)).name.removeprefix("SIG")
        except ValueError:
            name = ""
    if not name or f"SIG{name}" not in signal.Signals.__members__:
        raise WrongUsage(f"{where} {text}: there is no such signal; some are TERM, INT, USR1, USR2, HUP.")
    return name


def _deadline(given: _Given, now: datetime) -> datetime:
    text = _text(given)
    try:
        return amounts.moment(text, now)
    except ValueError as error:
        raise WrongUsage(f"{given.where}: {text!r} {error}.") from None


def _pairs(given: _Given, like: str) -> list[tuple[str, str | None]]:
    """`K=V` texts of options, or a table of a file."""
    if isinstance(given.value, dict):
        if wrong := [key for key, value in given.value.items() if not isinstance(value, str)]:
            raise WrongUsage(f"{given.where}: `{wrong[0]}` has to be a text.")
        return list(given.value.items())
    pairs = []
    for text in _texts(given):
        key, found, value = text.partition("=")
        pairs.append((key, value if found else None))
        if not key:
            raise WrongUsage(f"{given.where} {text}: it is written {like}.")
    return pairs


def _environment(given: _Given, environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key, value in _pairs(given, "K=V, or K to take its value from here"):
        if not _NAME.fullmatch(key):
            raise WrongUsage(f"{given.where} {key}: that is no name of an environment variable.")
        if value is None and key not in environ:
            raise WrongUsage(f"{given.where} {key}: it is not set here; write {key}=VALUE.")
        found[key] = environ[key] if value is None else value
    return found


def _secrets(given: _Given) -> dict[str, str]:
    found = {}
    for name, file in _pairs(given, "NAME=FILE"):
        if not file:
            raise WrongUsage(f"{given.where} {name}: it is written NAME=FILE.")
        if not _SECRET.fullmatch(name):
            raise WrongUsage(f"{given.where} {name}: a secret's name is letters, digits, `_`, `.` and `-`.")
        found[name] = _content(given.base / Path(file).expanduser(), given.where)
    if sum(len(value.encode()) for value in found.values()) > LARGEST_SECRETS:
        raise WrongUsage(f"{given.where}: the secrets are larger than {LARGEST_SECRETS // 1024} KiB together.")
    return found


def _content(file: Path, where: str) -> str:
    try:
        if not file.is_file():
            raise WrongUsage(f"{where}: {file} is no file.")
        if file.stat().st_size > LARGEST_SECRETS:
            raise WrongUsage(f"{where}: {file} is larger than {LARGEST_SECRETS // 1024} KiB.")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{where}: {file} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise WrongUsage(f"{where}: {file} is not text (UTF-8).") from None


def _folder(given: _Given) -> Path:
    folder = given.base / Path(_text(given)).expanduser()
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise WrongUsage(f"{given.where}: {folder} {what}; a folder of the node itself is named with --chdir.")
    return folder


def _contradictions(wanted: Wanted, given: dict[str, _Given]) -> Iterator[str]:
    """Of values that are fine alone."""
    spec, share = wanted.spec, wanted.spec.gpu_share
    if share is not None and (share >= 1 or share != round(share, wire.GPU_SHARE_PLACES)):
        where = given["gpu_share"].where
        yield f"{where} {share}: a share is above 0 and below 1, in steps of a millionth; for whole GPUs use --gpus."
    if spec.gpus and share is not None:
        yield "--gpus and --gpu-share cannot be asked for together; a share is of one GPU."
    if spec.gpu_memory_bytes is not None and share is None:
        yield "--gpu-memory goes with --gpu-share; a whole GPU is the job's own."
    if spec.cpu_quota and spec.cpus is None:
        yield "--cpu-quota needs --cpus."
    if spec.idle_stop_seconds is not None and not spec.gpus and share is None:
        yield "--idle-stop looks at GPUs, and the job asks for none."
    if _leaves(wanted):
        yield f"--chdir {spec.workdir}: beside --workdir it is a folder inside of what is sent."
    for text in spec.after:
        match = _AFTER.fullmatch(text)
        if match is None or not re.fullmatch(r"[^\s/:]{1,128}", match[2]):
            yield f"--after {text}: that is no job; write its id or name, any:ID or notok:ID."
    if wanted.nodes > 1 and spec.array:
        yield "--array and --nodes cannot be asked for together."
    if wanted.nodes > 1 and wanted.at and len(set(wanted.at)) < wanted.nodes:
        yield f"--nodes {wanted.nodes}: only {len(set(wanted.at))} nodes are named with --node."
    if wanted.nodes == 1:
        for key in ("processes_per_node", "on_node_loss", "rendezvous"):
            if key in given:
                yield f"{given[key].where} goes with --nodes 2 or more."
    if wanted.rendezvous and not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", wanted.rendezvous):
        yield f"--rendezvous {wanted.rendezvous}: it is written HOST or HOST:PORT."


def _leaves(wanted: Wanted) -> bool:
    folder = wanted.spec.workdir
    return bool(wanted.folder and folder and (os.path.isabs(folder) or ".." in Path(folder).parts))


def priced(spec: wire.JobSpec, usd_per_hour: Decimal | None, **changes: Any) -> wire.JobSpec:
    """The spec for one node: with its price as this catalog says it."""
    return msgspec.structs.replace(spec, node_usd_per_hour=usd_per_hour, **changes)

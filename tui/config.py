"""config.toml of the app and the commands: which nodes there are, and how to show them.

Invariant: an unknown key is an error that names the file and the key; writing keeps comments and order (tomlkit).
Everything lives in `RACKRATE_HOME`, or in the platform's directories for configuration and data.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import platformdirs

from tui.errors import ConfigurationError


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[nodes]]` table. `token_file` is relative to the folder of the configuration file."""

    name: str
    url: str
    token_file: str | None = None
    fingerprint: str | None = None
    tags: dict[str, str] = {}


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[budgets]]` table: of one `project`, one `user` or one tag (`"tag:team" = "vision"`), or of everything."""

    name: str
    amount: str | int
    """For a calendar month; text like "5000" or "249.50", so that it is exact."""
    currency: str = "USD"
    project: str | None = None
    user: str | None = None
    tag: Annotated[dict[str, str], msgspec.Meta(max_length=1)] = {}
    """`tag = { team = "vision" }` is another way to write it."""
    thresholds: tuple[int | float, ...] = (50, 80, 100)
    """Percent of the amount, spent; the forecast alerts at 100 %."""
    timezone: str = ""
    """Of its months; empty means that of the file."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. `timezone` is an IANA name for calendar days; empty means this machine's zone."""

    nodes: tuple[NodeConfig, ...] = ()
    timezone: str = ""
    theme: str = ""
    ledger: str = ""
    """Path of the ledger; default `ledger.db` in the data directory."""
    budgets: tuple[BudgetConfig, ...] = ()
    keys: dict[str, str | tuple[str, ...]] = {}
    """Other keys of the app: `quit = "Q"`, `filter = ["/", "F3"]`; `rackrate keys` lists the names."""
    read_only: bool = False
    """Nothing is changed on any node: the app has no such keys, `run`, `job cancel` and `job signal` are refused."""
    filters: dict[str, str] = {}
    """Queries that are kept: `mine = "user:me"` is `@mine` wherever a query is written."""
    max_kbps: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    """Kilobits a second that the app may write to the terminal; 0: no limit; not given: 256 over SSH."""
    silent_seconds: Annotated[float, msgspec.Meta(ge=4, le=86_400)] = 15.0
    """A node that was not heard for longer is lost, and an alert (`node_silent`)."""


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Where configuration and data are, resolved once."""

    config_file: Path
    data_dir: Path

    def token_path(self, node: NodeConfig) -> Path | None:
        """The node's token file as an absolute path."""
        return self.config_file.parent / node.token_file if node.token_file else None

    def ledger_path(self, config: Config) -> Path:
        """The ledger's file."""
        return self.config_file.parent / config.ledger if config.ledger else self.data_dir / "ledger.db"


NO_HOME = "this user has no home directory (HOME is not set, and no list of users knows one): set RACKRATE_HOME to a folder."


def resolve_paths(config_file: str | None = None, environ: Mapping[str, str] = os.environ) -> Paths:
    """`--config FILE` beats `RACKRATE_HOME`, which beats the platform's directories."""
    home = environ.get("RACKRATE_HOME")
    if home:
        config_dir = data_dir = Path(home).expanduser().absolute()
    else:
        config_dir, data_dir = _folder(platformdirs.user_config_dir), _folder(platformdirs.user_data_dir)
    file = Path(config_file).expanduser().absolute() if config_file else config_dir / "config.toml"
    return Paths(config_file=file, data_dir=data_dir)


def _folder(of: Callable[[str], str]) -> Path:
    try:
        found = Path(of("rackrate"))
    except RuntimeError:
        found = Path("~")
    if not found.is_absolute():
        raise ConfigurationError(NO_HOME)
    return found


def load(paths: Paths, *, must_exist: bool = False) -> Config:
    """Reads and checks the file; a missing one is an empty configuration unless it was named by the user."""
    try:
        raw = tomllib.loads(paths.config_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise ConfigurationError(f"{paths.config_file}: no such file. Give --config an existing file.") from None
        return Config()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{paths.config_file}: {_reason(error)}.") from None
    return check(raw, paths.config_file)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror})"
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 (byte {error.start})"
    return f"is not valid TOML: {error}"


def check(raw: dict[str, object], file: Path) -> Config:
    """Turns parsed TOML into a Config, or says which key is wrong and what is allowed."""
    try:
        config = msgspec.convert(_with_tags(raw), Config)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{file}: {_explain(str(error))}") from None
    seen: set[str] = set()
    for node in config.nodes:
        check_node(node, file)
        if node.name in seen:
            raise ConfigurationError(f"{file}: two nodes are named `{node.name}`; names must differ.")
        seen.add(node.name)
    check_timezone(config.timezone, str(file))
    check_filters(config.filters, str(file))
    if config.budgets:
        from tui.budgets import check_budgets

        check_budgets(config, str(file))
    return config


def _with_tags(raw: dict[str, object]) -> dict[str, object]:
    """`"tag:team" = "vision"` of a budget as `tag = { team = "vision" }`."""
    budgets = raw.get("budgets")
    if not isinstance(budgets, list):
        return raw
    return {**raw, "budgets": [_with_tag(one) if isinstance(one, dict) else one for one in budgets]}


def _with_tag(budget: dict[str, object]) -> dict[str, object]:
    named = {key: value for key, value in budget.items() if key.startswith("tag:")}
    tag = budget.get("tag", {})
    if not named or not isinstance(tag, dict):
        return budget
    rest = {key: value for key, value in budget.items() if key not in named}
    return {**rest, "tag": {**tag, **{key.removeprefix("tag:"): value for key, value in named.items()}}}


def check_timezone(name: str, where: str) -> None:
    """Raises when `name` is not empty and no IANA zone."""
    try:
        name and ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigurationError(f"{where}: `{name}` is no IANA time zone (such as Europe/Berlin).") from None


def check_filters(filters: Mapping[str, str], where: str) -> None:
    """Raises when a name cannot stand behind `@`. What a query says is checked where it is used: rows differ in their keys."""
    for name in filters:
        if problem := filter_name_problem(name):
            raise ConfigurationError(f"{where}: filters: {problem}")


def filter_name_problem(name: str) -> str | None:
    """Why a name cannot stand behind `@`; None: it can."""
    return None if re.fullmatch(r"[\w-]+", name) else f"`{name}` is no name; letters, digits, `_` and `-` make one, as in `mine`."


def check_node(node: NodeConfig, where: object) -> None:
    """Raises when the URL cannot be one of an agent."""
    parts = urlsplit(node.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"{where}: node `{node.name}`: `{node.url}` is no URL of an agent; it looks like https://10.0.0.5:9477."
        )


_ALLOWED = {
    "Config": Config.__struct_fields__,
    "nodes": NodeConfig.__struct_fields__,
    "budgets": BudgetConfig.__struct_fields__,
}


def _explain(message: str) -> str:
    """msgspec's text with the key first, and the nearest allowed key for an unknown one."""
    where = re.search(r" - at `\$\.?(.*?)`$", message)
    place = where.group(1) if where else ""
    if unknown := re.search(r"unknown field `(.*?)`", message):
        key = unknown.group(1)
        allowed = _ALLOWED.get(place.partition("[")[0], _ALLOWED["Config"])
        near = difflib.get_close_matches(key, allowed, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"allowed here: {', '.join(allowed)}."
        return f"unknown key `{f'{place}.' if place else ''}{key}`; {hint}"
    return f"`{place}`: {message.split(' - at ')[0]}." if place else f"{message}."


def add_node(paths: Paths, node: NodeConfig) -> None:
    """Appends a `[[nodes]]` table; the rest of the file stays as it was. Raises if the name is taken."""
    import tomlkit

    config = load(paths)
    if any(n.name == node.name for n in config.nodes):
        raise ConfigurationError(f"A node named `{node.name}` is already there; remove it first or give --name.")
    document = _document(paths.config_file)
    tables = document.setdefault("nodes", tomlkit.aot())
    table = tomlkit.table()
    for key, value in msgspec.to_builtins(node).items():
        if value not in (None, {}):
            table.add(key, value)
    tables.append(table)
    _write(paths.config_file, tomlkit.dumps(document))


def remove_node(paths: Paths, name: str) -> None:
    """Removes the `[[nodes]]` table of that name. Raises if there is none."""
    import tomlkit

    config = load(paths)
    if all(n.name != name for n in config.nodes):
        near = difflib.get_close_matches(name, [n.name for n in config.nodes], 1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        raise ConfigurationError(f"There is no node named `{name}`.{hint}")
    document = _document(paths.config_file)
    tables = document["nodes"]
    for index in reversed(range(len(tables))):
        if tables[index].get("name") == name:
            del tables[index]
    if not tables:
        del document["nodes"]
    _write(paths.config_file, tomlkit.dumps(document))


def keep_filter(file: Path, name: str, query: str) -> None:
    """Writes `name = "query"` into `[filters]`; the rest of the file stays as it was."""
    import tomlkit

    document = _document(file)
    check(document.unwrap(), file)
    document.setdefault("filters", tomlkit.table())[name] = query
    _write(file, tomlkit.dumps(document))


def forget_filter(file: Path, name: str) -> None:
    """Takes the name out of `[filters]`, and the table with its last one."""
    import tomlkit

    document = _document(file)
    table = document.get("filters", {})
    if name in table:
        del table[name]
        if not table:
            del document["filters"]
        _write(file, tomlkit.dumps(document))


def _document(file: Path):  # noqa: ANN202 - tomlkit is imported lazily
    import tomlkit

    try:
        return tomlkit.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigurationError(f"{file}: {_reason(error)}; nothing was written.") from None


def _write(file: Path, text: str) -> None:
    """Writes beside and renames, so that a crash or a full disk leaves the old file whole."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=".config-", delete=False) as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        os.replace(new.name, file)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written ({error.strerror}); it is as it was.") from None

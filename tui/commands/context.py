"""What every command needs: the configuration, the paths, and the nodes it speaks to.

Invariant: with nothing configured the one node is this machine, from an agent that ends with the command, or with its last job.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from tui import config as configuration
from tui.config import Config, NodeConfig, Paths
from tui.errors import WrongUsage

if TYPE_CHECKING:
    from agent.client import AgentClient
    from pricing.catalog import Catalog
    from pricing.ledger import Ledger
    from pricing.pricebook import PriceBook
    from tui.fleet import Fleet
    from tui.query import Predicate, Words


class Context:
    """Lazily read, so that `rackrate prices` needs no configuration."""

    def __init__(self, config_file: str | None) -> None:
        self.paths: Paths = configuration.resolve_paths(config_file)
        self.is_named = config_file is not None
        """`--config` was given."""

    @cached_property
    def config(self) -> Config:
        return configuration.load(self.paths, must_exist=self.is_named)

    @contextlib.contextmanager
    def nodes(self, only: Sequence[str] = ()) -> Iterator[tuple[NodeConfig, ...]]:
        """The configured nodes (those named in `only`), or this machine when none is configured."""
        nodes = self.config.nodes
        if unknown := [name for name in only if name not in {node.name for node in nodes}]:
            raise WrongUsage(f"There is no node named `{unknown[0]}`; `rackrate nodes` lists them.")
        if nodes:
            yield tuple(node for node in nodes if not only or node.name in only)
            return
        from tui.local import local_agent

        with local_agent(self.paths) as node:
            yield (node,)

    @property
    def client_for(self) -> Callable[[NodeConfig], AgentClient]:
        from tui.clients import client_factory

        return client_factory(self.paths)

    def now(self) -> datetime:
        """UTC."""
        return datetime.now(UTC)

    def clock(self) -> float:
        """Monotonic seconds, by which ages are told."""
        return time.monotonic()

    def fleet(self) -> Fleet:
        """Asks all nodes once."""
        import asyncio

        from tui.fetch import fetch

        with self.nodes() as nodes:
            return asyncio.run(fetch(nodes, self.client_for, self.catalog()))

    def query(self, words: Sequence[str], kind: Words | None = None) -> Predicate:
        """The test that the words of a command line ask for, with the filters that are kept. Raises `QueryError`."""
        from tui.query import parse

        text = " ".join(words)
        return parse(text, kind, self.config.filters if "@" in text else {})

    def open_ledger(self) -> Ledger:
        """Opens (or makes) the ledger."""
        from pricing.ledger import Ledger

        path = self.paths.ledger_path(self.config)
        path.parent.mkdir(parents=True, exist_ok=True)
        return Ledger.open(path)

    @property
    def terms_path(self) -> Path:
        """What the user has agreed with the clouds; there may be none."""
        return self.paths.config_file.parent / "terms.toml"

    @cached_property
    def prices_path(self) -> Path:
        """The price book's file; there may be none."""
        from tui.catalogs import BOOK

        return self.paths.data_dir / BOOK

    def catalog(self) -> Catalog:
        """The prices that ship, and over them those that `rackrate prices refresh` brought; read once."""
        return self._catalog

    @cached_property
    def _catalog(self) -> Catalog:
        from tui.catalogs import overlaid
        from tui.output import say

        return overlaid(self.prices_path, lambda sentence: say(f"rackrate: {sentence}"))

    def open_prices(self) -> PriceBook:
        """Opens (or makes) the price book."""
        from pricing.pricebook import PriceBook

        self.prices_path.parent.mkdir(parents=True, exist_ok=True)
        return PriceBook.open(self.prices_path)

    def timezone_name(self, asked: str | None = None) -> str:
        """The zone of calendar days: `--tz`, else the configuration's, else this machine's."""
        if asked:
            configuration.check_timezone(asked, "--tz")
            return asked
        return self.config.timezone or machine_timezone()

    def timezone(self, asked: str | None = None) -> tzinfo:
        return ZoneInfo(self.timezone_name(asked))


def machine_timezone() -> str:
    """This machine's IANA zone, or UTC when it cannot be told."""
    import os
    from pathlib import Path

    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        with contextlib.suppress(OSError):
            link = os.path.realpath("/etc/localtime")
            name = link.partition("zoneinfo/")[2]
    if not name:
        with contextlib.suppress(OSError):
            name = Path("/etc/timezone").read_text().strip()
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return "UTC"
    return name or "UTC"

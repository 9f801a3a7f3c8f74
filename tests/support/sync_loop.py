"""A client that syncs one node into one ledger for ever: the victim of the kill tests. Arguments: URL TOKEN_FILE LEDGER."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from pricing.ledger import Ledger
from tui.clients import client_factory
from tui.config import NodeConfig, Paths
from tui.sync import sync


async def sync_for_ever(url: str, token_file: str, ledger_file: str) -> None:
    node = NodeConfig(name="victim", url=url, token_file=token_file)
    client_for = client_factory(Paths(config_file=Path("/config.toml"), data_dir=Path("/")))
    with Ledger.open(ledger_file) as ledger:
        print("ready", flush=True)
        while True:
            await sync([node], ledger, client_for=client_for)
            await asyncio.sleep(0.02)


def main(arguments: Sequence[str]) -> None:
    asyncio.run(sync_for_ever(*arguments))


if __name__ == "__main__":
    main(sys.argv[1:])

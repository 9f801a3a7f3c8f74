"""A simulated fleet in a process of its own, and a configuration for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Agents:
    """`nodes` nodes of four GPUs with two hours of history; `config` is a config.toml of them."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        token = folder / "token"
        command = [sys.executable, "-m", "agent.cli", "simulate", "--nodes", str(nodes), "--gpus", "4", "--seed", "3",
                   "--listen", "127.0.0.1:0", "--token-file", str(token), "--die-with-parent",
                   "--history", "7200"]  # fmt: skip
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.urls = [self.process.stdout.readline().strip() for _ in range(nodes)]
        self.names = [url.rstrip("/").rpartition("/")[2] for url in self.urls]
        self.config = folder / "config.toml"
        tables = [
            f'[[nodes]]\nname = "{name}"\nurl = "{url}"\ntoken_file = "{token}"\n'
            for name, url in zip(self.names, self.urls, strict=True)
        ]
        self.config.write_text(f'ledger = "{folder / "ledger.db"}"\n' + "\n".join(tables), encoding="utf-8")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

"""Clients of the configured nodes, with their tokens read from where the configuration says.

Invariant: a token is read from a file each time a connection is made (so it can be rotated) and never printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tui.config import NodeConfig, Paths
from tui.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.client import AgentClient


def client_factory(paths: Paths, *, timeout_seconds: float = 5.0) -> Callable[[NodeConfig], AgentClient]:
    """Returns a function that makes the client of a node. It raises `ConfigurationError` for an unreadable token."""

    def client_for(node: NodeConfig) -> AgentClient:
        from agent.client import (
            AgentClient,  # httpx costs 0.15 s, which the app spends after its first paint
        )

        return AgentClient(
            node.url, read_token(paths, node), fingerprint=node.fingerprint, timeout_seconds=timeout_seconds
        )

    return client_for


def read_token(paths: Paths, node: NodeConfig) -> str | None:
    """The node's token, or None when it has no token file."""
    file = paths.token_path(node)
    if file is None:
        return None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise ConfigurationError(f"node `{node.name}`: token file {file}: {reason}.") from None
    if not token:
        raise ConfigurationError(f"node `{node.name}`: token file {file} is empty.")
    return token

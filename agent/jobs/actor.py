"""Who asks for something: the token that a request carried, and the user that it stands for.

Invariant: a token that belongs to a user never acts as another.
"""

from __future__ import annotations

from typing import NamedTuple


class Actor(NamedTuple):
    """`name` is the token's name (`node` for the node's own); `user` None: it may name any user."""

    name: str
    user: str | None = None
    peer: str | None = None
    """Address of the other side, where there is one."""

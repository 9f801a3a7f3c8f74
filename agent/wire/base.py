"""The common shape of every message, and what answers that are not 2xx carry."""

from __future__ import annotations

import msgspec

WIRE_VERSION = 1
"""Raised when a field changes its meaning; a new field that may be absent does not raise it, nor does a new kind of event or
a new word of a `Literal`: programs of before leave the former out, and refuse a message with the latter (`client_reading`)."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The common shape: frozen, keyword-only, absent means not known. Unknown keys of a newer agent are ignored.

    Fields that a reader must always find (`version`, `state`, `gpus`) have no plain default, so they are never left out.
    """


class Problem(Message, kw_only=True):
    """Body of every answer that is not 2xx: a sentence a person can act on."""

    error: str
    status: int

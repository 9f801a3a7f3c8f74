"""Advice that somebody dismissed, with the reason, in a file of the data directory.

Invariant: a piece of advice is known again when its figures change (it goes by kind, nodes, machines and words without
numbers); the file is there whole or not at all, and one that is damaged is never written over.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tui.errors import ConfigurationError

if TYPE_CHECKING:
    from pricing.advice import Action

FILE = "dismissed.json"


class Dismissed(msgspec.Struct, frozen=True, kw_only=True):
    """One that was dismissed, as it stood then."""

    kind: str
    what: str
    saving_per_month: str
    reason: str
    dismissed_at: datetime


def identity(action: Action) -> str:
    """The same for the same advice on another day."""
    machines = sorted("/".join(part or "" for part in key[:3]) for key in action.claims)
    words = re.sub(r"\d[\d.,]*", "#", action.what)
    told = json.dumps([action.kind, sorted(action.nodes), machines, action.group, words])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def load(data_dir: Path | None) -> dict[str, Dismissed]:
    """By identity; nothing where there is no file. ConfigurationError names a file that is damaged."""
    if data_dir is None:
        return {}
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Dismissed])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is no list of dismissed advice ({error}); repair it, or remove it.") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}).") from None


def dismiss(data_dir: Path, action: Action, reason: str, now: datetime) -> dict[str, Dismissed]:
    """Adds one; returns all. ConfigurationError, PricingError when it cannot be written."""
    from pricing.advice import cents

    one = Dismissed(
        kind=action.kind, what=action.what, saving_per_month=str(cents(action.saving_per_month)), reason=reason, dismissed_at=now
    )
    return _write(data_dir, {**load(data_dir), identity(action): one})


def restore(data_dir: Path, ident: str) -> dict[str, Dismissed]:
    """Takes one back; returns what is left."""
    return _write(data_dir, {key: one for key, one in load(data_dir).items() if key != ident})


def _write(data_dir: Path, everything: Mapping[str, Dismissed]) -> dict[str, Dismissed]:
    from pricing.reports import replaced

    data_dir.mkdir(parents=True, exist_ok=True)
    with replaced(data_dir / FILE) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(everything), indent=1).decode() + "\n")  # type: ignore[arg-type]
    return dict(everything)

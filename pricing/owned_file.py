"""owned.toml: the reservations and savings plans that clouds say the user owns, kept beside terms.toml.

    [[read]]                                       # one reading: of an account's reservations in a region, or of its plans
    cloud = "aws"
    account = "123456789012"
    of = "reservations"                            # or "savings_plans", which are of no region
    region = "us-east-1"
    read_at = 2026-11-30T12:00:00Z
    [[read.commitments]]                           # as in terms.toml
    id = "..."

Invariant: the program alone writes it, whole or not at all, and a reading takes the place only of an earlier one of the
same account, kind and region: what could not be read this time stays as it was, with its own date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from pricing import calendar
from pricing.commitment_tables import commitments
from pricing.errors import TermsError
from pricing.instances import name_key
from pricing.owned import Commitment
from pricing.terms_reader import TableReader, tables

RESERVATIONS, SAVINGS_PLANS = "reservations", "savings_plans"
HEAD = """# Written by `rackrate prices owned --write`, and anew each time. What you agreed yourself belongs into terms.toml.
"""
OLD = timedelta(days=7)
DAY_MS = 86_400_000
NEAR = Fraction(1, 1000)
"""Two statements of one amount or moment that differ by less than this part (or by less than a day) say the same."""

Value = str | int | datetime | Mapping[str, str]


class Reading(NamedTuple):
    """What one reading found."""

    cloud: str
    account: str
    of: str
    region: str | None
    read_at: datetime
    tables: tuple[Mapping[str, Value], ...]
    """The commitments as they stand in the file."""
    commitments: tuple[Commitment, ...]

    @property
    def place(self) -> tuple[str, str, str, str]:
        return (self.cloud, self.account, self.of, self.region or "")


def reading(
    cloud: str, account: str, of: str, region: str | None, read_at: datetime, found: Sequence[Mapping[str, Value]]
) -> Reading:
    """A reading of these commitments. TermsError: one of them is none."""
    made = [TableReader("owned.toml", f"commitments[{number}]", table) for number, table in enumerate(found, 1)]
    return Reading(cloud, account, of, region, read_at, tuple(found), commitments(made, frozenset()))


def read_owned(raw: Mapping[str, object], file: str, known: frozenset[str]) -> list[Reading]:
    """From what TOML gives; `known` are currencies that have an exchange rate. TermsError names file and key."""
    try:
        top = TableReader(file, "", raw)
        found = [_read(table, known) for table in tables(file, "read", top.raw("read"))]
        top.done()
    except TermsError as fault:
        raise TermsError(f"{fault} The program writes this file: `rackrate prices owned --write` makes it anew.") from None
    return found


def _read(table: TableReader, known: frozenset[str]) -> Reading:
    table.needed("cloud", "account", "of", "read_at")
    place = f"{table.place}.commitments"
    raw = table.raw("commitments")
    found = Reading(
        table.lower("cloud") or "", table.text("account") or "", table.lower("of", (RESERVATIONS, SAVINGS_PLANS)) or "",
        table.lower("region"), calendar.instant(table.moment("read_at") or 0),
        tuple(one for one in raw if isinstance(one, Mapping)) if isinstance(raw, list) else (),
        commitments(tables(table.file, place, raw), known),
    )  # fmt: skip
    table.done()
    return found


def replaced(old: Sequence[Reading], new: Sequence[Reading]) -> list[Reading]:
    """The new readings, and the old ones of other places."""
    places = {one.place for one in new}
    return sorted([*new, *(one for one in old if one.place not in places)], key=lambda one: one.place)


def written(readings: Sequence[Reading]) -> str:
    """The file's text."""
    lines = [HEAD]
    for one in readings:
        lines.append("[[read]]")
        said = {"cloud": one.cloud, "account": one.account, "of": one.of, "region": one.region, "read_at": one.read_at}
        lines += [f"{key} = {_value(value)}" for key, value in said.items() if value is not None]
        for table in one.tables:
            lines.append("[[read.commitments]]")
            lines += [f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
            for key, rates in table.items():
                if isinstance(rates, Mapping):
                    lines.append(f"[read.commitments.{key}]")
                    lines += [f"{_quoted(name)} = {_quoted(rate)}" for name, rate in rates.items()]
        lines.append("")
    return "\n".join(lines)


def _value(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value) if isinstance(value, int) else _quoted(str(value))


def _quoted(text: str) -> str:
    return re.sub("[\x7f-\x9f]", "?", json.dumps(text, ensure_ascii=False))


def merged(
    own: Sequence[Commitment], readings: Sequence[Reading], file: str
) -> tuple[tuple[Commitment, ...], tuple[str, ...], datetime | None]:
    """All commitments, each once; sentences on contradictions; when the oldest reading that found something was made."""
    found = {one.id: one for one in own}
    notes: list[str] = []
    for part in readings:
        for one in part.commitments:
            known = found.setdefault(one.id, one)
            if known is not one and (what := contradiction(known, one)):
                notes.append(
                    f"commitment {one.id}: {file} says {what[1]}, and {part.cloud} said {what[2]} on "
                    f"{part.read_at:%Y-%m-%d} ({what[0]}); {file} counts: correct it there, or take it out"
                )
    read_at = min((part.read_at for part in readings if part.commitments), default=None)
    return tuple(found.values()), tuple(notes), read_at


def contradiction(own: Commitment, told: Commitment) -> tuple[str, str, str] | None:
    """What two statements on one commitment say differently: (of what, the first, the second). None: nothing."""
    for what in ("kind", "cloud", "region", "zone", "instance_type", "family", "count", "currency"):
        mine, theirs = _plain(own, what), _plain(told, what)
        if mine != theirs:
            return what, str(mine or "none"), str(theirs or "none")
    for what, mine, theirs in (("from", own.starts_ms, told.starts_ms), ("to", own.ends_ms, told.ends_ms)):
        if abs(mine - theirs) >= DAY_MS:
            return what, *(f"{calendar.instant(ms):%Y-%m-%d}" for ms in (mine, theirs))
    if abs(own.cost_per_hour - told.cost_per_hour) > NEAR * told.cost_per_hour:
        return "cost per hour", f"{float(own.cost_per_hour):.4f}", f"{float(told.cost_per_hour):.4f}"
    return None


def _plain(one: Commitment, what: str) -> object:
    value = getattr(one, what)
    return name_key(one.cloud, value) if what == "instance_type" and value else value


def age_note(read_at: datetime | None, now: datetime) -> str | None:
    """A sentence on commitments that were read a while ago."""
    if read_at is None or now - read_at < OLD:
        return None
    return (
        f"the commitments in owned.toml were read {(now - read_at).days} days ago, on {read_at:%Y-%m-%d}: "
        "`rackrate prices owned --write` reads them anew"
    )

"""`[[commitments]]` of terms.toml and owned.toml: what they say, as commitments.

Invariant: a table is read wholly or not at all; what is wrong is one TermsError with file and key.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pricing.ledger_merge import HOUR_MS
from pricing.offers import PURCHASES
from pricing.owned import Commitment
from pricing.terms_reader import TableReader

KINDS = ("reservation", "savings_plan")


def commitments(found: Sequence[TableReader], known: frozenset[str]) -> tuple[Commitment, ...]:
    """Each table as a commitment; `known` are currencies that have an exchange rate. TermsError: also for an id that comes twice."""
    made: dict[str, Commitment] = {}
    for table in found:
        table.needed("id", "kind", "cloud", "from", "to")
        kind = table.lower("kind", KINDS)
        one = _reservation(table, known) if kind == "reservation" else _savings_plan(table, known)
        table.done()
        if one.id in made:
            raise table.fault("id", f"is '{one.id[:40]}' for a second time: each commitment has an id of its own")
        made[one.id] = one
    return tuple(made.values())


def _reservation(table: TableReader, known: frozenset[str]) -> Commitment:
    table.needed("instance_type", "region")
    if not (table.has("hourly") or table.has("upfront")):
        raise table.fault("hourly", "is missing: give `hourly`, `upfront` (per instance, for the whole term) or both")
    starts_ms, ends_ms = _term(table)
    hours = Fraction(ends_ms - starts_ms, HOUR_MS)
    upfront, hourly = table.money("upfront") or Fraction(0), table.money("hourly") or Fraction(0)
    name = table.text("instance_type") or ""
    if any(sign in name for sign in "*?["):
        raise table.fault("instance_type", "is a pattern: a reservation is of one type")
    return Commitment(
        id=table.text("id") or "",
        kind="reservation",
        cloud=table.lower("cloud") or "",
        starts_ms=starts_ms,
        ends_ms=ends_ms,
        cost_per_hour=upfront / hours + hourly,
        upfront=upfront,
        currency=table.currency("currency", known),
        region=table.lower("region"),
        zone=table.lower("zone"),
        instance_type=name,
        count=table.whole("count", 1, least=1),
    )


def _savings_plan(table: TableReader, known: frozenset[str]) -> Commitment:
    if not table.has("per_hour"):
        table.needed("usd_per_hour")
    elif table.has("usd_per_hour"):
        raise table.fault("per_hour", "is given beside `usd_per_hour`: a plan has one commitment")
    else:
        table.needed("currency")
    if not any(table.has(key) for key in ("percent", "rates", "purchase")):
        raise table.fault("percent", "is missing: give `percent`, `rates` or `purchase`, to tell what the plan charges")
    starts_ms, ends_ms = _term(table)
    rates = TableReader(table.file, f"{table.place}.rates", table.raw("rates") or {})
    own = "per_hour" if table.has("per_hour") else "usd_per_hour"
    return Commitment(
        id=table.text("id") or "",
        kind="savings_plan",
        cloud=table.lower("cloud") or "",
        starts_ms=starts_ms,
        ends_ms=ends_ms,
        cost_per_hour=table.money(own, above_zero=True) or Fraction(0),
        upfront=table.money("upfront") or Fraction(0),
        currency=table.currency("currency", known) if own == "per_hour" else "USD",
        region=table.lower("region"),
        family=table.lower("family"),
        percent=table.percent("percent"),
        rates={name: rates.money(name, above_zero=True) or Fraction(0) for name in rates.keys()},
        purchase=table.lower("purchase", PURCHASES),
    )


def _term(table: TableReader) -> tuple[int, int]:
    starts_ms, ends_ms = table.span()
    assert starts_ms is not None and ends_ms is not None  # noqa: S101 - `needed` asked for both
    return starts_ms, ends_ms

"""`prices owned`: the reservations and savings plans that the cloud account owns, and owned.toml, which keeps them.

Invariant: terms.toml is never written. owned.toml is replaced whole, or stays; what could not be read keeps its old entry.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import Failed, WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import live_line

if TYPE_CHECKING:
    from pricing.owned import Commitment
    from pricing.owned_file import Reading
    from pricing.sources.aws_commitments import Found, Owned

TITLES = ("WHAT", "WHERE", "N", "TERM", "UPFRONT", "EACH/H", "ALL/H", "ENDS", "STATE")
ALIGN = ("left", "left", "right", "right", "left", "right", "right", "left", "left")
SHORT = {"payment-pending": "unpaid", "payment-failed": "failed", "pending-return": "returned"}
HOURS_PER_MONTH = 730
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def owned_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Reads from AWS what the account owns (or, with --kept, from the file), shows it, and keeps it with --write."""
    if arguments.kept:
        return _show_kept(context, arguments)
    now = datetime.now(UTC)
    found = _read(context, arguments.region, now)
    rows = [_row(one.commitment, now, one) for one in found.owned]
    if arguments.write:
        _write(context, found)
    if arguments.json:
        skipped = [{"where": one.where, "reason": one.reason} for one in (*found.lost, *found.skipped)]
        print_json({"account": found.account, "read_at": _utc(now), "commitments": rows, "skipped": skipped})
    else:
        _print(rows, f"account {found.account}", arguments.all)
    for one in (*found.lost, *found.skipped):
        say(f"rackrate: {fmt.clean(one.where)}: {fmt.clean(one.reason)}")
    return ExitCode.PARTLY if found.lost else ExitCode.DONE


def _read(context: Context, regions: Sequence[str], now: datetime) -> Found:
    from pricing.sources.aws_commitments import read_commitments
    from pricing.sources.aws_owned import account
    from tui.price_sources import aws_session

    catalog = context.catalog()
    regions = [region.strip().lower() for region in regions]
    types = sorted({shape.instance_type for shape in catalog.instances("aws")})
    with aws_session() as session, live_line() as line:
        line.tell("aws: the account and its regions")
        known = account(session, regions[0] if regions else "us-east-1")
        places = regions or known.regions or sorted({offer.region for offer in catalog.offers("aws")})

        def tell(what: str, done: int, total: int) -> None:
            if what:
                line.tell(f"aws: {what}", f", {done} of {total}", f" ({done} of {total})")

        return read_commitments(session, known, places, now, types, tell)


def _write(context: Context, found: Found) -> None:
    from pricing.owned_file import replaced, written

    path = owned_path(context)
    old = _kept(path)
    text = written(replaced(old, found.readings))
    counts = [one for one in found.owned if one.why_not is None]
    _replace(path, text)
    say(f"wrote {path}: {fmt.counted(len(counts), 'commitment')} of account {found.account}; every command that prices takes them")
    kept = {one.place for one in old} - {one.place for one in found.readings}
    stayed = [one for one in old if one.place in kept and one.commitments]
    for one in stayed:
        say(f"kept as it was read on {one.read_at:%Y-%m-%d}: {_of(one)} ({fmt.counted(len(one.commitments), 'commitment')})")
    _say_contradictions(context)


def _say_contradictions(context: Context) -> None:
    """At once, not when the first report is made."""
    from pricing.errors import TermsError
    from pricing.terms import load

    with contextlib.suppress(TermsError):
        for sentence in load(context.terms_path, must_exist=False).notes:
            say(f"note: {fmt.clean(sentence)}")


def _replace(path: Path, text: str) -> None:
    import os

    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise Failed(f"{path}: cannot be written ({error.strerror}); what was kept is as it was.") from None


def owned_path(context: Context) -> Path:
    """Beside terms.toml."""
    from pricing.terms import OWNED

    return context.terms_path.with_name(OWNED)


def _kept(path: Path) -> list[Reading]:
    """What the file holds. TermsError when it is damaged."""
    if not path.is_file():
        return []
    from pricing.errors import TermsError
    from pricing.owned_file import read_owned
    from pricing.toml_file import read_toml

    try:
        return read_owned(read_toml(path, TermsError), str(path), frozenset())
    except TermsError as fault:
        raise Failed(f"{fault} Or move the file away first.") from None


def _show_kept(context: Context, arguments: argparse.Namespace) -> ExitCode:
    if arguments.write or arguments.region:
        raise WrongUsage("--kept shows what the file holds, and asks nobody: leave out --write and --region.")
    path, now = owned_path(context), datetime.now(UTC)
    readings = _kept(path)
    if not readings:
        raise Failed(f"{path}: nothing is kept yet; `rackrate prices owned --write` reads it from AWS.")
    rows = [
        _row(one, now, None) | {"account": part.account, "read_at": _utc(part.read_at)}
        for part in readings
        for one in part.commitments
    ]
    if arguments.json:
        print_json({"file": str(path), "commitments": rows})
        return ExitCode.DONE
    accounts = ", ".join(sorted({part.account for part in readings}))
    _print(rows, f"account {accounts}", arguments.all)
    oldest, newest = min(part.read_at for part in readings), max(part.read_at for part in readings)
    ages = dict.fromkeys(fmt.age((now - moment).total_seconds()) for moment in (newest, oldest))
    say(f"({path} was read from AWS {' to '.join(ages)} ago)")
    return ExitCode.DONE


def _of(one: Reading) -> str:
    return f"{one.of.replace('_', ' ')} of account {one.account}" + (f" in {one.region}" if one.region else "")


def _row(one: Commitment, now: datetime, told: Owned | None) -> dict[str, Any]:
    """One commitment for --json; the table is made of it."""
    starts, ends = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (one.starts_ms, one.ends_ms))
    state = told.state if told is not None else "retired" if ends <= now else "queued" if starts > now else "active"
    return {
        "id": one.id, "kind": one.kind, "cloud": one.cloud, "state": state,
        "counts": told is None or told.why_not is None, "why_not": told.why_not if told is not None else None,
        "instance_type": one.instance_type, "family": one.family, "region": one.region, "zone": one.zone,
        "count": one.count if one.kind == "reservation" else None,
        "offering_class": told.offering_class if told is not None else None,
        "payment": told.payment if told is not None else _payment(one),
        "from": _utc(starts), "to": _utc(ends), "ends_in_days": (ends - now).days, "term_months": _months(one),
        "usd_per_hour" if one.currency == "USD" else "per_hour": _decimal(one.cost_per_hour),
        "total_per_hour": _decimal(one.whole_cost), "currency": one.currency,
        "upfront": _decimal(one.upfront, 2), "rates": len(one.rates), "rates_from": one.purchase,
    }  # fmt: skip


def _payment(one: Commitment) -> str:
    if not one.upfront:
        return "no_upfront"
    paid = one.upfront * HOUR_MS / (one.ends_ms - one.starts_ms)
    return "all_upfront" if paid >= one.cost_per_hour * Fraction(999, 1000) else "partial_upfront"


def _months(one: Commitment) -> int:
    return round((one.ends_ms - one.starts_ms) / DAY_MS / 365 * 12)


def _decimal(amount: Fraction, places: int = 6) -> str:
    from pricing.money import to_decimal

    return f"{to_decimal(amount, places):f}"


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _print(rows: Sequence[dict[str, Any]], whose: str, everything: bool) -> None:
    ended = [row for row in rows if row["state"] == "retired"]
    shown = list(rows) if everything else [row for row in rows if row["state"] != "retired"]
    if shown:
        shown.sort(key=lambda row: (row["to"], row["id"]))
        print_table(TITLES, [_cells(row) for row in shown], ALIGN)
    else:
        print(f"{whose} owns no reservation and no savings plan of EC2 now")
    for row in shown:
        if row["why_not"]:
            say(f"{fmt.clean(row['id'])}: {row['why_not']}")
        elif row["rates_from"]:
            say(f"{fmt.clean(row['id'])}: its own rates are not known; the catalog's of {row['rates_from']} count")
    _say_sum([row for row in shown if row["state"] == "active"], whose)
    if ended and not everything:
        say(f"({len(ended)} that ended within the last 400 days count in reports of their time: --all lists them)")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    what = row["instance_type"] or f"{row['family'] or 'compute'} plan"
    term = f"{row['term_months'] // 12}y" if row["term_months"] % 12 == 0 and row["term_months"] else f"{row['term_months']}mo"
    each = row.get("usd_per_hour") or row.get("per_hour")
    return (
        fmt.clean(what), fmt.clean(row["zone"] or row["region"] or "any"), str(row["count"] or 1), term,
        row["payment"].removesuffix("_upfront"), _money(each, row["currency"]), _money(row["total_per_hour"], row["currency"]),
        _ends(row), SHORT.get(row["state"], row["state"]),
    )  # fmt: skip


def _ends(row: dict[str, Any]) -> str:
    days, starts = row["ends_in_days"], datetime.fromisoformat(row["from"])
    if row["state"] == "queued":
        return f"from {starts:%Y-%m-%d}"
    if days < 0:
        return f"{row['to'][:10]}"
    return f"in {days} d" if days else "today"


def _money(amount: str, currency: str, places: int = 4) -> str:
    from pricing.money import Money

    return Money.parse(amount, currency).text(places)


def _say_sum(rows: Sequence[dict[str, Any]], whose: str) -> None:
    """What is paid for the active ones, used or not."""
    from decimal import Decimal

    for currency in dict.fromkeys(row["currency"] for row in rows):
        mine = [row for row in rows if row["currency"] == currency]
        total = sum((Decimal(row["total_per_hour"]) for row in mine), Decimal(0))
        month = _money(str(total * HOURS_PER_MONTH), currency, 2)
        say(f"({whose}: {len(mine)} active cost {_money(str(total), currency)} an hour, {month} a month, used or not)")
    soon = [row for row in rows if timedelta(days=row["ends_in_days"]) < timedelta(days=30)]
    if soon:
        ends = "ends" if len(soon) == 1 else "end"
        say(f"({len(soon)} of them {ends} within 30 days: after that the nodes they cover cost the on-demand price)")

"""`plan --recipe`: what training a recipe takes and costs on each instance type, measured, scaled or by peak figures.

Invariant: no row without its mark; what was left out is counted with why.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tui import calibrations
from tui import format as fmt
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.job_rows import span
from tui.output import print_json, print_table, say
from tui.plan_recipe import MILLION, Asked, Found, Row, Wish, asked, prices_of, rows
from tui.quote import cost_of
from tui.records import money

if TYPE_CHECKING:
    from pricing.calibration import Calibration

TITLES = ("TYPE", "WHERE", "GPUS", "SPEED", "TIME", "FROM-TO", "RUN", "FROM-TO", "EPOCH", "1M")
ALIGN = ("left", "left", "left", "left", "right", "right", "right", "right", "right", "right")
DROPPED = (5, 8, 9, 1, 7)
"""Columns that a narrow terminal does without, the first of them first."""
WIDE_CELLS = 110
LEGEND = (
    "FROM-TO: the spread of the measurement, and for `scaled` from the lower to the higher ratio of the GPUs' arithmetic and"
    " memory; peak figures have no range, and small models reach far less of them. Start-up, staging and checkpoints are not"
    " counted."
)
MOST_OWN = 5
ONLY_RECIPE = ("set", "steps", "epochs", "samples", "epoch_samples", "deadline", "gpus", "buy", "cloud", "gpu")


def plan_recipe(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prices a recipe on everything that is known."""
    from tui.terms import pricing_of

    ask, wish = _asked(arguments), _wish(arguments)
    kept = calibrations.load(context.paths.data_dir)
    pricing = pricing_of(context, arguments)
    found = rows(ask, wish, pricing.catalog, prices_of(pricing, datetime.now(UTC)), kept)
    if arguments.json:
        print_json(_record(ask, found, arguments))
    else:
        _print(ask, found, kept, arguments)
    if pricing.catalog.problem:
        say(f"rackrate: {pricing.catalog.problem}")
    return _verdict(ask, wish, found)


def check(arguments: argparse.Namespace) -> None:
    """Options of a recipe without one. Raises `WrongUsage`."""
    if arguments.recipe is not None and arguments.workload is None:
        return
    for key in ONLY_RECIPE:
        if getattr(arguments, key) not in (None, []):
            raise WrongUsage(f"--{key.replace('_', '-')} goes with --recipe alone; a workload's file says it itself.")


def _asked(arguments: argparse.Namespace) -> Asked:
    from tui.recipes import pairs

    told = [name for name in ("steps", "epochs", "samples") if getattr(arguments, name) is not None]
    if len(told) > 1:
        raise WrongUsage(f"--{told[0]} and --{told[1]} cannot be asked for together: each says how much is trained.")
    numbers = {name: _number(name, getattr(arguments, name)) for name in ("epochs", "samples", "epoch_samples")}
    steps = _number("steps", arguments.steps)
    if steps is not None and steps.denominator != 1:
        raise WrongUsage(f"--steps {arguments.steps}: it has to be a whole number.")
    return asked(arguments.recipe, pairs(arguments.set, "--set"), "--set", steps=None if steps is None else int(steps), **numbers)


def _number(name: str, text: str | None) -> Fraction | None:
    """`90`, `2.5`, `10k`, `3M`, `1B`."""
    if text is None:
        return None
    plain, factor = text.strip().replace(",", ""), 1
    if plain[-1:] in ("k", "M", "B"):
        plain, factor = plain[:-1], {"k": 1000, "M": MILLION, "B": 1000 * MILLION}[plain[-1]]
    try:
        found = Fraction(plain) * factor if "/" not in plain else Fraction(0)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not 0 < found <= 10**18:
        raise WrongUsage(f"--{name.replace('_', '-')} {text}: it has to be a number above 0, such as 90, 10k or 3M.")
    return found


def _wish(arguments: argparse.Namespace) -> Wish:
    from pricing.catalog import CLOUDS
    from pricing.offers import PURCHASES
    from tui.amounts import duration

    for key, allowed in (("buy", PURCHASES), ("cloud", CLOUDS)):
        for word in getattr(arguments, key):
            if word.lower() not in allowed:
                raise WrongUsage(f"--{key} {word}: it is one of {', '.join(allowed)}.")
    try:
        deadline = duration(arguments.deadline) if arguments.deadline is not None else None
    except ValueError as error:
        raise WrongUsage(f"--deadline: {arguments.deadline!r} {error}.") from None
    return Wish(
        purchases=tuple(map(str.lower, arguments.buy)) or ("on_demand",), clouds=tuple(map(str.lower, arguments.cloud)),
        gpu_models=tuple(map(str.lower, arguments.gpu)), gpus=arguments.gpus, deadline_seconds=deadline,
    )  # fmt: skip


def _print(ask: Asked, found: Found, kept: Sequence[Calibration], arguments: argparse.Namespace) -> None:
    from tui.plan_text import wrapped

    width = shutil.get_terminal_size((WIDE_CELLS, 24)).columns if sys.stdout.isatty() else WIDE_CELLS
    shown = _shown(found, arguments)
    print(_head(ask))
    if not shown:
        return
    print()
    table = [cells(ask, row) for row in shown]
    columns = _columns(table, width if sys.stdout.isatty() else None)
    print_table([TITLES[at] for at in columns], [[line[at] for at in columns] for line in table], [ALIGN[at] for at in columns])
    print()
    for line in wrapped([f"- {note}" for note in _notes(ask, found, shown, kept)], width):
        print(line)


def _shown(found: Found, arguments: argparse.Namespace) -> list[Row]:
    """The cheapest, and behind them the user's own machines and types that were measured: what rests on more than peak figures."""
    if arguments.all:
        return found.rows
    top, rest = found.rows[: arguments.top], found.rows[arguments.top :]
    own = [row for row in rest if row.node is not None or row.estimate.how == "measured"]
    return [*top, *own[:MOST_OWN]]


def _columns(table: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """Those that fit."""
    widths = [max(map(len, column)) + 2 for column in zip(TITLES, *table, strict=True)]
    kept = list(range(len(TITLES)))
    for at in DROPPED:
        if room is not None and sum(widths[one] for one in kept) - 2 > room:
            kept.remove(at)
    return kept


def _head(ask: Asked) -> str:
    epochs = f", {float(ask.samples / ask.epoch_samples):,.3g} epochs" if ask.epoch_samples else ""
    tokens = f", {float(ask.samples * ask.tokens_per_sample) / MILLION:,.4g} million tokens" if ask.tokens_per_sample else ""
    return f"{ask.recipe}: {float(ask.samples):,.0f} samples in batches of {ask.settings['batch_size']}{epochs}{tokens}"


def cells(ask: Asked, row: Row) -> list[str]:
    """Of the table."""
    where = " ".join(filter(None, (row.cloud, row.region))) or ("your own" if row.node else fmt.UNKNOWN)
    usd = [cost_of(row.usd_per_hour, end) for end in (row.shortest, row.longest)]
    gpus = f"{row.gpus} {row.gpu_model}" if row.gpus else row.gpu_model
    return [
        fmt.clean(row.node or row.instance_type or fmt.UNKNOWN), fmt.clean(where), gpus, row.estimate.how, took(row.seconds),
        _range(*(None if end is None else took(end) for end in (row.shortest, row.longest))), amount(row.usd),
        _range(*(None if one is None else amount(one) for one in usd)), amount(row.per_samples(ask.epoch_samples)), amount(_million(ask, row)),
    ]  # fmt: skip


def _range(low: str | None, high: str | None) -> str:
    return fmt.UNKNOWN if low is None and high is None else f"{low or '?'}-{high or '?'}"


def amount(value: Fraction | None) -> str:
    """Cents, and below a dollar four places."""
    if value is not None and 0 < value < Fraction(1, 10_000):
        return "<$0.0001"
    return fmt.usd(value, 2 if value is None or value >= 1 else 4)


def took(seconds: Fraction) -> str:
    """Tenths below ten seconds."""
    return f"{float(seconds):.2g}s" if seconds < 10 else span(float(seconds))


def _million(ask: Asked, row: Row) -> Fraction | None:
    """Dollars for a million tokens of a language model, of samples else."""
    return row.per_samples(Fraction(MILLION, ask.tokens_per_sample or 1))


def _notes(ask: Asked, found: Found, shown: Sequence[Row], kept: Sequence[Calibration]) -> list[str]:
    what = "tokens" if ask.tokens_per_sample else "samples"
    notes = [f"1M: of a million {what}. {LEGEND}", *_sources(shown)]
    if not kept:
        notes.append("nothing was measured yet: `rackrate calibrate NODE` measures a node, and its speed then prices all that can be scaled from it")
    if len(found.rows) > len(shown):
        notes.append(f"{fmt.counted(len(found.rows) - len(shown), 'more row')}: --top or --all shows all")
    if found.left_out:
        most = "; ".join(f"{count} x {why}" for why, count in found.left_out.most_common(3))
        notes.append(fmt.clean(f"left out: {sum(found.left_out.values())} types ({most})"))
    return notes


def _sources(shown: Sequence[Row]) -> Iterator[str]:
    """What each row rests on: the rows of one source together."""
    for how in ("measured", "scaled", "peak"):
        of_it = [row for row in shown if row.estimate.how == how]
        for source in dict.fromkeys(row.estimate.source for row in of_it):
            by: dict[str, list[str]] = {}
            for row in of_it:
                if row.estimate.source == source:
                    by.setdefault(row.estimate.by, []).append(row.node or row.instance_type or "")
            told = "; ".join(_names(names) + (f" by {words}" if words else "") for words, names in by.items())
            yield fmt.clean(f"{how} {source}: {told}" if how == "scaled" else f"{how}: {told}: {source}")


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _verdict(ask: Asked, wish: Wish, found: Found) -> ExitCode:
    if found.rows:
        return ExitCode.DONE
    if found.soonest is not None and wish.deadline_seconds is not None:
        one = found.soonest
        say(
            f"rackrate: nothing trains it within {took(Fraction(wish.deadline_seconds))}: the least time is {took(one.seconds)}"
            f" ({one.node or one.instance_type}, {one.estimate.how})."
        )
    else:
        why = found.left_out.most_common(1)
        reason = f" (most often: {fmt.clean(why[0][0])})" if why else ""
        say(f"rackrate: nothing tells how fast the recipe {ask.recipe} would be anywhere{reason}; `rackrate calibrate NODE` measures it.")
    return ExitCode.FAILED


def _record(ask: Asked, found: Found, arguments: argparse.Namespace) -> dict[str, Any]:
    shown = _shown(found, arguments)
    return {
        "recipe": ask.recipe, "settings": dict(ask.settings), "samples": float(ask.samples),
        "epoch_samples": None if ask.epoch_samples is None else float(ask.epoch_samples), "tokens_per_sample": ask.tokens_per_sample,
        "rows": [_row(ask, row) for row in shown], "count": len(found.rows), "late": found.late, "left_out": dict(found.left_out.most_common()),
    }  # fmt: skip


def _row(ask: Asked, row: Row) -> dict[str, Any]:
    one = row.estimate
    low, high = (None if end is None else cost_of(row.usd_per_hour, end) for end in (row.shortest, row.longest))
    return {
        "cloud": row.cloud, "region": row.region, "instance_type": row.instance_type, "node": row.node, "gpu_model": row.gpu_model,
        "gpus": row.gpus, "how": one.how, "precision": one.precision, "samples_per_second": one.samples_per_second,
        "samples_per_second_low": one.low, "samples_per_second_high": one.high, "seconds": _seconds(row.seconds),
        "seconds_low": _seconds(row.shortest), "seconds_high": _seconds(row.longest), "usd": money(row.usd), "usd_low": money(low),
        "usd_high": money(high), "usd_per_epoch": money(row.per_samples(ask.epoch_samples)),
        "usd_per_million_samples": money(row.per_samples(Fraction(MILLION))),
        "usd_per_million_tokens": money(_million(ask, row)) if ask.tokens_per_sample else None,
        "usd_per_hour": money(row.usd_per_hour), "purchase": row.purchase, "price_as_of": row.as_of.isoformat() if row.as_of else None,
        "price_source": row.source, "why": one.why, "calibration": one.calibration.id if one.calibration else None,
    }  # fmt: skip


def _seconds(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 3)

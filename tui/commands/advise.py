"""`advise`: what to buy, move, stop or shrink, ranked by what it saves, with the evidence beside each.

Invariant: it does nothing by itself. What it printed can be computed again from the same files; what is partial exits with 4.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tui import format as fmt
from tui.advice_case import DAYS, case_of, evidence
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, say
from tui.terms import pricing_of

if TYPE_CHECKING:
    from pricing.advice import Advice, Case
    from pricing.demand import Demand
    from pricing.fleet_use import FleetUse
    from pricing.rate_card import RateCard
    from pricing.rates import Pricing

LISTED = 20
OLD = timedelta(days=30)


class _Asked(NamedTuple):
    kinds: tuple[str, ...]
    show: int | None
    top: int
    width: int


def advise(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints the ranked advice, one evidence card (`show N`), a comparison (`--what-if`) or the calls (`--apply`)."""
    asked = _asked(arguments)
    now = datetime.now(UTC)
    pricing = pricing_of(context, arguments)
    case, code, notes = _case(context, arguments, pricing, now)
    hidden = _dismissed(context, arguments)
    with _busy("looking for what saves money ..."):
        advice = _advice(case, asked, notes, hidden)
    if asked.show is not None and not 1 <= asked.show <= len(advice.actions):
        raise WrongUsage(f"There is no advice {asked.show}: there are {len(advice.actions)} (`rackrate advise` lists them).")
    _tell(context, arguments, asked, case, advice, pricing, now)
    if not arguments.json:
        for sentence in advice.notes:
            say(f"note: {fmt.clean(sentence)}")
    return ExitCode.PARTLY if code is ExitCode.DONE and advice.partial else code


def _tell(
    context: Context, arguments: argparse.Namespace, asked: _Asked, case: Case, advice: Advice, pricing: Pricing, now: datetime
) -> None:
    from tui import advice_text

    if arguments.what_if:
        return _what_if(arguments, asked, case, advice, _dismissed(context, arguments))
    if arguments.judge_on:
        return _judge(context, arguments, asked, case, advice, pricing)
    if arguments.apply:
        from tui.commands import advise_apply

        return advise_apply.apply(arguments, case, advice, asked.show, asked.width)
    if arguments.json:
        chosen = advice.actions[asked.show - 1 : asked.show] if asked.show else advice.actions[: arguments.top]
        print_json(advice_text.record(advice, case, chosen))
    elif asked.show is not None:
        _print(advice_text.card(advice, asked.show - 1, asked.width))
    else:
        _print(advice_text.listing(advice, case, asked.top, asked.width))
    return None


def _asked(arguments: argparse.Namespace) -> _Asked:
    from pricing.advice import KINDS

    words, show = arguments.words, arguments.why
    if words:
        if words[0] != "show" or len(words) != 2 or not words[1].isdecimal() or show is not None:
            raise WrongUsage(
                f"`rackrate advise {fmt.clean(' '.join(words))}`: write `rackrate advise show N`, or no word at all."
            )
        show = int(words[1])
    for name in ("top", "days", "idle_days"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise WrongUsage(f"--{name.replace('_', '-')} {value}: it must be at least 1.")
    if not 0 < arguments.idle_below <= 100:
        raise WrongUsage(f"--idle-below {arguments.idle_below:g}: it is a percentage above 0, at most 100.")
    if arguments.days is not None and (arguments.start or arguments.end):
        raise WrongUsage("Give --days, or --from and --to, not both.")
    if sum(bool(one) for one in (arguments.what_if, arguments.judge_on, arguments.apply)) > 1:
        raise WrongUsage("Give one of --what-if, --judge-on and --apply.")
    if arguments.add_catalog and not arguments.rates:
        raise WrongUsage("--add-catalog adds to --rates FILE; without it the catalog's prices are used anyway.")
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    return _Asked(tuple(arguments.kind) or KINDS, show, arguments.top or LISTED, min(width, 120))


def _case(context: Context, arguments: argparse.Namespace, pricing: Pricing, now: datetime) -> tuple[Case, ExitCode, list[str]]:
    """The evidence, the prices and the terms; what could not be reached."""
    from pricing.demand import with_clouds
    from tui.commands import advise_options

    demand, fleet, code, notes = _evidence(context, arguments, now)
    if not demand.known_hours and (arguments.usage or arguments.start or arguments.end):
        where = fmt.clean(arguments.usage or "the ledger")
        raise WrongUsage(f"{where} tells of no hour in that range: there is nothing to advise on. Check --from and --to.")
    demand = with_clouds(demand, pricing.catalog)
    told, more = advise_options.options(arguments, pricing.catalog)
    if fleet is not None and not arguments.no_sync:
        from tui.advise_jobs import told_by_nodes

        told["jobs"] = told_by_nodes(context, demand, fleet)
    if arguments.usage and now - demand.end > OLD:
        notes.append(f"The usage ends on {demand.end:%Y-%m-%d}: the advice is as of then, at the prices of now.")
    case, left_out = case_of(
        demand, fleet, pricing, now, told, _card(context, arguments, pricing, now),
        advise_options.needs(arguments, pricing.catalog), arguments.deadline,
    )  # fmt: skip
    return case, code, [*notes, *more, *left_out]


def _evidence(
    context: Context, arguments: argparse.Namespace, now: datetime
) -> tuple[Demand, FleetUse | None, ExitCode, list[str]]:
    from pricing.calendar import parse_range

    start, end = datetime(1970, 1, 2, tzinfo=UTC), now
    if arguments.start or arguments.end:
        start, end = parse_range(arguments.start or "1970-01-02", arguments.end, tz="UTC", now=max(now, start))
    if arguments.usage:
        demand = _used(Path(arguments.usage), arguments, start, end)
        return demand, None, ExitCode.DONE, []
    if not (arguments.start or arguments.end):
        start = end - timedelta(days=arguments.days or DAYS)
    return _ledger(context, arguments, start, end)


def _used(path: Path, arguments: argparse.Namespace, start: datetime, end: datetime) -> Demand:
    from pricing.demand import read_usage

    with _busy("reading what ran ..."):
        demand = read_usage(path)
    if arguments.start or arguments.end:
        demand = demand.between(start, end if arguments.end else demand.end)
    return demand.last(arguments.days) if arguments.days else demand


def _ledger(
    context: Context, arguments: argparse.Namespace, start: datetime, end: datetime
) -> tuple[Demand, FleetUse | None, ExitCode, list[str]]:
    from tui.commands.money import sync_nodes, sync_verdict

    with context.open_ledger() as ledger:
        notes: list[str] = []
        code = ExitCode.DONE
        if not arguments.no_sync:
            results = sync_nodes(context, ledger)
            code = sync_verdict(results)
            lost = [result.node for result in results if result.error is not None]
            notes += [f"node {node} could not be reached: its newest hours are missing." for node in lost]
        with _busy("reading what ran ..."):
            return *evidence(ledger, start, end, arguments.idle_days), code, notes


def _card(context: Context, arguments: argparse.Namespace, pricing: Pricing, now: datetime) -> RateCard:
    from pricing.rate_card import CatalogCard, LayeredCard, read_rates

    if not arguments.rates:
        return CatalogCard(pricing.catalog, pricing.terms, now)
    card = read_rates(Path(arguments.rates), pricing.catalog)
    return LayeredCard(card, CatalogCard(pricing.catalog, pricing.terms, now)) if arguments.add_catalog else card


def _advice(case: Case, asked: _Asked, notes: Iterable[str] = (), hidden: Collection[str] = ()) -> Advice:
    from pricing.advice import advise as advised
    from tui.dismissed import identity

    return advised(case, asked.kinds, more_notes=tuple(notes), wanted=lambda action: identity(action) not in hidden)


def _dismissed(context: Context, arguments: argparse.Namespace) -> Collection[str]:
    """What was dismissed in the app, where it is to be left out."""
    from tui.dismissed import load

    return load(context.paths.data_dir).keys() if arguments.hide_dismissed else ()


@contextlib.contextmanager
def _busy(step: str) -> Iterator[None]:
    """Says on a terminal what takes its time; nothing elsewhere."""
    from tui.progress import live_line

    with live_line() as line:
        if sys.stderr.isatty():
            line.tell(step)
        yield


def _what_if(
    arguments: argparse.Namespace, asked: _Asked, case: Case, advice: Advice, hidden: Collection[str]
) -> None:  # fmt: skip
    from pricing.what_if import load, side_by_side
    from tui import advice_compared, advice_text

    changes = load(Path(arguments.what_if))
    other_case = changes.applied(case)
    other = _advice(other_case, asked, hidden=hidden)
    pairs = side_by_side(advice, other)
    if arguments.json:
        compared = advice_compared.comparison_record(pairs, changes.told())
        told = {**advice_text.record(other, other_case), **compared, "unmatched": changes.unmatched(case)}
        print_json({**advice_text.record(advice, case), "what_if": told})
        return
    _print(advice_compared.comparison(advice, other, pairs, changes.told(), asked.top, asked.width))
    for sentence in (*changes.unmatched(case), *other.notes):
        if sentence not in advice.notes:
            say(f"note, what if: {fmt.clean(sentence)}")


def _judge(
    context: Context, arguments: argparse.Namespace, asked: _Asked, case: Case, advice: Advice, pricing: Pricing
) -> None:
    from pricing.advice_judge import after, judge
    from pricing.demand import read_usage, with_clouds
    from tui import advice_compared, advice_text

    later = after(case, with_clouds(read_usage(Path(arguments.judge_on)), pricing.catalog))
    if not later.known_hours:
        raise WrongUsage(
            f"{fmt.clean(arguments.judge_on)} tells of no hour after {case.demand.end:%Y-%m-%dT%H:%MZ}, where the evidence ends: "
            "advice is judged on what it did not see (end the evidence earlier with --to)."
        )
    found = judge(advice, case, later)
    if arguments.json:
        told = None if found is None else advice_compared.judgement_record(found)
        print_json({**advice_text.record(advice, case), "judged": told})
        return
    _print(advice_text.listing(advice, case, asked.top, asked.width))
    print()
    if found is None:
        print("No purchase was advised: there is nothing to judge.")
        return
    _print(advice_compared.judgement(found, asked.width))


def _print(lines: Iterable[str]) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")

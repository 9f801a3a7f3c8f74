"""`prices`, `prices refresh`, `prices history`: what instances cost, and since when.

Invariant: each price is shown with its date and source; one that was refused is told with the reason, and what it would
have replaced stays.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import Failed, WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import LiveLine, live_line

if TYPE_CHECKING:
    from pricing.catalog import Offer
    from pricing.pricebook import PriceBook
    from pricing.refresh import Summary

SHOWN_OFFERS = 50
OLD_DAYS = 180
SHOWN_FAULTS = 20
"""How many sentences about single prices are told; `--json` has all."""


def prices(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Lists offers of the catalog, cheapest per GPU-hour first."""
    from tui.offers import offer_record, select_offers
    from tui.query_rows import OFFER_WORDS

    wanted = context.query(arguments.query, OFFER_WORDS)
    catalog, today = context.catalog(), datetime.now(UTC).date()
    offers = select_offers(wanted, catalog)
    if arguments.json:
        print_json([offer_record(offer, today) for offer in offers])
        return ExitCode.DONE
    if not offers:
        say("no offer in the catalog matches")
        return ExitCode.DONE
    shown = offers if arguments.all else offers[:SHOWN_OFFERS]
    _print_offers(shown)
    if len(offers) > len(shown):
        say(f"({len(offers) - len(shown)} more: narrow the query, or use --all)")
    _say_old(offers, today)
    _say_origin(context, {offer.cloud for offer in offers})
    return ExitCode.DONE


def _say_old(offers: Sequence[Offer], today: date) -> None:
    """What was written down once grows old without a word."""
    from tui.offers import age_days

    old = [offer for offer in offers if offer.price is not None and age_days(offer, today) > OLD_DAYS]
    if old:
        clouds = ", ".join(sorted({offer.cloud for offer in old}))
        say(f"({len(old)} of {len(offers)} were last confirmed more than {OLD_DAYS} days ago ({clouds}): take them as a hint)")


def _print_offers(offers: Sequence[Offer]) -> None:
    from tui.offers import offer_cells

    titles = ("CLOUD", "WHERE", "TYPE", "GPUS", "BUY", "PRICE/H", "PER GPU", "AS OF", "AGE", "SOURCE")
    align = ("left", "left", "left", "left", "left", "right", "right", "left", "right", "left")
    today = datetime.now(UTC).date()
    print_table(titles, [offer_cells(offer, today) for offer in offers], align)


def _say_origin(context: Context, clouds: set[str]) -> None:
    """When the shown clouds were last refreshed, and what went wrong then."""
    if problem := context.catalog().problem:
        say(f"rackrate: {problem}")
    if not context.prices_path.is_file():
        say("(these prices ship with the program: `rackrate prices refresh` brings newer ones)")
        return
    from pricing.errors import PriceBookError

    with contextlib.suppress(PriceBookError), context.open_prices() as book:
        for done in book.refreshed():
            if done.cloud in clouds:
                ago = fmt.age((datetime.now(UTC) - done.at).total_seconds())
                fault = f": {fmt.clean(done.fault)}" if done.fault else ""
                say(f"({done.cloud} was refreshed {ago} ago: {done.outcome}{fault})")
        if held := [one for one in book.held() if one.key.cloud in clouds]:
            say(f"({len(held)} changed prices are held back until they are seen again, or accepted: refresh --accept)")


def refresh_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Brings prices of the sources into the price book."""
    code = _refresh_once(context, arguments)
    while arguments.every is not None:
        say(f"refreshing again in {arguments.every:g} h")
        try:
            time.sleep(arguments.every * 3600)
        except KeyboardInterrupt:
            break
        code = _refresh_once(context, arguments)
    return code


def _refresh_once(context: Context, arguments: argparse.Namespace) -> ExitCode:
    from pricing.catalog import PURCHASES, Catalog
    from pricing.refresh import refresh
    from tui import price_sources

    clouds = [cloud.strip().lower() for cloud in arguments.cloud] or list(price_sources.CLOUDS)
    purchases = [option.strip().lower() for option in arguments.buy]
    if unknown := [option for option in purchases if option not in PURCHASES]:
        raise WrongUsage(f"--buy {fmt.clean(unknown[0])}: there are {', '.join(PURCHASES)}.")
    if arguments.as_of is not None:
        clouds, purchases = _of_dated(arguments, clouds, purchases)
    now, catalog = datetime.now(UTC), Catalog.embedded()
    with contextlib.ExitStack() as stack:
        book = stack.enter_context(context.open_prices())
        line = stack.enter_context(live_line())
        if arguments.as_of is not None:
            sources = [price_sources.dated_lists(arguments.as_of, stack, partial(_tell_lines, line))]
        else:
            sources = price_sources.sources(list(dict.fromkeys(clouds)), catalog, now, stack)
        work = []
        for source in sources:
            wanted = price_sources.wanted(source.cloud, catalog, arguments.region, arguments.type, purchases)
            if wanted is not None:
                work.append((source, wanted._replace(as_of=arguments.as_of)))
        if not work:
            raise WrongUsage(f"none of {', '.join(clouds)} has an instance type {', '.join(map(fmt.clean, arguments.type))}.")
        summary = refresh(book, work, now, partial(_tell, line), accept=arguments.accept)
    print_json(_summary_record(summary)) if arguments.json else _print_summary(summary)
    return _verdict(summary, named=bool(arguments.cloud))


def _of_dated(arguments: argparse.Namespace, clouds: list[str], purchases: list[str]) -> tuple[list[str], list[str]]:
    """What dated lists there are: of AWS, a region at a time, with on-demand and reserved prices."""
    from pricing.sources.aws_price_list import PURCHASES

    if arguments.cloud and set(clouds) != {"aws"}:
        raise WrongUsage("--as-of: only AWS publishes price lists of days gone by; leave out --cloud, or name aws.")
    if not arguments.region:
        raise WrongUsage("--as-of: name the regions (--region us-east-1); each list is a file of up to some hundred MB.")
    if arguments.every is not None:
        raise WrongUsage("--as-of and --every: a list of a day gone by does not change.")
    if foreign := [option for option in purchases if option not in PURCHASES]:
        raise WrongUsage(f"--as-of: the lists hold no {fmt.clean(foreign[0])} prices, only {', '.join(sorted(PURCHASES))}.")
    return ["aws"], purchases or sorted(PURCHASES)


def _tell_lines(line: LiveLine, url: str, count: int) -> None:
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2] or "price list"
    line.tell(f"aws: reading {name}", f", {count:,} lines")


def _tell(line: LiveLine, cloud: str, progress: Any, result: Any) -> None:
    total = f" of {progress.total}" if progress.total is not None else ""
    counts = f"{fmt.counted(progress.rows, 'price')}, {result.new + result.changed} new, {len(result.refused)} refused"
    line.tell(f"{cloud}: {progress.step}", f", {progress.done}{total}; {counts}", f" ({progress.done}{total})")


def _print_summary(summary: Summary) -> None:
    titles = ("CLOUD", "NEW", "CHANGED", "UNCHANGED", "REFUSED", "SKIPPED", "OUTCOME")
    rows = []
    for cloud in summary.clouds:
        counts = (cloud.result.new, cloud.result.changed, cloud.result.unchanged, len(cloud.result.refused), len(cloud.skipped))
        outcome = f"{cloud.outcome}{' (went on from an earlier one)' if cloud.resumed else ''}"
        rows.append((cloud.cloud, *map(str, counts), outcome))
    print_table(titles, rows, ("left", *["right"] * 5, "left"))
    for cloud in summary.clouds:
        if cloud.fault:
            say(f"rackrate: {cloud.cloud}: {fmt.clean(cloud.fault)}")
        sentences = [sentence for _, sentence in (*cloud.result.refused, *cloud.result.warned)]
        say_some([*sentences, *(f"{one.where}: {one.reason}" for one in cloud.skipped)])
    if any(cloud.fault for cloud in summary.clouds):
        say("(what could not be read costs what it did before: by the newest price that is kept, else by those that ship with the program)")


def say_some(sentences: Sequence[str]) -> None:
    for sentence in sentences[:SHOWN_FAULTS]:
        say(f"  {fmt.clean(sentence)}")
    if len(sentences) > SHOWN_FAULTS:
        say(f"  ({len(sentences) - SHOWN_FAULTS} more: use --json)")


def _summary_record(summary: Summary) -> dict[str, Any]:
    return {
        "clouds": [
            {
                "cloud": cloud.cloud,
                "outcome": cloud.outcome,
                "error": cloud.fault,
                "resumed": cloud.resumed,
                "new": cloud.result.new,
                "changed": cloud.result.changed,
                "unchanged": cloud.result.unchanged,
                "held": cloud.result.held,
                "refused": [_refusal(price, sentence) for price, sentence in cloud.result.refused],
                "warned": [_refusal(price, sentence) for price, sentence in cloud.result.warned],
                "skipped": [{"where": one.where, "reason": one.reason} for one in cloud.skipped],
            }
            for cloud in summary.clouds
        ]
    }


def _refusal(price: Any, sentence: str) -> dict[str, Any]:
    return {
        "region": price.region,
        "zone": price.zone,
        "instance_type": price.instance_type,
        "purchase": price.purchase,
        "price": None if price.amount is None else str(price.amount),
        "currency": price.currency,
        "reason": sentence,
    }


def _verdict(summary: Summary, *, named: bool) -> ExitCode:
    """A cloud without a key fails only a refresh that named it."""
    if not named and not summary.failed:
        summary = summary._replace(clouds=tuple(cloud for cloud in summary.clouds if cloud.outcome != "no key"))
    if summary.failed:
        return ExitCode.FAILED
    return ExitCode.DONE if summary.whole else ExitCode.PARTLY


def history_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Draws the price of one instance type over time."""
    from tui.price_history import charts, find_series, series_record

    end = datetime.now(UTC)
    start = end - timedelta(days=arguments.days)
    zone = context.timezone(arguments.tz)
    with contextlib.ExitStack() as stack:
        book: PriceBook | None = stack.enter_context(context.open_prices()) if context.prices_path.is_file() else None
        series = find_series(book, context.catalog(), arguments, start, end)
    if arguments.json:
        print_json({"from": start.isoformat(), "to": end.isoformat(), "series": [series_record(one) for one in series]})
        return ExitCode.DONE
    if not series:
        where = f" in {arguments.zone or arguments.region}" if arguments.zone or arguments.region else ""
        raise Failed(
            f"No price of {fmt.clean(arguments.type)}{fmt.clean(where)} is known; `rackrate prices refresh` brings prices."
        )
    for line in charts(series, start, end, zone):
        print(line)
    return ExitCode.DONE

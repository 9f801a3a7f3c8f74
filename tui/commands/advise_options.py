"""What the user tells `advise` that no evidence can: what bears interruptions, dated needs, spot history, terms, payments.

Invariant: what is not told is left out, never assumed here; the advice says what it assumes instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.errors import WrongUsage

if TYPE_CHECKING:
    from pricing.advice import Need
    from pricing.catalog import Catalog
    from pricing.instances import InstanceType
    from pricing.market_read import Reading

LARGEST = {
    "interruptible": 100.0,
    "changeover": 1000.0,
    "checkpoint": 1000.0,
    "deadline": 1e6,
    "stored_gb": 1e9,
    "transfer_gb": 1e9,
}
ZERO_ALLOWED = ("interruptible", "stored_gb", "transfer_gb")


def options(arguments: argparse.Namespace, catalog: Catalog) -> tuple[dict[str, Any], list[str]]:
    """`Case.options`, and notes on what was read."""
    for name, largest in LARGEST.items():
        value = getattr(arguments, name)
        if value is not None and not (0 <= value <= largest and (value or name in ZERO_ALLOWED)):
            least = "0" if name in ZERO_ALLOWED else "above 0"
            raise WrongUsage(f"--{name.replace('_', '-')} {value:g}: it must be {least} to {largest:g}.")
    told: dict[str, Any] = {"idle_days": arguments.idle_days, "idle_below": arguments.idle_below / 100}
    shares = {"interruptible": ("interruptible", 0.01)}
    plain = {
        "changeover": "changeover_hours", "checkpoint": "checkpoint_hours", "payment": "payment", "stored_gb": "stored_gb",
        "transfer_gb": "transfer_gb_per_month",
    }  # fmt: skip
    told |= {
        key: getattr(arguments, name) * factor for name, (key, factor) in shares.items() if getattr(arguments, name) is not None
    }
    told |= {key: getattr(arguments, name) for name, key in plain.items() if getattr(arguments, name) is not None}
    if arguments.longest_term:
        told["longest_term_months"] = 12 * arguments.longest_term
    if arguments.ask_aws:
        told["aws_recommendations"] = _asked_of_aws(arguments)
    history, notes = _history(arguments, catalog)
    return told | history, notes


def _asked_of_aws(arguments: argparse.Namespace) -> list[Any]:
    """Cost Explorer's, of all three look-backs; for the term and payment that were chosen, else a year without upfront."""
    from tui.commands.recommended import aws_recommendations

    term, payment = str(arguments.longest_term or 1), (arguments.payment or "no_upfront").partition("_")[0]
    asked = argparse.Namespace(lookback=["7", "30", "60"], term=term, payment=payment)
    asked.yes_spend, asked.spend_cap = arguments.yes_spend, arguments.spend_cap
    return aws_recommendations(asked)


def _history(arguments: argparse.Namespace, catalog: Catalog) -> tuple[dict[str, Any], list[str]]:
    """Spot prices over time: of the file, else of the price book; availability of traces that have dates."""
    if not arguments.spot_history:
        from tui.advice_case import kept_spot_history

        return kept_spot_history(catalog), []
    from pricing.advice_spot_risk import placed
    from pricing.market import Market, availability_history

    reading = spot_history(arguments)
    found: dict[str, Any] = {"spot_history": Market(reading.fetches)} if reading.fetches else {}
    if reading.traces:
        found["availability"] = placed(availability_history(reading.traces)[0], shapes_of(catalog))
    notes = [
        f"{fmt.clean(arguments.spot_history)}: {len(reading.traps)} things of note in it (`rackrate backtest spot` tells them)."
    ]
    return found, notes if reading.traps else []


def spot_history(arguments: argparse.Namespace) -> Reading:
    """What `--spot-history` names. WrongUsage where nothing of it can be used."""
    from pricing.market import read_history

    reading = read_history(Path(arguments.spot_history), available=arguments.available)
    if reading.fetches or reading.traces:
        return reading
    name, traces = fmt.clean(arguments.spot_history), any("say whether 0 or 1" in one.sentence for one in reading.traps)
    if traces:
        raise WrongUsage(f"--spot-history {name} holds traces of availability: say with --available 0 or 1 what means available.")
    why = f" ({fmt.clean(reading.traps[0].sentence)})" if reading.traps else ""
    raise WrongUsage(f"--spot-history {name} tells of no price and no availability{why}.")


def shapes_of(catalog: Catalog) -> list[InstanceType]:
    from pricing.catalog import CLOUDS

    return [shape for cloud in CLOUDS for shape in catalog.instances(cloud)]


def needs(arguments: argparse.Namespace, catalog: Catalog) -> tuple[Need, ...]:
    """The dated needs. WrongUsage names what is wrong with one."""
    from pricing.advice import Need
    from pricing.calendar import parse_range
    from pricing.catalog import CLOUDS
    from pricing.demand import DemandKey
    from pricing.lookup import region_key

    found = []
    for count, name, region, start, end in arguments.need:
        if not count.isdecimal() or not int(count):
            raise WrongUsage(f"--need {fmt.clean(count)} ...: the first word is how many nodes, a whole number above 0.")
        begins, ends = parse_range(start, end, now=_never())
        clouds = [cloud for cloud in CLOUDS if catalog.instance(cloud, name) is not None]
        key = DemandKey(clouds[0] if len(clouds) == 1 else None, region_key(region), name)
        found.append(Need(key, int(count), begins, ends))
    return tuple(found)


def _never() -> Any:
    """Both ends are always given, so that `now` decides nothing."""
    from pricing.calendar import EPOCH

    return EPOCH

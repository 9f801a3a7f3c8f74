"""The options of `prices`, and of the words that may stand behind it: `refresh`, `history`, `import`.

Invariant: `prices WORDS` lists offers, whatever the words are; only these three words, first behind it, mean something else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

ACTIONS = ("refresh", "history", "import")
EPILOG = """also:
  rackrate prices refresh [--cloud aws] [--region R] [--type T]    bring today's prices, and keep them with their history
  rackrate prices history p4d.24xlarge --region us-east-1          the price over time
  rackrate prices import FILE.csv                                  prices of your own
"""
REFRESH_EPILOG = """aws uses the credentials of boto3's own chain. azure needs none. gcp needs RACKRATE_GCP_API_KEY, alibaba
ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET. Without them the prices that ship serve.

A price that does not look right never replaces a good one: it is refused with the reason, or held back until it is seen
again. exit codes: 0 all is there, 1 nothing is, 4 some was refused, failed or interrupted (the next refresh goes on there)
"""
Add = Callable[..., argparse.ArgumentParser]


def price_words(argv: Sequence[str]) -> list[str]:
    """`prices refresh ...` as `prices-refresh ...`, which is how the parser knows it."""
    words = list(argv)
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] == "--config" else 1
    if words[at : at + 1] == ["prices"] and words[at + 1 : at + 2] and words[at + 1] in ACTIONS:
        words[at : at + 2] = [f"prices-{words[at + 1]}"]
    return words


def add_price_commands(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds them to `commands`; `command` and `json` are those of the other commands."""
    prices = command(commands, "prices", "prices:prices", "list prices of GPU instances, cheapest per GPU-hour first")
    _epilog(prices, EPILOG)
    prices.add_argument("query", nargs="*", metavar="QUERY", help="e.g. H100 region:us-east-1 buy:spot cloud:aws")
    prices.add_argument("--all", action="store_true", help="print all that match, not the first 50")
    json(prices)
    _add_refresh(commands, command, json)
    history = _action(commands, command, "history", "draw the price of an instance type over time")
    history.add_argument("type", metavar="TYPE", help="such as p4d.24xlarge")
    history.add_argument("--cloud", metavar="CLOUD", help="where several clouds have such a type")
    history.add_argument("--region", metavar="R")
    history.add_argument("--zone", metavar="Z", help="an id, such as use1-az1")
    history.add_argument("--buy", metavar="OPTION", help="such as on_demand (default: spot where it is kept)")
    history.add_argument("--days", type=_days, default=30, metavar="N", help="how far back (default 30)")
    history.add_argument("--tz", metavar="ZONE", help="IANA time zone of the times (default: this machine's)")
    json(history)
    take = _action(commands, command, "import", "take prices from a CSV file")
    take.add_argument(
        "file", metavar="FILE.csv", help="columns: region, zone, instance_type, purchase, price, currency, as_of, source"
    )
    take.add_argument("--cloud", metavar="CLOUD", help="of rows that name none (default: from the file's name)")
    take.add_argument("--accept", action="store_true", help="take also prices that changed more than is believable")
    json(take)


def _add_refresh(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    refresh = _action(commands, command, "refresh", "bring published prices, and keep them with their history")
    _epilog(refresh, REFRESH_EPILOG)
    refresh.add_argument(
        "--cloud",
        action="append",
        default=[],
        metavar="CLOUD",
        help="aws, azure, gcp or alibaba (default: all; may be repeated)",
    )
    refresh.add_argument("--region", action="append", default=[], metavar="R", help="only there (may be repeated)")
    refresh.add_argument("--type", action="append", default=[], metavar="T", help="only this instance type (may be repeated)")
    refresh.add_argument(
        "--buy", action="append", default=[], metavar="OPTION", help="only this purchase option (may be repeated)"
    )
    refresh.add_argument("--accept", action="store_true", help="take also prices that changed more than is believable")
    refresh.add_argument("--every", type=_hours, metavar="HOURS", help="refresh again and again, until it is interrupted")
    json(refresh)


def _action(commands: Any, command: Add, word: str, help: str) -> argparse.ArgumentParser:
    parser = command(commands, f"prices-{word}", f"prices:{word}_", help)
    parser.prog = f"rackrate prices {word}"
    return parser


def _days(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 3660:
        raise argparse.ArgumentTypeError(f"{text} is no number of days from 1 to 3660")
    return int(text)


def _hours(text: str) -> float:
    try:
        hours = float(text.removesuffix("h"))
    except ValueError:
        hours = 0.0
    if not 1 <= hours <= 24 * 31:
        raise argparse.ArgumentTypeError(f"{text} is no number of hours from 1 to 744")
    return hours


def _epilog(parser: argparse.ArgumentParser, text: str) -> None:
    parser.epilog = text
    parser.formatter_class = argparse.RawDescriptionHelpFormatter

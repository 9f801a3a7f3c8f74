"""The options of `prices`, and of the words that may stand behind it: `refresh`, `history`, `import`, `owned`, `scores`, `blocks`,
`recommended`.

Invariant: `prices WORDS` lists offers, whatever the words are; only these words, first behind it, mean something else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from tui.spending import add_spending_options

ACTIONS = ("refresh", "history", "import", "owned", "scores", "blocks", "recommended")
EPILOG = """keys: cloud, region, zone, type, gpu, buy; numbers: cost (an hour), each (a GPU-hour), gpus, vcpus, age; `H100 or H200`,
  parentheses, type:/^p[45]/ and the rest as in `rackrate nodes --help`

also:
  rackrate prices refresh [--cloud aws] [--region R] [--type T]    bring today's prices, and keep them with their history
  rackrate prices history p4d.24xlarge --region us-east-1          the price over time
  rackrate prices import FILE.csv                                  prices of your own
  rackrate prices owned --write                                    reservations and savings plans that you own on AWS
  rackrate prices recommended                                      what AWS would commit to (asks first: 3 requests, $0.03)
  rackrate prices scores p5.48xlarge --region us-east-1 --count 4  where spot requests are likely to succeed just now
  rackrate prices blocks p5.48xlarge --region us-east-1 --hours 48 capacity blocks on offer
"""
REFRESH_EPILOG = """aws uses the credentials of boto3's own chain. azure needs none. gcp needs RACKRATE_GCP_API_KEY, alibaba
ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET. Without them the prices that ship serve.

--as-of DATE brings the on-demand and reserved prices that AWS published then: reports of that time take them, and
no newer price is replaced. --buy capacity_block also brings the soonest block of each zone and type.

A price that does not look right never replaces a good one: it is refused with the reason, or held back until it is seen
again. exit codes: 0 all is there, 1 nothing is, 4 some was refused, failed or interrupted (the next refresh goes on there)
"""
OWNED_EPILOG = """Reads reservations of every region that the account has enabled, and its savings plans with their own rates.
Needs sts:GetCallerIdentity, ec2:DescribeRegions, ec2:DescribeReservedInstances, ec2:DescribeAvailabilityZones,
savingsplans:DescribeSavingsPlans and savingsplans:DescribeSavingsPlanRates. None of these requests costs money.

--write keeps them beside terms.toml. A commitment that stands in both files is one; terms.toml, which is never written,
counts where the two contradict each other. What cannot be read keeps its earlier entry, and each account (AWS_PROFILE)
has entries of its own.

exit codes: 0 all was read, 1 nothing was, 4 some was not
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
    take = _action(commands, command, "import", "take prices from a CSV file, or spot history of AWS from JSON", "prices_import")
    take.add_argument(
        "file", metavar="FILE", help="a .csv with the columns region, zone, instance_type, purchase, price, currency, as_of,"
        " source; or what `aws ec2 describe-spot-price-history` prints: a .json (also .gz, an archive or a folder of them)",
    )  # fmt: skip
    take.add_argument(
        "--zone-id", action="append", default=[], metavar="NAME=ID", help="of spot history that names zones: us-east-1a=use1-az2"
    )
    take.add_argument("--cloud", metavar="CLOUD", help="of rows that name none (default: from the file's name)")
    take.add_argument("--accept", action="store_true", help="take also prices that changed more than is believable")
    json(take)
    _add_owned(commands, command, json)
    _add_capacity(commands, command, json)
    _add_recommended(commands, command, json)


def _add_owned(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    owned = _action(commands, command, "owned", "list reservations and savings plans that you own on AWS", "owned")
    _epilog(owned, OWNED_EPILOG)
    owned.add_argument("--region", action="append", default=[], metavar="R", help="only reservations there (may be repeated)")
    owned.add_argument("--write", action="store_true", help="keep them in owned.toml, which every command that prices takes")
    owned.add_argument("--kept", action="store_true", help="show what owned.toml holds, and ask nobody")
    owned.add_argument("--all", action="store_true", help="list also those that ended within the last 400 days")
    json(owned)


def _add_capacity(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    scores = _action(commands, command, "scores", "how likely AWS has spot capacity just now, from 1 to 10", "capacity")
    scores.add_argument("types", nargs="+", metavar="TYPE", help="instance types that will do; three or more, or scores are low")
    blocks = _action(commands, command, "blocks", "AWS capacity blocks on offer: paid up front, for a time of days", "capacity")
    blocks.add_argument("type", metavar="TYPE", help="such as p5.48xlarge")
    for parser in (scores, blocks):
        parser.add_argument("--region", action="append", required=True, metavar="R", help="may be repeated")
        parser.add_argument("--count", type=_count, default=1, metavar="N", help="how many instances (default 1)")
        json(parser)
    scores.add_argument("--regions-only", action="store_true", help="a score of each region, not of each zone")
    blocks.add_argument("--hours", type=_block_hours, default=24, metavar="H", help="24 to 336 by days, to 4368 by weeks (default 24)")


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
        "--buy", action="append", default=[], metavar="OPTION",
        help="only this purchase option (may be repeated); capacity_block, one question a type and region, only so",
    )
    refresh.add_argument(
        "--as-of", type=_day, metavar="DATE",
        help="AWS's price lists of a day gone by, as history; needs --region, for each is a file of up to some hundred MB",
    )  # fmt: skip
    refresh.add_argument("--accept", action="store_true", help="take also prices that changed more than is believable")
    refresh.add_argument("--every", type=_hours, metavar="HOURS", help="refresh again and again, until it is interrupted")
    json(refresh)


def _add_recommended(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    asked = _action(commands, command, "recommended", "what AWS would commit to; Cost Explorer charges for it", "recommended")
    asked.add_argument(
        "--lookback", action="append", default=[], choices=("7", "30", "60"), help="days of use that it goes by (30; may be repeated)"
    )
    asked.add_argument("--term", choices=("1", "3"), default="1", help="years (default 1)")
    asked.add_argument("--payment", choices=("no", "partial", "all"), default="no", help="what is paid up front (default no)")
    add_spending_options(asked)
    json(asked)


def _action(commands: Any, command: Add, word: str, help: str, module: str = "prices") -> argparse.ArgumentParser:
    parser = command(commands, f"prices-{word}", f"{module}:{word}_", help)
    parser.prog = f"rackrate prices {word}"
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is no number of instances from 1 to 1000")
    return int(text)


def _block_hours(text: str) -> int:
    """What AWS sells: whole days up to 14, then whole weeks up to 26."""
    hours = int(text.removesuffix("h")) if text.removesuffix("h").isdigit() else 0
    if not ((24 <= hours <= 336 and hours % 24 == 0) or (336 < hours <= 4368 and hours % 168 == 0)):
        near = min((*range(24, 337, 24), *range(504, 4369, 168)), key=lambda one: abs(one - hours))
        raise argparse.ArgumentTypeError(
            f"{text}: blocks are of whole days up to 14 (24, 48, ... 336 hours), then of whole weeks up to 26; try {near}"
        )
    return hours


def _day(text: str) -> datetime:
    """The midnight (UTC) of a day that is over."""
    try:
        day = datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no date: write one like 2026-03-01") from None
    if day > datetime.now(UTC) - timedelta(days=1):
        raise argparse.ArgumentTypeError(f"{text} is not over yet: without --as-of, today's prices are brought")
    return day


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

"""The options of `advise`, `plan` and `backtest`.

Invariant: the words and their meaning are those of the design's public surface; each command's modules are imported only
when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tui.cli_calibrate import add_recipe_options
from tui.spending import add_spending_options

Add = Callable[..., argparse.ArgumentParser]
Json = Callable[[argparse.ArgumentParser], None]


def add_advice_commands(commands: Any, command: Add, json: Json) -> None:
    """Adds them to `commands`; `command` and `json` are those of the other commands."""
    _add_advise(commands, command, json)
    _add_plan(commands, command, json)
    backtest = command(commands, "backtest", "backtest:which", "what policies would have cost on recorded traces")
    kinds = backtest.add_subparsers(title="what", metavar="spot|commitments", required=True)
    _add_backtest_spot(kinds, command, json)
    _add_backtest_commitments(kinds, command, json)


ADVICE_KINDS = ("commit", "spot", "stop", "shrink", "move", "capacity_block")


def _add_advise(commands: Any, command: Add, json: Json) -> None:
    advise = command(commands, "advise", "advise:advise", "what to buy, move or stop, with the evidence")
    advise.add_argument("words", nargs="*", metavar="show N", help="the evidence card of one piece of advice")
    advise.add_argument("--why", type=int, metavar="N", help="the same as `show N`")
    advise.add_argument("--usage", metavar="FILE", help="hour_utc, instance_type, region, count (default: the ledger)")
    advise.add_argument("--rates", metavar="FILE", help="instance_type, region, purchase, usd_per_hour, term_months, upfront")
    advise.add_argument("--add-catalog", action="store_true", help="for what --rates does not tell, take the catalog's prices")
    advise.add_argument("--from", dest="start", metavar="DATE", help="use what ran from this day on (UTC)")
    advise.add_argument("--to", dest="end", metavar="DATE", help="use what ran before this day (UTC)")
    advise.add_argument("--days", type=int, metavar="N", help="use the last N days (default: 365, of a file all)")
    advise.add_argument("--kind", action="append", default=[], choices=ADVICE_KINDS, help="only this kind; may be repeated")
    advise.add_argument("--top", type=int, metavar="N", help="list at most N (default 20)")
    advise.add_argument("--hide-dismissed", action="store_true", help="leave out what was dismissed in the app")
    advise.add_argument("--idle-days", type=int, default=7, metavar="N", help="days of evidence to call a node idle (default 7)")
    advise.add_argument("--idle-below", type=float, default=20.0, metavar="PERCENT", help="utilisation that is idle (default 20)")
    _add_assumptions(advise)
    advise.add_argument("--what-if", dest="what_if", metavar="FILE", help="other prices, demand or commitments, side by side (TOML)")
    advise.add_argument("--judge-on", dest="judge_on", metavar="FILE", help="later usage: what the advised purchases would have cost")
    advise.add_argument("--apply", action="store_true", help="print the exact calls; on a terminal reservations are bought once you type it")
    advise.add_argument("--profile", metavar="NAME", help="AWS profile for calls that you confirm")
    advise.add_argument("--ask-aws", action="store_true", help="hold it against AWS's own recommendation (3 or more requests, $0.01 each)")
    add_spending_options(advise)
    advise.add_argument("--terms", metavar="FILE", help="discounts, commitments, exchange rates (default: terms.toml)")
    advise.add_argument("--no-sync", action="store_true", help="use the ledger as it is, ask no node")
    json(advise)


PLAN_EPILOG = """examples:
  rackrate plan --examples                             the workloads that ship with the program
  rackrate plan image-classifier                       plan one of them
  rackrate plan --recipe language --epochs 3 --deadline 8h   a recipe on each type: measured, scaled or by peak figures
  rackrate plan W.toml --recipe vision                 a workload, with the speed that calibrations tell of the recipe
  rackrate plan W.toml --what-if cheaper.toml          side by side with other keys

A workload is a TOML file; the examples show every usual key.
exit codes: 0 planned, 1 nothing fits or is in time, 2 a fault in the file
"""


def _add_assumptions(advise: argparse.ArgumentParser) -> None:
    """What the evidence cannot tell."""
    told = advise.add_argument_group("what the evidence cannot tell")
    told.add_argument("--interruptible", type=float, metavar="PERCENT", help="how much of the work bears interruptions (0-100)")
    told.add_argument("--changeover", type=float, metavar="HOURS", help="from an interruption to progress again")
    told.add_argument("--checkpoint", type=float, metavar="HOURS", help="between two checkpoints")
    told.add_argument("--deadline", type=float, metavar="HOURS", help="how long a job that moves to spot may take")
    _add_spot_history(told, "spot prices or availability over time")
    told.add_argument("--longest-term", type=int, choices=(1, 3), metavar="YEARS", help="commit for at most 1 or 3 years (default: 3 from 180 days of evidence on)")
    told.add_argument("--payment", choices=("no_upfront", "partial_upfront", "all_upfront"), help="only commitments paid so")
    told.add_argument("--stored-gb", type=float, metavar="GB", help="data that would move with the work")
    told.add_argument("--transfer-gb", type=float, metavar="GB", help="data that the work would move over regions each month")
    told.add_argument(
        "--need", action="append", nargs=5, default=[], metavar=("N", "TYPE", "REGION", "FROM", "TO"),
        help="nodes needed at a known time, for capacity blocks; may be repeated",
    )  # fmt: skip


def _add_spot_history(parser: Any, what: str) -> None:
    parser.add_argument("--spot-history", metavar="FILE", help=f"{what} (a file, folder or archive)")
    parser.add_argument(
        "--available", type=int, choices=(0, 1), help="which number means available in its traces (in folders named by zone)"
    )


def _add_plan(commands: Any, command: Add, json: Json) -> None:
    plan = command(commands, "plan", "plan:plan", "which hardware for a workload: time and money")
    plan.epilog, plan.formatter_class = PLAN_EPILOG, argparse.RawDescriptionHelpFormatter
    plan.add_argument("workload", nargs="?", metavar="WORKLOAD.toml", help="or the name of an example: see --examples")
    plan.add_argument("--examples", action="store_true", help="list the workloads that ship with the program")
    plan.add_argument(
        "--what-if", action="append", default=[], metavar="FILE", help="keys that change, as TOML; may be given more than once"
    )
    plan.add_argument("--top", type=_at_least_one, default=10, metavar="N", help="rows of the table (default 10)")
    plan.add_argument("--all", action="store_true", help="every option, and why the other instance types do not fit")
    plan.add_argument("--all-places", action="store_true", help="every region and zone, not the cheapest of each type alone")
    _add_spot_history(plan, "spot availability over time")
    plan.add_argument("--terms", metavar="FILE", help="discounts and exchange rates (default: terms.toml)")
    add_recipe_options(plan)
    json(plan)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be at least 1")
    return number


SPOT_EPILOG = """examples:
  rackrate backtest spot traces/ --work 48h --deadline 60h --changeover 0.2h \\
      --on-demand 3.06 --spot 0.9731 --available 0
  rackrate backtest spot traces.tar.gz ... --leave-one-zone-out --zones
      our policy judged on zones that it was not fitted on

A trace is {"metadata": {"gap_seconds": N}, "data": [0, 1, ...]}. A long one is
cut at random starts, with its own past as history; a window (shorter than two
deadlines) is run from its first tick. Hours are of work done, without
changeovers; late: runs that were not done at the deadline.
exit codes: 0 judged, 2 wrong usage or an impossible deadline, 4 some traces
left out
"""


def _add_backtest_spot(kinds: Any, command: Add, json: Json) -> None:
    spot = command(kinds, "spot", "backtest_spot:spot", "spot policies under a deadline, on availability traces")
    spot.epilog, spot.formatter_class = SPOT_EPILOG, argparse.RawDescriptionHelpFormatter
    spot.add_argument("traces", nargs="+", metavar="TRACE", help="a file, a folder or an archive of them")
    spot.add_argument("--work", required=True, metavar="48h", help="how long the job computes, without interruptions")
    spot.add_argument("--deadline", required=True, metavar="60h", help="from its start")
    spot.add_argument("--changeover", required=True, metavar="0.2h", help="lost on every start of an instance; an upper bound")
    spot.add_argument("--on-demand", required=True, type=float, metavar="USD", help="per hour")
    spot.add_argument("--spot", required=True, type=float, metavar="USD", help="per hour")
    spot.add_argument("--available", type=int, choices=(0, 1), help="which number means available in the traces")
    spot.add_argument("--policy", action="append", default=[], metavar="NAME", help="only this one; may be repeated (default: all)")
    spot.add_argument("--starts", type=int, metavar="N", help="of each trace (default: 300 of long ones, 1 of windows)")
    spot.add_argument("--seed", type=int, default=0, help="of the starts (default 0)")
    spot.add_argument("--history", metavar="7d", help="of a trace's own past, shown before a start (default 7d; 0: none)")
    fitted = spot.add_mutually_exclusive_group()
    fitted.add_argument("--fit", action="append", default=[], metavar="TRACE", help="fit our policy on these traces first")
    fitted.add_argument("--leave-one-zone-out", action="store_true", help="fit on all other zones, judge on each")
    spot.add_argument("--zones", action="store_true", help="also the savings of each zone")
    json(spot)


COMMITMENTS_EPILOG = """examples:
  rackrate backtest commitments fleet.csv --term 28d --discount 0.37
  rackrate backtest commitments fleet.csv --term 1y --discount 0.44 --policy rackrate --policy look-back-30d

A policy decides at 00:00 UTC of each day, from the hours before, how many to buy for a term that begins there:
  rackrate          expected coverage of each level, from its depth under the demand and the pool's own moves
  look-back-7d      what the clouds recommend: the best for the last 7 days (or any number of days)
  least-look-back   the least of the last 1, 3 and 7 days
  spell, spell-dp   how long levels stayed on before, by age; the second also weighs waiting
  online            commits once as much was paid on demand (Wang, Li, Liang); online-random: a random threshold
  on-demand, peak   never commits; covers the highest hour so far
Costs are told over the clairvoyant optimum (a linear program that knows all hours), savings against all on-demand. With
--json: one row for each policy and series, then the means.
"""


def _add_backtest_commitments(kinds: Any, command: Add, json: Json) -> None:
    commitments = command(kinds, "commitments", "backtest_commitments:commitments", "rules of commitment, on hourly demand")
    commitments.epilog, commitments.formatter_class = COMMITMENTS_EPILOG, argparse.RawDescriptionHelpFormatter
    commitments.add_argument("series", nargs="+", metavar="SERIES.csv", help="hour_utc,count[,name]")
    commitments.add_argument("--term", required=True, metavar="28d", help="of a commitment: days, or 4w, 1y")
    commitments.add_argument("--discount", required=True, metavar="0.37", help="of a commitment against on-demand: 0.37 is 37 %%")
    commitments.add_argument("--policy", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    commitments.add_argument(
        "--start", metavar="14d", help="the first day of decisions and costs (default: 14d, or 7d for at most 40 days)"
    )
    commitments.add_argument(
        "--tail", choices=("truncate", "mature"), default="truncate",
        help="the last terms: charged to the end of the series (truncate), or not bought (mature)",
    )  # fmt: skip
    commitments.add_argument("--gaps", choices=("zero",), help="hours without a row: nothing ran")
    commitments.add_argument("--round", action="store_true", help="fractional counts: to the nearest whole node")
    json(commitments)

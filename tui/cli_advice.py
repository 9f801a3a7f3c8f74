"""The options of `advise`, `plan` and `backtest`.

Invariant: the words and their meaning are those of the design's public surface; each command's modules are imported only
when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

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


def _add_advise(commands: Any, command: Add, json: Json) -> None:
    advise = command(commands, "advise", "advise:advise", "what to buy, move or stop, with the evidence")
    advise.add_argument("--usage", metavar="FILE", help="hour_utc, instance_type, region, count (default: the ledger)")
    advise.add_argument("--rates", metavar="FILE", help="instance_type, region, purchase, usd_per_hour, term_months, upfront")
    json(advise)


def _add_plan(commands: Any, command: Add, json: Json) -> None:
    plan = command(commands, "plan", "plan:plan", "which hardware for a workload: time and money")
    plan.add_argument("workload", metavar="WORKLOAD.toml", help="or the name of an example: see --examples")
    json(plan)


def _add_backtest_spot(kinds: Any, command: Add, json: Json) -> None:
    spot = command(kinds, "spot", "backtest_spot:spot", "spot policies under a deadline, on availability traces")
    spot.add_argument("traces", nargs="+", metavar="TRACE", help="a file, a folder or an archive of them")
    json(spot)


def _add_backtest_commitments(kinds: Any, command: Add, json: Json) -> None:
    commitments = command(kinds, "commitments", "backtest_commitments:commitments", "rules of commitment, on hourly demand")
    commitments.add_argument("series", nargs="+", metavar="SERIES.csv", help="hour_utc,count[,name]")
    json(commitments)

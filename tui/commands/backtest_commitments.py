"""`backtest commitments`: what rules of commitment would have cost on recorded demand.

Invariant: every policy is charged for the same hours; what a series cannot tell (too short, nothing ran) is said and never
counted as a good result.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import live_line

if TYPE_CHECKING:
    from pricing.commitments_backtest import Result
    from pricing.commitments_model import Deal
    from pricing.commitments_rules import Rule
    from pricing.demand_series import Series

_DAYS = {"d": 1, "w": 7, "y": 365}
TITLES = ("policy", "series", "cost / optimum", "saving", "dearer", "worst")
ALIGN = ("left", "right", "right", "right", "right", "right")


def commitments(context: Context, arguments: argparse.Namespace) -> ExitCode:  # noqa: ARG001
    """Prints a table of the policies, or with --json one row for each policy and series."""
    from pricing.commitments_model import Deal

    discount = _discount(arguments.discount)
    deal = Deal(_days("--term", arguments.term), 1 - discount)
    start = None if arguments.start is None else _days("--start", arguments.start)
    policies = _policies(arguments.policy)
    series = _read(arguments)
    results, left_out = _run(series, policies, deal, start, arguments.tail)
    if not results:
        raise WrongUsage("No series could be judged: each must have more days than the first decision waits for (--start).")
    _say_how(deal, start, arguments.tail)
    if arguments.json:
        print_json({"policies": [_record(one) for one in results], "means": _means(results)})
    else:
        print_table(TITLES, _table(results), ALIGN)
    return ExitCode.PARTLY if left_out else ExitCode.DONE


def _discount(text: str) -> float:
    try:
        discount = float(text)
    except ValueError:
        discount = -1.0
    if not 0 <= discount < 1:
        raise WrongUsage(f"--discount {text}: it must be at least 0 and below 1; write 0.37 for 37 %.")
    return round(discount, 12)


def _days(option: str, text: str) -> int:
    found = re.fullmatch(r"(\d{1,5})([dwy]?)", text.strip().lower())
    days = int(found[1]) * _DAYS[found[2] or "d"] if found else 0
    if not 1 <= days <= 36_500:
        raise WrongUsage(f"{option} {text}: write a number of days like 28d, of weeks like 4w or of years like 1y.")
    return days


def _policies(names: Sequence[str]) -> dict[str, Sequence[Rule]]:
    from pricing.commitments_backtest import CLAIRVOYANT
    from pricing.commitments_policies import STANDARD, rules

    wanted = [name.strip().lower().replace("_", "-") for name in names or STANDARD]
    return {name: rules(name) for name in wanted if name != CLAIRVOYANT}


def _read(arguments: argparse.Namespace) -> list[Series]:
    """All series of all files; a name that two files use is told with its file's."""
    from pricing.demand_series import Fill, read_series

    fill = Fill(gaps=arguments.gaps == "zero", fractions=arguments.round)
    paths = [Path(name) for name in arguments.series]
    found = [(path, one) for path in dict.fromkeys(paths) for one in read_series(path, fill)]
    names = [one.name for _, one in found]
    return [one if names.count(one.name) == 1 else one._replace(name=f"{path}:{one.name}") for path, one in found]


def _run(
    series: Sequence[Series], policies: Mapping[str, Sequence[Rule]], deal: Deal, start: int | None, tail: str
) -> tuple[list[Result], int]:
    """Results, and how many series were left out (each is said)."""
    from pricing.commitments_backtest import backtest, first_day

    results: list[Result] = []
    left_out = 0
    with live_line(step_only=True) as line:
        for number, one in enumerate(series, 1):
            line.tell(f"{number} of {len(series)}: {fmt.clean(one.name)[:40]}")
            whole = one.whole_days()
            days = len(whole.counts) // 24
            begin = first_day(days) if start is None else start
            if fault := _unfit(whole, days, begin, deal, tail):
                line.clear()
                say(f"left out: {fmt.clean(one.name)}: {fault}")
                left_out += 1
                continue
            results += backtest(policies, one.name, whole.counts, deal, begin, tail)
    return results, left_out


def _unfit(series: Series, days: int, start: int, deal: Deal, tail: str) -> str | None:
    if days <= start:
        return f"it has {days} whole days (UTC), and the first decision is at the end of day {start} (--start)."
    if not series.counts[start * 24 :].any():
        return f"nothing ran from day {start} on, so nothing can be saved."
    if tail == "mature" and days - start < deal.term_days:
        return f"its {days - start} days from day {start} on are shorter than a term of {deal.term_days} days (--tail truncate)."
    return None


def _say_how(deal: Deal, start: int | None, tail: str) -> None:
    first = f"day {start}" if start is not None else "day 14 (day 7 of a series of at most 40 days)"
    end = "hours after the end are neither charged nor used" if tail == "truncate" else "nothing is bought that ends later"
    say(f"Terms of {deal.term_days} days at {100 * deal.ratio:.4g} % of on-demand, daily decisions from {first} on; {end}.")


def _record(result: Result) -> dict[str, Any]:
    return {
        "policy": result.policy,
        "series": result.series,
        "cost_to_clairvoyant": result.ratio,
        "saving_ratio": result.saving,
        "cost_node_hours": result.cost,
        "on_demand_node_hours": result.on_demand,
        "clairvoyant_node_hours": result.clairvoyant,
        "commitments": result.commitments,
    }


def _by_policy(results: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.policy, []).append(result)
    return dict(sorted(found.items(), key=lambda item: sum(one.ratio or 0 for one in item[1])))


def _means(results: Sequence[Result]) -> list[dict[str, Any]]:
    from pricing.commitments_backtest import mean_and_error

    means = []
    for policy, of_policy in _by_policy(results).items():
        cost, cost_error = mean_and_error([one.ratio or 0 for one in of_policy])
        saving, saving_error = mean_and_error([one.saving or 0 for one in of_policy])
        means.append(
            {
                "policy": policy,
                "series": len(of_policy),
                "cost_to_clairvoyant": cost,
                "cost_standard_error": cost_error,
                "saving_ratio": saving,
                "saving_standard_error": saving_error,
                "dearer_than_on_demand": sum(one.dearer for one in of_policy),
                "worst": max(one.ratio or 0 for one in of_policy),
            }
        )
    return means


def _table(results: Sequence[Result]) -> list[list[str]]:
    return [
        [
            mean["policy"],
            str(mean["series"]),
            f"{mean['cost_to_clairvoyant']:.3f}{_error(mean['cost_standard_error'], 1, 3)}",
            f"{100 * mean['saving_ratio']:.1f} %{_error(mean['saving_standard_error'], 100, 1)}",
            str(mean["dearer_than_on_demand"]),
            f"{mean['worst']:.3f}",
        ]
        for mean in _means(results)
    ]


def _error(error: float | None, factor: float, places: int) -> str:
    return "" if error is None else f" ± {factor * error:.{places}f}"

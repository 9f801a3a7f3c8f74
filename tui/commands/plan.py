"""`plan`: which hardware for a workload, over all clouds of the catalog.

Invariant: the answer says what it assumes and how old its prices are; a deadline that nothing meets is said with the least
time that anything takes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import live_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pricing.catalog import Catalog
    from pricing.planner import Option, Plan
    from pricing.planner_workload import Workload

SHOWN = 10


def plan(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Plans a workload or a recipe, or lists the examples."""
    from tui.commands.plan_recipe import check, plan_recipe

    check(arguments)
    if arguments.recipe is not None and arguments.workload is None:
        return plan_recipe(context, arguments)
    if arguments.examples:
        return _examples(arguments)
    if arguments.workload is None:
        raise WrongUsage("plan what? Give a workload file, or the name of an example (`rackrate plan --examples` lists them).")
    plans = _plans(context, arguments)
    if arguments.json:
        print_json(_record(plans, arguments))
    else:
        _print(plans, arguments)
    return _verdict(plans)


def _plans(context: Context, arguments: argparse.Namespace) -> list[tuple[str, Plan]]:
    """(its name, the plan) of the workload, then of each what-if."""
    from pricing.planner import plan as find
    from pricing.planner_file import find as file_of
    from pricing.planner_file import load
    from pricing.planner_spot_place import PlacedSpot
    from tui.terms import pricing_of

    path = file_of(arguments.workload)
    overs = [None, *(_existing(name) for name in arguments.what_if)]
    workloads = [load(path, over) for over in overs]
    if arguments.recipe is not None:
        workloads = _measured(context, arguments.recipe, workloads)
    pricing = pricing_of(context, arguments)
    now = datetime.now(UTC)
    spot = PlacedSpot(_availability(arguments, pricing.catalog))
    names = ["as it is", *(over.stem for over in overs if over is not None)]
    found = []
    with live_line(step_only=True) as line:
        for name, one in zip(names, workloads, strict=True):
            line.tell(f"planning: {name}", f", {len(found) + 1} of {len(workloads)}")
            found.append(find(one, pricing.catalog, now, pricing.terms, spot=spot, every_place=arguments.all_places))
    if problem := pricing.catalog.problem:
        say(f"rackrate: {problem}")
    return list(zip(names, found, strict=True))


def _measured(context: Context, recipe: str, workloads: Sequence[Workload]) -> list[Workload]:
    """With the speed that calibrations tell of the recipe, beside what the file tells."""
    from pricing.planner_workload import with_measured
    from tui import calibrations, recipes
    from tui.plan_recipe import measured_of

    recipes.defaults(recipe)
    found = measured_of(calibrations.load(context.paths.data_dir), recipe)
    if not found:
        say(f"rackrate: no calibration measured the recipe {recipe} on a GPU; `rackrate calibrate NODE` does.")
    return [with_measured(one, found) for one in workloads]


def _availability(arguments: argparse.Namespace, catalog: Catalog) -> Mapping[object, object]:
    """Of the traces of `--spot-history`."""
    if not arguments.spot_history:
        return {}
    from pricing.advice_spot_risk import placed
    from pricing.market import availability_history
    from tui.commands.advise_options import shapes_of, spot_history

    traces = spot_history(arguments).traces
    if not traces:
        raise WrongUsage(f"--spot-history {fmt.clean(arguments.spot_history)} holds no availability, which tells how often spot ends.")
    return placed(availability_history(traces)[0], shapes_of(catalog))


def _existing(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise WrongUsage(f"--what-if {fmt.clean(name)}: no such file. Give a TOML file with the keys to change.")
    return path


def _examples(arguments: argparse.Namespace) -> ExitCode:
    from pricing.planner_file import example_names, find, load

    found = [(name, find(name), load(find(name))) for name in example_names()]
    if arguments.json:
        print_json([{"name": name, "note": work.note, "file": str(path)} for name, path, work in found])
    else:
        print_table(("NAME", "WHAT"), [(name, work.note) for name, _, work in found], ("left", "left"))
        say("(`rackrate plan NAME` plans one; `rackrate plan --examples --json` tells where the files are)")
    return ExitCode.DONE


def _record(plans: Sequence[tuple[str, Plan]], arguments: argparse.Namespace) -> dict[str, Any]:
    from pricing.planner_record import plan_record

    records = []
    for name, one in plans:
        options = one.options if arguments.all else one.options[: arguments.top]
        records.append({"name": name, **plan_record(one, options)})
    first, *others = records
    return {**first, "what_if": others}


def _print(plans: Sequence[tuple[str, Plan]], arguments: argparse.Namespace) -> None:
    from tui import plan_text as text

    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    first = plans[0][1]
    _lines(text.head(first), width)
    print()
    if len(plans) > 1:
        titles, rows = text.compared(plans)
        each = max(14, (width - 19) // len(plans) - 1)
        print_table(titles, rows, ["left"] * len(titles), limits=[19, *[each] * len(plans)])
        print()
    shown = _chosen(first, arguments)
    if shown:
        _table(shown, _title(first, arguments, len(shown)))
        print()
    if first.reference is not None and first.reference.front:
        _table(first.reference.front[: arguments.top], f"The hardware in mind ({text.in_mind(first)}), without the deadline:")
        print()
    _details(first, shown, width)
    if arguments.all and first.misfits:
        print("What does not fit:")
        _lines(text.misfits(first), width)
        print()
    notes = [*text.assumptions(first, shown), *text.left_out(first)] if shown else text.left_out(first)
    _lines([f"- {note}" for note in notes], width)


def _chosen(one: Plan, arguments: argparse.Namespace) -> Sequence[Option]:
    """The front; with --all every option; where nothing is in time, the soonest."""
    if arguments.all:
        return one.options
    if one.front:
        return one.front[: arguments.top]
    return sorted(one.options, key=lambda option: (option.seconds, option.order()))[: arguments.top]


def _title(one: Plan, arguments: argparse.Namespace, shown: int) -> str:
    if arguments.all:
        return f"All {shown} options, cheapest first:"
    if one.front:
        more = f" (the first {shown} of {len(one.front)}; --top shows more)" if len(one.front) > shown else ""
        return f"What no other option beats in time and money at once{more}:"
    return "The soonest, none of which is within the deadline and the budget:"


def _table(shown: Sequence[Option], title: str) -> None:
    from tui.plan_text import ALIGN, LIMITS, TITLES, cells

    print(title)
    print_table(TITLES, [cells(option) for option in shown], ALIGN, limits=LIMITS)


def _details(one: Plan, shown: Sequence[Option], width: int) -> None:
    from tui.plan_text import details

    told = []
    if one.cheapest is not None:
        told.append((one, one.cheapest, "Cheapest"))
        if one.fastest is not None and one.fastest is not one.cheapest:
            told.append((one, one.fastest, "Fastest"))
    elif shown and one.soonest is not None:
        told.append((one, one.soonest, "Soonest"))
    if one.reference is not None and one.reference.cheapest is not None:
        told.append((one.reference, one.reference.cheapest, "In mind"))
    for owner, option, title in told:
        _lines(details(owner, option, title, memory=title != "Fastest", others=title != "Fastest"), width)
        print()
    if one.reference is not None and one.reference.cheapest is None:
        from tui.plan_text import in_mind

        _lines([f"In mind ({in_mind(one)}): the catalog has no such hardware with a known price.", ""], width)


def _lines(lines: Sequence[str], width: int) -> None:
    from tui.plan_text import wrapped

    for line in wrapped(lines, width):
        print(line)


def _verdict(plans: Sequence[tuple[str, Plan]]) -> ExitCode:
    """Names each plan that no option of is in time."""
    from tui.plan_text import duration

    code = ExitCode.DONE
    for name, one in plans:
        if one.front:
            continue
        code = ExitCode.FAILED
        which = "" if len(plans) == 1 else f"{fmt.clean(name)}: "
        soonest, limit = one.soonest, one.workload.run.deadline_seconds
        if soonest is None:
            often = one.usual_reason()
            reason = f" (most often: {fmt.clean(often)})" if often else ""
            say(f"rackrate: {which}nothing in the catalog fits this workload{reason}; `--all` tells why of each type.")
        elif limit is not None and soonest.seconds > limit:
            hardware = f"{soonest.candidate.nodes} x {fmt.clean(soonest.candidate.shape.instance_type)}"
            say(
                f"rackrate: {which}no hardware meets the deadline of {duration(float(limit))}: the least time is "
                f"{duration(soonest.seconds)} ({hardware}, {soonest.rate.purchase}); allow more time, "
                "or more nodes (limits.max_nodes)."
            )
        else:
            say(f"rackrate: {which}no option with a known price is within the deadline and the budget; the nearest are shown.")
    return code

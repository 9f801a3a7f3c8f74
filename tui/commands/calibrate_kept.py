"""`calibrate list|show|compare|add|export|import`: what was measured, and what others measured.

Invariant: nothing here asks a node; `compare` judges by the rule that the recipe's spread was made for, and ends with 1 where
two of one kind differ.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tui import calibrations
from tui import format as fmt
from tui.commands.context import Context
from tui.errors import Failed, WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say

if TYPE_CHECKING:
    from pricing.calibration import Calibration

NOTHING = "(nothing was measured yet: `rackrate calibrate NODE`)"


def list_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Newest first."""
    kept = calibrations.load(context.paths.data_dir)
    found = calibrations.named_by(kept, arguments.word) if arguments.word else kept
    found = sorted(found, key=lambda one: one.measured_at, reverse=True)
    if arguments.json:
        print_json([calibrations.record(one) for one in found])
    elif found:
        from tui.calibrations_text import LIST_TITLES, list_row

        _table(LIST_TITLES, [list_row(one) for one in found])
    elif arguments.word:
        raise WrongUsage(f"{arguments.word}: nothing was measured on a node, instance type or host of that name.")
    else:
        say(NOTHING)
    return ExitCode.DONE


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """On a terminal without the last columns where they have no room."""
    count = len(titles)
    if sys.stdout.isatty():
        room = shutil.get_terminal_size((80, 24)).columns
        widths = [max(map(len, column)) + 2 for column in zip(titles, *rows, strict=True)]
        count = max(one for one in range(1, count + 1) if one == 1 or sum(widths[:one]) - 2 <= room)
    print_table(titles[:count], [row[:count] for row in rows], ["left"] * count)


def show_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """All figures of one."""
    from tui.commands.calibrate import print_calibration

    found = calibrations.find(calibrations.load(context.paths.data_dir), arguments.which)
    if arguments.json:
        print_json(calibrations.record(found))
    else:
        print_calibration(found)
    return ExitCode.DONE


def compare_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Two of them, the older first."""
    from tui.calibrations_text import COMPARE_TITLES, compare_row, pairs, title, verdict

    one, other = _two(calibrations.load(context.paths.data_dir), arguments.which)
    found = list(pairs(one, other))
    differ = any(pair.agrees is False for pair in found)
    if arguments.json:
        print_json(
            {
                "a": one.id, "b": other.id, "agree": not differ if any(pair.agrees is not None for pair in found) else None, "figures": [
                    {"name": pair.name, "a": pair.one and pair.one.value, "b": pair.other and pair.other.value, "change_ratio": pair.change,
                     "agree": pair.agrees} for pair in found
                ],
            }
        )  # fmt: skip
    else:
        for letter, each in (("A", one), ("B", other)):
            print(f"{letter}  {each.id}, {calibrations.when(each)} UTC, {title(each)}")
        print()
        print_table(COMPARE_TITLES, [compare_row(pair) for pair in found], ("left", "right", "right", "right", "right", "left"))
        print("\n" + textwrap.fill(f"{verdict(found)}.", 80))
    return ExitCode.FAILED if differ else ExitCode.DONE


def _two(kept: Sequence[Calibration], words: Sequence[str]) -> tuple[Calibration, Calibration]:
    if len(words) > 2:
        raise WrongUsage("compare takes two calibrations.")
    if len(words) == 2:
        return calibrations.find(kept, words[0]), calibrations.find(kept, words[1])
    if words:
        newest = calibrations.find(kept, words[0])
        return _before(kept, newest), newest
    for newest in sorted(kept, key=lambda one: one.measured_at, reverse=True):
        if _alike(kept, newest):
            return _before(kept, newest), newest
    raise WrongUsage("there are no two calibrations of one kind of hardware to compare; `rackrate calibrate list` shows what there is.")


def _alike(kept: Sequence[Calibration], one: Calibration) -> list[Calibration]:
    """Earlier ones of the same kind of machine, oldest first."""

    def kind(each: Calibration) -> tuple[object, ...]:
        machine = (each.cloud, each.instance_type) if each.instance_type else (each.host or each.node,)
        return (each.gpu or each.cpu, each.ranks, *machine)

    found = [each for each in kept if each.id != one.id and each.measured_at <= one.measured_at and kind(each) == kind(one)]
    return sorted(found, key=lambda each: each.measured_at)


def _before(kept: Sequence[Calibration], one: Calibration) -> Calibration:
    found = _alike(kept, one)
    if not found:
        raise WrongUsage(f"{one.id} is the only calibration of its kind ({fmt.clean(one.hardware)}); measure again, or name two.")
    return found[-1]


def add_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Of the recipe's output."""
    of_node = {"node": arguments.node, "cloud": arguments.cloud and arguments.cloud.lower(), "region": arguments.region}
    if arguments.type is not None:
        of_node |= _typed(context, arguments.cloud, arguments.type)
    found = calibrations.of_file(Path(arguments.file), **of_node)
    return _kept(context, [found], as_json=arguments.json)


def _typed(context: Context, cloud: str | None, name: str) -> dict[str, str]:
    """(cloud, type) as the catalog spells them. `WrongUsage` for a type that no cloud has, or several."""
    from pricing.catalog import CLOUDS

    shapes = [shape for one in ([cloud] if cloud else CLOUDS) if (shape := context.catalog().instance(one, name)) is not None]
    if len(shapes) != 1:
        where = f"{cloud} has no" if cloud else "several clouds have" if shapes else "no cloud of the catalog has"
        hint = "say which with --cloud" if shapes else "leave --type out for a machine of your own"
        raise WrongUsage(f"--type {name}: {where} such {'an ' * (not cloud)}instance type; {hint}.")
    return {"cloud": shapes[0].cloud, "instance_type": shapes[0].instance_type}


def export_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """As they are kept."""
    import msgspec

    lines = [msgspec.json.encode(calibrations.record(one)).decode() for one in calibrations.load(context.paths.data_dir)]
    if arguments.out is None:
        print("\n".join(lines)) if lines else say(NOTHING)
        return ExitCode.DONE
    try:
        Path(arguments.out).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    except OSError as error:
        raise Failed(f"--out {arguments.out}: {(error.strerror or str(error)).lower()}.") from None
    say(f"{len(lines)} calibrations written to {fmt.clean(arguments.out)}")
    return ExitCode.DONE


def import_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Those that are not here yet."""
    path = Path(arguments.file)
    found = list(calibrations.read(calibrations.text_of(path), str(path)))
    if not found:
        raise WrongUsage(f"{path}: there are no calibrations in it; it is what `rackrate calibrate export` writes.")
    return _kept(context, found, as_json=arguments.json)


def _kept(context: Context, found: Sequence[Calibration], *, as_json: bool) -> ExitCode:
    fresh = calibrations.add(context.paths.data_dir, found)
    if as_json:
        print_json([calibrations.record(one) for one in fresh])
    else:
        from tui.calibrations_text import LIST_TITLES, list_row

        if fresh:
            _table(LIST_TITLES, [list_row(one) for one in fresh])
        say(f"{len(fresh)} kept" + (f", {len(found) - len(fresh)} were here already" if len(fresh) < len(found) else ""))
    return ExitCode.DONE

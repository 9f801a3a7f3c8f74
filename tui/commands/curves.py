"""`job curves` and `job compare`: what trainings told of each step, what they cost, and which of them did better.

Invariant: a node that does not answer is said, and changes the exit code; data go to stdout alone.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import math
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.commands.context import Context
from tui.commands.follow import asking
from tui.errors import Failed, WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say

if TYPE_CHECKING:
    from agent import wire
    from agent.client import AgentClient
    from tui.config import NodeConfig
    from tui.curves import Run

POINTS = 1000
MOST_ROUNDS = 1000
MOST_RUNS = 10
LEAST_POINTS, MOST_POINTS = 4, 1000
_CHART_ROWS = 14


def curves(context: Context, arguments: argparse.Namespace) -> int:
    """Draws loss and speed of a job, and says what it costs."""
    points = _points(arguments.points)
    if arguments.json and arguments.csv:
        raise WrongUsage("--json and --csv: one of them.")
    run = _runs(context, [arguments.job], points)[0]
    from tui.curves_text import empty_sentence, missing

    if unknown := missing(run.curves, arguments.name):
        told = ", ".join(map(fmt.clean, run.curves.names)) or "none"
        raise WrongUsage(f"--name {fmt.clean(unknown[0])}: the job tells no such figure; it tells {told}.")
    if arguments.json:
        _print_record(run, arguments.name)
    elif not run.curves.curves:
        raise Failed(f"job {run.job.id}: {empty_sentence(run.curves, run.job)}.")
    elif arguments.csv:
        _print_csv(run, arguments.name)
    else:
        _print_curves(run, arguments.name, log=arguments.log)
    return ExitCode.DONE


def compare(context: Context, arguments: argparse.Namespace) -> int:
    """Runs side by side: settings that differ, figures, money, and their loss over each other."""
    at_loss = _loss(arguments.at_loss)
    if not 2 <= len(arguments.job) <= MOST_RUNS:
        raise WrongUsage(f"two to {MOST_RUNS} jobs are compared; {len(arguments.job)} were named.")
    runs = _runs(context, arguments.job, POINTS)
    if len(runs) < 2:
        raise WrongUsage("these are the same job.")
    if arguments.json:
        from tui.curves import outlook
        from tui.curves_text import run_record

        print_json([run_record(run, outlook(run, now=context.now()), at_loss) for run in runs])
    else:
        _print_compared(context, runs, at_loss, log=arguments.log)
    without = [run.job.id for run in runs if not run.curves.curves]
    if without:
        from tui.curves_text import empty_sentence

        why = {run.job.id: empty_sentence(run.curves, run.job) for run in runs if run.job.id in without}
        for sentence in dict.fromkeys(why.values()):
            say(f"rackrate: {', '.join(one for one in without if why[one] == sentence)}: {sentence}.")
    return ExitCode.PARTLY if without else ExitCode.DONE


def _points(text: str | None) -> int:
    if text is None:
        return POINTS
    if not (text.isascii() and text.isdigit() and LEAST_POINTS <= int(text) <= MOST_POINTS):
        raise WrongUsage(f"--points: {text!r} is no whole number from {LEAST_POINTS} to {MOST_POINTS}.")
    return int(text)


def _loss(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise WrongUsage(f"--at-loss: {text!r} is no number such as 0.35.")
    return value


# -- asking -------------------------------------------------------------------------------------------------------------


def _runs(context: Context, texts: Sequence[str], points: int) -> list[Run]:
    """Of each job that is meant, once, in the order given; of a run over several nodes the whole, whichever part was named."""
    from tui.curves import together
    from tui.job_find import check_typed, find_all, list_jobs, with_parts

    async def ask(nodes: Sequence[NodeConfig]) -> list[Run]:
        for text in texts:
            check_typed(text)
        listing = await list_jobs(nodes, context.client_for)
        for name, error in listing.errors.items():
            say(f"rackrate: {fmt.clean(name)}: {error}")
        meant = [with_parts(listing, await find_all(listing, nodes, context.client_for, text)) for text in texts]
        once = {frozenset((one.node.name, one.job.id) for one in parts): parts for parts in meant}
        asked = [[_ask_one(context, one.node, one.job.id, points) for one in parts] for parts in once.values()]
        return [together(await asyncio.gather(*parts)) for parts in asked]

    with context.nodes() as nodes:
        return list(asking(ask(nodes)))


async def _ask_one(context: Context, node: NodeConfig, ident: str, points: int) -> Run:
    from tui.curves import Run
    from tui.job_rows import has_gpu

    async with context.client_for(node) as client:
        job = await client.job(ident)
        run = Run(node.name, job, await _whole(client, ident, points))
        return run if has_gpu(job) else _priced(context, run, await client.node())


def _priced(context: Context, run: Run, info: wire.NodeInfo) -> Run:
    """Of a job without a GPU: by the node's price of now, and the weights of the reports."""
    from fractions import Fraction

    from pricing.terms import load
    from tui.curves_price import priced
    from tui.fleet import quote_of

    price = quote_of(context.catalog(), info).price
    dollars = Fraction(price.amount) if price is not None and price.currency == "USD" else None
    return priced(run, info, dollars, load(context.terms_path, must_exist=False).weights, context.now())


async def _whole(client: AgentClient, ident: str, points: int) -> wire.JobCurves:
    """Asks until the agent has read the whole log: it reads a part at each question."""
    found = await client.curves(ident, points=points)
    for _ in range(MOST_ROUNDS):
        if not found.behind_bytes:
            break
        behind = found.behind_bytes
        found = await client.curves(ident, points=points)
        if found.behind_bytes >= behind and not found.ended:
            break  # it is written faster than it is read
    return found


# -- printing -----------------------------------------------------------------------------------------------------------


def _print_record(run: Run, names: Sequence[str]) -> None:
    from tui.curves import outlook
    from tui.curves_text import run_record

    record = run_record(run, outlook(run))
    if names:
        record["curves"]["curves"] = [one for one in record["curves"]["curves"] if one["name"] in names]
    print_json(record)


def _print_csv(run: Run, names: Sequence[str]) -> None:
    from tui.curves_text import csv_rows

    chosen = [curve for curve in run.curves.curves if not names or curve.name in names]
    csv.writer(sys.stdout, lineterminator="\n").writerows(csv_rows(chosen))


def _print_curves(run: Run, names: Sequence[str], *, log: bool) -> None:
    from tui.curves import loss_of, named, outlook, speed_of
    from tui.curves_text import chart, curve_line, head_line, money_rows, notes

    chosen = [named(run.curves, name) for name in names] if names else [loss_of(run.curves), speed_of(run.curves)]
    shown = [curve for curve in chosen if curve is not None] or [run.curves.curves[0]]
    width, _ = _size()
    print(_drawable(head_line(run)))
    for curve in shown:
        print(_drawable(f"\n{curve_line(curve)}"))
        drawn = chart([curve], width, _CHART_ROWS, unicode=_braille(), log=log and "loss" in curve.name)
        print("\n".join(drawn.lines()) if drawn else "")
    print()
    for name, text in money_rows(run, outlook(run)):
        print(_drawable(f"{name:<13}{text}"))
    print(_drawable(f"{'read':<13}{'; '.join(map(fmt.clean, run.curves.sources))}"))
    others = [fmt.clean(name) for name in run.curves.names if name not in {curve.name for curve in shown}]
    if others:
        print(_drawable(f"{'more':<13}--name {', '.join(others)}"))
    for text in notes(run.curves):
        say(f"rackrate: {text}")


def _print_compared(context: Context, runs: Sequence[Run], at_loss: float | None, *, log: bool) -> None:
    from tui.curves import loss_of, outlook
    from tui.curves_text import chart, compare_rows, run_names

    names = run_names(runs)
    seen = [outlook(run, now=context.now()) for run in runs]
    rows = [["id", *(run.job.id for run in runs)], *([name, *cells] for name, cells in compare_rows(runs, seen, at_loss))]
    print_table(["", *names], rows, ["left"] * (len(runs) + 1))
    from agent import wire

    blank = wire.Curve(name="loss", steps=(), values=(), count=0, source="log")
    losses = [loss_of(run.curves) or blank for run in runs]
    width, height = _size()
    drawn = chart(losses, width, max(_CHART_ROWS, min(24, height - len(rows) - 4)), unicode=_braille(), log=log)
    if drawn is not None:
        print(_drawable("\nloss: " + "  ".join(names)))
        print("\n".join(drawn.lines()))


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size((80, 24)) if sys.stdout.isatty() else os.terminal_size((80, 24))
    return min(size.columns, 200), size.lines


def _braille() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _drawable(text: str) -> str:
    """What stdout can say."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)

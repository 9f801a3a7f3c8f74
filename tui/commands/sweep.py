"""`sweep`: submits a sweep as a job, over one node or several, and shows the trials of one.

Invariant: what is wrong with a sweep is said before a node is asked; Ray's token goes as a secret of the job, new for each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say

if TYPE_CHECKING:
    from agent import wire
    from tui.config import NodeConfig
    from tui.job_find import Found
    from tui.jobspec import Wanted
    from tui.sweep import Sweep
    from tui.sweep_show import Swept
    from tui.workdir import Packed

TOKEN = "ray-token"
EXAMPLE = "vision.toml"
GRACE_SECONDS = 60.0
"""From the soft signal to the kill, where the file says nothing: trials save, and Ray ends."""
PAGE_BYTES = 1 << 20


def sweep(context: Context, arguments: argparse.Namespace) -> int:
    """Submits a sweep, prints an example, or shows one that was submitted."""
    if arguments.example:
        from tui.recipes import FOLDER

        print((FOLDER / "sweeps" / EXAMPLE).read_text("utf-8"), end="")
        return ExitCode.DONE
    if arguments.file == "show":
        return _show(context, arguments)
    if arguments.file is None or arguments.job is not None:
        raise WrongUsage("which sweep? `rackrate sweep SWEEP.toml`; `--example` prints one, `show JOB` the trials of one.")
    from tui.commands.run import Submission, _after_submit

    path = Path(arguments.file)
    asked = _asked(path, arguments)
    wanted = _wanted(path, asked, arguments)
    if wanted.on:
        context.query([wanted.on])
    with _program(path, asked, wanted) as packed, context.nodes(wanted.at) as nodes:
        task = Submission(context, arguments, wanted, packed, nodes)
        with _key_named(path, asked, wanted):
            if arguments.dry_run:
                return asyncio.run(task.dry_run())
            parts = asyncio.run(task.submit())
        return _after_submit(context, arguments, parts, follow=arguments.follow)


@contextlib.contextmanager
def _key_named(path: Path, asked: Sweep, wanted: Wanted) -> Iterator[None]:
    """Where a node says that it cannot keep a budget, or has too few GPUs, what made the job ask for them is named."""
    from tui.job_nodes import Refused

    try:
        yield
    except Refused as error:
        said = str(error)
        if asked.budget is not None and "a budget needs" in said:
            raise WrongUsage(f"{path}: `budget`: {said}") from None
        if asked.gpus and re.search("GPUs? (are|is) asked for, but this node has", said):
            key, need = "`trials_at_a_time` and `gpus_per_trial`", f"{asked.at_once} trials with {asked.gpus} GPU{'s' * (asked.gpus > 1)} each"
            raise WrongUsage(f"{path}: {key}: {need} take {wanted.spec.gpus} on each node; {said}") from None
        raise


def _asked(path: Path, arguments: argparse.Namespace) -> Sweep:
    from tui import amounts
    from tui.sweep import MOST_TRIALS, read

    asked = read(path)
    changes: dict[str, Any] = {}
    if arguments.trials is not None:
        if not 1 <= arguments.trials <= MOST_TRIALS:
            raise WrongUsage(f"--trials {arguments.trials}: has to be from 1 to {MOST_TRIALS}.")
        changes["trials"] = arguments.trials
    if arguments.budget is not None:
        try:
            changes["budget"] = amounts.dollars(arguments.budget)
        except ValueError as error:
            raise WrongUsage(f"--budget: {arguments.budget!r} {error}.") from None
    return msgspec.structs.replace(asked, **changes)


def _wanted(path: Path, asked: Sweep, arguments: argparse.Namespace) -> Wanted:
    """The job: GPUs for all trials at a time, the token, a grace in which trials save."""
    from tui.cli_sweep import KEYS
    from tui.jobspec import read
    from tui.recipes import PYTHON
    from tui.sweep import FILE

    options = {key: getattr(arguments, key) for key in KEYS}
    command = [PYTHON, "-m", "agent.recipes.sweep", FILE]
    wanted = read(options, command, table=(path, asked.job))
    spec, nodes = wanted.spec, wanted.nodes
    changes: dict[str, Any] = {"secrets": {**spec.secrets, TOKEN: secrets.token_hex(32)}, "name": spec.name or asked.name}
    if asked.gpus and not spec.gpus:
        changes["gpus"] = asked.gpus_a_node(nodes)
    if spec.gpus and spec.gpus < asked.gpus:
        raise WrongUsage(f"{path}: `gpus_per_trial`: {asked.gpus} are more than the {spec.gpus} GPUs of the job on each node.")
    if spec.gpus and not asked.gpus:
        raise WrongUsage(f"{path}: `gpus_per_trial`: the job asks for {spec.gpus} GPUs, and its trials for none.")
    if options["grace"] is None and "grace" not in asked.job:
        changes["grace_seconds"] = GRACE_SECONDS
    if asked.checkpoint_dir:
        changes["env"] = {"RACKRATE_CHECKPOINT_DIR": asked.checkpoint_dir, **spec.env}
    if asked.budget is not None:
        if not asked.gpus:
            raise WrongUsage(
                f"{path}: `budget`: it needs GPUs: what a job without one costs is worked out in reports; limit its `trials`, or its"
                " `time_limit` in [job]."
            )
        changes["budget_usd"] = asked.budget / nodes
    spec = msgspec.structs.replace(spec, **changes)
    return msgspec.structs.replace(wanted, spec=spec, processes_per_node=0 if nodes > 1 else None)


@contextlib.contextmanager
def _program(path: Path, asked: Sweep, wanted: Wanted) -> Iterator[Packed]:
    """The recipes, the plan, and the folder of the trials' own program."""
    from tui import recipes
    from tui.commands.run import _packed
    from tui.sweep import FILE

    with recipes.program() as folder, tempfile.TemporaryDirectory(prefix="rackrate-sweep-") as scratch:
        root = folder
        if wanted.folder is not None:
            root = Path(scratch) / "work"
            if (wanted.folder / "agent").exists():
                raise WrongUsage(f"{path}: [job] `workdir`: {wanted.folder} has an `agent` of its own, where the sweep's program goes.")
            shutil.copytree(wanted.folder, root, symlinks=True)
            shutil.copytree(folder / "agent", root / "agent")
        (root / FILE).write_text(asked.plan(wanted.nodes, wanted.spec.grace_seconds), "utf-8")
        with _packed(root, "the sweep's program: ") as packed:
            yield packed


# Showing one


def _show(context: Context, arguments: argparse.Namespace) -> int:
    from tui.commands.follow import asking
    from tui.sweep_show import record

    if not arguments.job:
        raise WrongUsage("which sweep? `rackrate sweep show JOB`; `rackrate jobs` lists jobs.")
    with context.nodes() as nodes:
        swept, jobs = asking(_gathered(context, nodes, arguments.job))
    costs = [job.cost for job in jobs]
    total = None if None in costs else sum((one for one in costs if one is not None), Decimal(0))
    if arguments.json:
        print_json({"jobs": [job.id for job in jobs], **record(swept, total)})
    else:
        _print(swept, total, running=any(job.state != "ended" for job in jobs))
    return ExitCode.DONE


async def _gathered(context: Context, nodes: Sequence[NodeConfig], text: str) -> tuple[Swept, list[wire.Job]]:
    """Of the part that has the lines: of several nodes only the head's does."""
    from tui.commands.jobs import _find
    from tui.sweep_show import Gathering

    found = await _find(context, nodes, [text])
    gathering = Gathering()
    jobs = []
    for one in await _all_parts(context, nodes, found):
        async with context.client_for(one.node) as client:
            jobs.append(await client.job(one.job.id))
            offset, rest = 0, ""
            while True:
                page = await client.log(one.job.id, offset, limit=PAGE_BYTES)
                *lines, rest = (rest + page.text).split("\n")
                gathering.feed(lines)
                if page.next_offset <= max(offset, page.offset):
                    break
                offset = page.next_offset
    if not gathering.is_sweep:
        raise WrongUsage(f"{fmt.clean(text)} is no sweep, or it has not begun: its log has no line of one.")
    return gathering.result(), jobs


async def _all_parts(context: Context, nodes: Sequence[NodeConfig], found: Sequence[Found]) -> Sequence[Found]:
    """Also the other parts of a run over several nodes, of which one was named."""
    from tui.job_find import list_jobs

    gangs = {one.job.gang for one in found} - {None}
    if not gangs:
        if len(found) > 1:
            from tui.job_find import ambiguous

            raise WrongUsage(ambiguous(found[0].job.name or "", list(found)))
        return found
    return [one for one in (await list_jobs(nodes, context.client_for)).found if one.job.gang in gangs]


def _print(swept: Swept, total: Decimal | None, *, running: bool) -> None:
    from tui.sweep_show import config_text, metric_text

    rows = [
        (f"{'*' if one.number == swept.best else ' '}{one.number}", fmt.clean(config_text(one)), metric_text(one),
         fmt.UNKNOWN if one.step is None else str(one.step), one.state, fmt.UNKNOWN if one.seconds is None else fmt.age(one.seconds),
         fmt.usd(one.cost), fmt.clean(one.why or ""))
        for one in swept.trials
    ]  # fmt: skip
    titles = ("TRIAL", "SETTINGS", fmt.clean(swept.metric or "metric").upper(), "STEP", "STATE", "TIME", "COST", "WHY")
    print_table(titles, rows, ("right", "left", "right", "right", "left", "right", "right", "left"))
    idle = swept.idle(total)
    if total is not None:
        print(f"\nthe job cost {fmt.usd(total)}{' so far' if running else ''}"
              + ("" if idle is None else f": its trials {fmt.usd(swept.trials_cost)}, the rest (starts, GPUs that waited) {fmt.usd(idle)}"))  # fmt: skip
    if swept.earlier_cost:
        print(f"before it was stopped its trials cost {fmt.usd(swept.earlier_cost)}, in other jobs")
    if swept.best is not None:
        print(f"best{'' if swept.over else ' so far'}: trial {swept.best}" + (f"; {fmt.clean(swept.command)}" if swept.command else ""))
    for text in (swept.stopped and f"stopped by {swept.stopped}; it goes on when it is run again", swept.why):
        if text:
            say(fmt.clean(text))

"""`calibrate`: measures nodes with the recipe of that name, as a job on each, and keeps what they told.

Invariant: what one node measured is kept as soon as it is there, whatever becomes of the others; Ctrl+C cancels every job that
was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tui import calibrations
from tui import format as fmt
from tui.commands.context import Context
from tui.errors import Failed, RackrateError, WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import BrokenOff, LiveLine, live_line

if TYPE_CHECKING:
    from agent import wire
    from pricing.calibration import Calibration
    from tui.commands.run import Submission
    from tui.config import NodeConfig
    from tui.fleet import Fleet, NodeView
    from tui.gang import Part
    from tui.jobspec import Wanted
    from tui.workdir import Packed

RECIPE = "calibrate"


def calibrate(context: Context, arguments: argparse.Namespace) -> int:
    """Measures the nodes that the query selects."""
    if arguments.set == ["list"]:
        from tui.recipes import show

        return show(RECIPE, as_json=arguments.json)
    wanted(arguments, 0)  # a wrong setting is said before anybody is asked
    calibrations.load(context.paths.data_dir)  # and a damaged file before anything is measured
    from tui.commands.run import packed_folder

    selects = context.query(arguments.query)
    with context.nodes() as nodes:
        fleet, views = asyncio.run(_views(context, arguments, nodes, selects))
        with packed_folder(wanted(arguments, 0)) as packed, live_line(step_only=True) as line:
            measuring = Measuring(context, arguments, fleet, nodes, packed, line)
            try:
                asyncio.run(measuring.run(views))
            except KeyboardInterrupt:
                raise BrokenOff(measuring.broken_off()) from None
    return _told(measuring, arguments)


def wanted(arguments: argparse.Namespace, gpus: int) -> Wanted:
    """The job on a node of which so many GPUs are measured. `WrongUsage`."""
    from tui.jobspec import read

    sets = [*([f"recipes={arguments.recipes}"] if arguments.recipes else []), *arguments.set]
    options = {"recipe": RECIPE, "set": sets, "env": arguments.env, "project": arguments.project, "time_limit": arguments.time_limit}
    return read({**options, **({"gpus": str(gpus)} if gpus else {})}, [])


async def _views(context: Context, arguments: argparse.Namespace, nodes: Sequence[NodeConfig], selects: Any) -> tuple[Fleet, list[NodeView]]:
    """The nodes to measure. `NoNode`, `WrongUsage`."""
    from tui.fetch import failures, fetch
    from tui.job_nodes import NoNode
    from tui.output import say_failures

    fleet = await fetch(nodes, context.client_for, context.catalog())
    failed = failures(fleet)
    now = context.clock()
    views = [view for view in fleet if view.info is not None and view.name not in failed and selects(view, now)]
    if not views:
        say_failures({fmt.clean(name): error for name, error in failed.items()})
        if failed and len(failed) == len(fleet):
            raise NoNode("no node answered.")
        raise WrongUsage(f"no node is selected by {' '.join(arguments.query)!r}; `rackrate nodes` lists them.")
    if len(views) > 1 and not arguments.query and not arguments.all:
        raise WrongUsage(f"measure which of {len(views)} nodes? Name one, give a query such as gpu:H100, or --all: each is busy for minutes.")
    return fleet, views


class Measuring:
    """One job on each node, all at once."""

    def __init__(
        self, context: Context, arguments: argparse.Namespace, fleet: Fleet, nodes: Sequence[NodeConfig], packed: Packed | None, line: LiveLine,
    ) -> None:  # fmt: skip
        self._context, self._arguments, self._packed, self._line = context, arguments, packed, line
        self._nodes = {node.name: node for node in nodes}
        self.sent: list[tuple[NodeConfig, asyncio.Future[list[Part]]]] = []
        self.cancelled: list[str] = []
        self.found: list[Calibration] = []
        self.failed: dict[str, str] = {}

    async def run(self, views: Sequence[NodeView]) -> None:
        try:
            await asyncio.gather(*(self._one(view) for view in views))
        except asyncio.CancelledError:
            await self._cancel()
            raise

    def broken_off(self) -> str:
        """What became of the jobs."""
        jobs, kept = len(self.cancelled), len(self.found)
        told = f"{fmt.counted(jobs, 'job')} cancelled" if jobs else "no job was cancelled"
        return f"{told}, {f'{kept} of the nodes measured and kept' if kept else 'nothing was measured'}."

    async def _one(self, view: NodeView) -> None:
        from agent.client import ClientError

        try:
            self.found += calibrations.add(self._context.paths.data_dir, [await self._measured(view)])
        except (RackrateError, ClientError) as error:
            self.failed[view.name] = str(error)

    async def _measured(self, view: NodeView) -> Calibration:
        part = await self._submitted(view)
        reading = calibrations.Reading()
        job = await self._followed(view, part, reading)
        from tui.job_follow import exit_code

        if exit_code(job):
            why = reading.sentence or job.evidence or f"it ended with {job.cause}"
            raise Failed(f"the job {job.id} measured nothing: {fmt.clean(why)}")
        return calibrations.calibration(reading, f"job {job.id} on {fmt.clean(view.name)}", **_facts(view))

    async def _submitted(self, view: NodeView) -> Part:
        """A submission that has begun is always waited for, so that no job is lost sight of."""
        from tui.commands.run import Submission

        assert view.info is not None
        count = len(view.info.gpus) if self._arguments.gpus is None else self._arguments.gpus
        node = self._nodes[view.name]
        task: Submission = Submission(self._context, self._arguments, wanted(self._arguments, count), self._packed, [node])
        sending = asyncio.ensure_future(task.submit())
        self.sent.append((node, sending))
        return (await asyncio.shield(sending))[0]

    async def _followed(self, view: NodeView, part: Part, reading: calibrations.Reading) -> wire.Job:
        from tui.job_follow import Follower

        name = fmt.clean(view.name)

        def write(text: str) -> None:
            for line in reading.feed(text):
                if line["event"] == "round":
                    self._line.tell(f"{name}: round {line.get('round')} of {line.get('rounds')}")

        self._line.tell(f"{name}: job {part.job.id} measures")
        async with self._context.client_for(part.place.node) as client:
            return await Follower(client, part.job.id, write, lambda text: self._line.tell(f"{name}: {text}"), start=1).run()

    async def _cancel(self) -> None:
        for node, sending in self.sent:
            with contextlib.suppress(Exception):
                part = (await sending)[0]
                async with self._context.client_for(node) as client:
                    if (await client.cancel(part.job.id)).state != "ended":
                        self.cancelled.append(part.job.id)


def _facts(view: NodeView) -> dict[str, Any]:
    """What the agent knows of the machine and the recipe does not."""
    from tui.records import money

    info = view.info
    assert info is not None
    return {
        "node": view.name, "cloud": info.cloud, "region": info.region, "instance_type": info.instance_type,
        "usd_per_hour": money(view.usd_per_hour), "gpu_count": len(info.gpus), "driver": info.driver_version, "cpu": info.cpu_model,
    }  # fmt: skip


def _told(measuring: Measuring, arguments: argparse.Namespace) -> ExitCode:
    if arguments.json:
        print_json({"calibrations": [calibrations.record(one) for one in measuring.found], "failed": measuring.failed})
    else:
        for number, one in enumerate(measuring.found):
            print("\n" * bool(number), end="")
            print_calibration(one)
    for name, error in measuring.failed.items():
        say(f"rackrate: {fmt.clean(name)}: {error}")
    if not measuring.failed:
        return ExitCode.DONE
    return ExitCode.PARTLY if measuring.found else ExitCode.FAILED


def print_calibration(found: Calibration) -> None:
    """Its title, its versions, its figures."""
    from tui.calibrations_text import TITLES, row, title, versions

    print(title(found))
    print(versions(found))
    print()
    print_table(TITLES, [row(one) for one in found.figures], ("left", "right", "right", "left"))

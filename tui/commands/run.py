"""`run`: submits a job to the node that suits it, or prints what that would do.

Invariant: what is wrong with a job is said before anything is sent; with `--dry-run` nothing is done anywhere. The id (or
the plan, or the followed log) is what goes to stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, say, say_failures

if TYPE_CHECKING:
    from agent import wire
    from pricing.weights import Weights
    from tui.config import NodeConfig
    from tui.fleet import Fleet
    from tui.gang import Part
    from tui.job_nodes import Offer, Place
    from tui.jobspec import Wanted
    from tui.quote import Quote
    from tui.workdir import Packed


def run(context: Context, arguments: argparse.Namespace) -> int:
    """Submits a job, or drives it under a spot policy."""
    if arguments.resume:
        from tui.commands.drive import resume

        return resume(context, arguments)
    if arguments.spot_policy:
        from tui.commands.drive import drive

        return drive(context, arguments, _command(arguments))
    _needs_policy(arguments)
    if arguments.recipe == "list" or arguments.set == ["list"]:
        from tui.recipes import show

        return show(arguments.recipe, as_json=arguments.json)
    from tui.job_options import OPTIONS
    from tui.jobspec import read

    options = {option.key: getattr(arguments, option.key) for option in OPTIONS}
    wanted = read(options, _command(arguments), arguments.file)
    if arguments.follow and wanted.spec.array:
        raise WrongUsage("-f follows one log; with --array use `rackrate job wait`, and `job logs` of a task.")
    if wanted.on:
        context.query([wanted.on])  # a wrong query is said before anybody is asked
    with packed_folder(wanted) as packed, context.nodes(wanted.at) as nodes:
        task = Submission(context, arguments, wanted, packed, nodes)
        if arguments.dry_run:
            return asyncio.run(task.dry_run())
        parts = asyncio.run(task.submit())
        return _after_submit(context, arguments, parts, follow=arguments.follow)


def _needs_policy(arguments: argparse.Namespace) -> None:
    for key in ("work", "changeover", "look", "spot_price"):
        if getattr(arguments, key) is not None:
            raise WrongUsage(f"--{key.replace('_', '-')} goes with --spot-policy.")


def _command(arguments: argparse.Namespace) -> list[str]:
    command: list[str] | None = getattr(arguments, "behind", None)
    if command == []:
        raise WrongUsage("there is nothing behind --; the command goes there, as in `rackrate run -- python train.py`.")
    return command or []


@contextlib.contextmanager
def packed_folder(wanted: Wanted) -> Iterator[Packed | None]:
    """What goes along with the job: a folder, or a recipe's program."""
    if wanted.recipe is not None:
        from tui.recipes import program

        with program() as folder, _packed(folder) as packed:
            yield packed
    elif wanted.folder is not None:
        with _packed(wanted.folder, f"{wanted.folder}: ") as packed:
            yield packed
    else:
        yield None


@contextlib.contextmanager
def _packed(folder: Path, called: str = "the recipe's program: ") -> Iterator[Packed]:
    from tui.workdir import pack

    with tempfile.TemporaryDirectory(prefix="rackrate-") as scratch, _progress("packing") as told:
        packed = pack(folder, Path(scratch) / "work.tar.gz", told=told)
        told(0, 0)
        say(f"{called}{fmt.counted(packed.files, 'file')}, {fmt.size(packed.bytes)}, {fmt.size(packed.packed_bytes)} packed")
        yield packed


@contextlib.contextmanager
def _progress(doing: str) -> Iterator[Callable[[int, int], None]]:
    """A line on stderr that is written over; nothing where stderr is no terminal. (0, 0) clears it."""
    import sys
    import time

    shown = [0.0, 0]

    def told(done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        if not total:
            sys.stderr.write("\r\x1b[K" if shown[1] else "")
            shown[1] = 0
        elif time.monotonic() - shown[0] > 0.1:
            sys.stderr.write(f"\r{doing} {done * 100 // total:>3}% of {fmt.size(total)}\x1b[K")
            shown[:] = [time.monotonic(), 1]
        sys.stderr.flush()

    try:
        yield told
    finally:
        told(0, 0)


class Submission:
    """One submission; everything of it that asks nodes."""

    def __init__(
        self,
        context: Context,
        arguments: argparse.Namespace,
        wanted: Wanted,
        packed: Packed | None,
        nodes: Sequence[NodeConfig],
    ) -> None:
        self.client_for = context.client_for
        self._context = context
        self._fleet: Fleet | None = None
        self._catalog = context.catalog
        self._terms_path = context.terms_path
        self._query = context.query
        self._arguments = arguments
        self.wanted = wanted
        self._packed = packed
        self.nodes = nodes

    async def dry_run(self) -> ExitCode:
        from tui import job_nodes, quote_text
        from tui.job_text import plan_lines, plan_record

        chosen, why = await self._choose()
        say(why)
        if self.wanted.nodes > 1:
            changes = {"gang": _gang(self.wanted, host_here=True)}
            chosen[:1] = await job_nodes.ask([chosen[0].place], self.wanted, self.client_for, **changes)
        quoted = await self._quote(chosen[0]) if self.wanted.nodes == 1 else None
        if self._arguments.json:
            records = [plan_record(offer.place.node.name, _plan(offer)) for offer in chosen]
            print_json(records if self.wanted.nodes > 1 else {**records[0], "quote": quoted and quote_text.record(quoted)})
            return ExitCode.DONE
        for number, offer in enumerate(chosen):
            print("\n" * bool(number) + "\n".join(plan_lines(offer.place.node.name, _plan(offer))))
        if self._packed:
            print(f"{'sends':<15}sha256:{self._packed.sha256}, {fmt.size(self._packed.packed_bytes)}")
        if quoted is not None:
            print("\n" + "\n".join(quote_text.lines(quoted)))
        return ExitCode.DONE

    async def _quote(self, offer: Offer) -> Quote | None:
        """What it would cost, and what else there is."""
        from tui.commands.run_quote import quote_of

        assert self._fleet is not None
        return await quote_of(self._context, self, self._fleet, offer, self._weights())

    async def submit(self) -> list[Part]:
        """The parts that were submitted: one, or one for each node."""
        chosen, why = await self._choose()
        self._put_price(chosen)
        places = [offer.place for offer in chosen]
        if self.wanted.nodes > 1:
            from tui import gang

            gang.endpoint_of(self.wanted, places)
        upload = await self.upload(places)
        if self.wanted.nodes > 1:
            parts = await gang.run(places, self.wanted, self.client_for, upload=upload)
        else:
            parts = [await self.submit_one(places[0], upload)]
        say(why)
        return parts

    def _put_price(self, chosen: Sequence[Offer]) -> None:
        """A recipe that tells what inference would cost is told what it runs on costs."""
        if self.wanted.recipe is None or self.wanted.nodes > 1 or (plan := chosen[0].plan) is None:
            return
        import msgspec

        from tui.recipes import with_price

        spec = msgspec.structs.replace(self.wanted.spec, command=with_price(self.wanted.spec.command, plan.usd_per_hour))
        self.wanted = msgspec.structs.replace(self.wanted, spec=spec)

    async def submit_one(self, place: Place, upload: str | None, **changes: object) -> Part:
        from agent.client import AgentRefused, Unreachable
        from tui.gang import Part
        from tui.job_nodes import NoNode, Refused
        from tui.jobspec import priced

        spec = priced(self.wanted.spec, place.usd_per_hour, upload=upload, **changes)
        try:
            async with self.client_for(place.node) as client:
                return Part(place, await client.submit(spec))
        except AgentRefused as error:
            raise Refused(f"{place.name}: {fmt.clean(error.text)}", error.status) from None
        except Unreachable as error:
            raise NoNode(f"{error}; whether the job was taken is not known: look at `rackrate jobs`.") from None

    async def _choose(self) -> tuple[list[Offer], str]:
        """The nodes, and why these."""
        from tui import job_nodes

        places = await self.places()
        changes = {} if self.wanted.nodes == 1 else {"gang": _gang(self.wanted)}
        offers = await job_nodes.ask(places, self.wanted, self.client_for, **changes)
        if self.wanted.nodes == 1:
            offer, why = job_nodes.choose(offers)
            return [offer], why
        return _choose_many(offers, self.wanted.nodes)

    async def places(self, *, quiet: bool = False) -> list[Place]:
        """The nodes that the query selects, and where `--after` keeps it: jobs wait only for jobs of their own node.

        `quiet`: nodes that do not answer are left out without a word; there may be none.
        """
        import time

        from tui import job_nodes
        from tui.fetch import failures, fetch

        await self._resolve_after()
        self._fleet = fleet = await fetch(self.nodes, self.client_for, self._catalog())
        failed = failures(fleet)
        say_failures({} if quiet else {fmt.clean(name): error for name, error in failed.items()})
        if not quiet and failed and len(failed) == len(fleet):
            raise job_nodes.NoNode("no node answered.")
        selects, now = self._query([self.wanted.on or ""]), time.monotonic()
        views = [view for view in fleet if view.info is not None and view.name not in failed and selects(view, now)]
        if not views and not quiet:
            raise WrongUsage(f"no node is selected by {self.wanted.on!r}; `rackrate nodes` lists them.")
        return job_nodes.places(self.nodes, views, self.wanted.spec, self._weights())

    def _weights(self) -> Weights:
        """What processors and memory are worth; only jobs without a GPU ask for it."""
        from pricing.weights import Weights
        from tui.job_price import without_gpu

        if not without_gpu(self.wanted.spec):
            return Weights()
        from pricing.terms import load

        return load(self._terms_path, must_exist=False).weights

    async def _resolve_after(self) -> None:
        """Names and beginnings of ids become ids, and the nodes those that have them."""
        if not self.wanted.spec.after:
            return
        import msgspec

        from tui import job_find

        listing = await job_find.list_jobs(self.nodes, self.client_for)
        ids, homes = [], set()
        for text in self.wanted.spec.after:
            how, found, name = text.rpartition(":")
            try:
                job = await job_find.find(listing, self.nodes, self.client_for, name)
            except job_find.NotFound as error:
                raise WrongUsage(f"--after {fmt.clean(text)}: {error}") from None
            ids.append(f"{how}{found}{job.job.id}")
            homes.add(job.node.name)
        if len(homes) > 1:
            raise WrongUsage(
                f"--after: a job waits for jobs of one node, and these are on {' and '.join(sorted(map(fmt.clean, homes)))}."
            )
        self.nodes = [node for node in self.nodes if node.name in homes]
        spec = msgspec.structs.replace(self.wanted.spec, after=tuple(ids))
        self.wanted = msgspec.structs.replace(self.wanted, spec=spec)

    async def upload(self, places: Sequence[Place]) -> str | None:
        """Sends the folder's archive to each of them."""
        if self._packed is None:
            return None
        from agent.client import AgentRefused
        from tui.job_nodes import Refused

        packed = self._packed
        for place in places:
            with _progress(f"sending to {place.name}") as told:
                try:
                    async with self.client_for(place.node) as client:
                        await client.upload(packed.sha256, packed.file, sent=lambda done: told(done, packed.packed_bytes))  # noqa: B023
                except AgentRefused as error:
                    raise Refused(f"{place.name}: {fmt.clean(error.text)}", error.status) from None
        return f"sha256:{packed.sha256}"


def _gang(wanted: Wanted, *, host_here: bool = False) -> wire.Gang:
    from tui import gang

    return gang.gang_of(wanted, gang.gang_id(), host_here=host_here)


def _plan(offer: Offer) -> Any:
    """Raises what the node said instead."""
    if offer.plan is None:
        from tui.job_nodes import nobody

        raise nobody([offer])
    return offer.plan


def _choose_many(offers: Sequence[Offer], count: int) -> tuple[list[Offer], str]:
    """The cheapest of those that would start their part now."""
    from tui.job_nodes import Refused, by_price, hourly, nobody

    planned = by_price(offers)
    starting = [offer for offer in planned if _plan(offer).starts_now]
    if not planned:
        raise nobody(offers)
    if len(starting) < count:
        waiting = [offer for offer in offers if offer not in starting]
        why = "; ".join(f"{one.place.name}: {fmt.clean(one.refusal or _plan(one).reason).rstrip('.')}" for one in waiting[:5])
        few = f"{len(starting)} of the {count} nodes that are needed would start it now"
        wrong = len(offers) < count
        raise Refused(f"only {few}{f' ({why})' if why else ''}; nothing was started.", 400 if wrong else 409)
    chosen = starting[:count]
    prices = [_plan(offer).usd_per_hour for offer in chosen]
    total = hourly(None) if None in prices else f"{hourly(sum(prices))} together"
    names = ", ".join(offer.place.name for offer in chosen)
    return chosen, f"{names} start it now, {total}: {count} of {len(starting)} that would, the cheapest first"


def _after_submit(context: Context, arguments: argparse.Namespace, parts: list[Part], *, follow: bool) -> int:
    from tui.job_text import job_record

    for part in parts:
        for text in (*part.job.not_enforced, *part.job.warnings):
            say(f"rackrate: {part.place.name}: {fmt.clean(text)}")
    if not follow or not arguments.follow:
        if arguments.json:
            records = [job_record(part.place.node.name, part.job) for part in parts]
            print_json(records[0] if len(records) == 1 and parts[0].job.gang is None else records)
        else:
            for part in parts:
                print(part.job.id, flush=True)
    if not follow:
        return ExitCode.DONE
    from tui.commands.follow import follow_parts

    if arguments.follow:
        say(f"job {', '.join(part.job.id for part in parts)}; Ctrl-C asks whether to leave it")
    nodes = [(part.place.node, part.job.id) for part in parts]
    return follow_parts(context, nodes, first=1, quiet=not arguments.follow)

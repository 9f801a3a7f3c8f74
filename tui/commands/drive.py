"""`run --spot-policy`: one job under a deadline, on spot nodes while the policy says so, on demand when it must.

Invariant: the driver may end at any moment (Ctrl-C, a crash, a reboot): the job goes on where it is, and `run --resume ID`
takes it up. What was decided is told on stderr; the outcome goes to stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tui import amounts
from tui import format as fmt
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, say

if TYPE_CHECKING:
    from agent import wire
    from pricing.spot import Policy
    from tui.commands.run import Submission
    from tui.drive_file import DriveFile
    from tui.job_nodes import Offer, Place
    from tui.jobspec import Wanted
    from tui.spot_drive import Kind, Progress

LOOK = "30s"
TOGETHER_SECONDS = 2.0
"""What is asked within so long (spot, then on demand) looks for the nodes once; what each would do is asked each time."""
CHANGEOVER = "10m"


def drive(context: Context, arguments: argparse.Namespace, command: list[str]) -> int:
    """A new drive: `run --spot-policy`."""
    from tui.drive_file import DriveFile, Saved
    from tui.job_options import OPTIONS
    from tui.jobspec import read

    options = {option.key: getattr(arguments, option.key) for option in OPTIONS}
    wanted = _fit(read(options, command, arguments.file), arguments)
    progress = _begin(wanted, arguments)
    _policy(progress.policy)

    def made(priced: Progress) -> DriveFile:
        saved = Saved(
            options=options, command=command, file=arguments.file, folder=os.getcwd(), progress=priced,
            look_seconds=_seconds(arguments.look or LOOK, "--look"),
        )  # fmt: skip
        return DriveFile.make(context.paths.data_dir, saved)

    return _go(context, arguments, wanted, progress, made)


def resume(context: Context, arguments: argparse.Namespace) -> int:
    """`run --resume ID`: takes up a drive whose driver has ended."""
    from tui.drive_file import DriveFile
    from tui.jobspec import read

    file = DriveFile.open(context.paths.data_dir, arguments.resume)
    saved = file.saved
    try:
        os.chdir(saved.folder)
    except OSError as error:
        raise WrongUsage(f"{saved.folder}, from where it was run, cannot be entered ({error.strerror}).") from None
    wanted = read(saved.options, saved.command, saved.file)
    return _go(context, arguments, wanted, saved.progress, lambda _: file)


def _fit(wanted: Wanted, arguments: argparse.Namespace) -> Wanted:
    """What a job has to be to be driven."""
    for flag, wrong in (
        ("--nodes", wanted.nodes > 1), ("--array", bool(wanted.spec.array)), ("--after", bool(wanted.spec.after)),
        ("--follow", arguments.follow), ("--dry-run", arguments.dry_run),
    ):  # fmt: skip
        if wrong:
            raise WrongUsage(f"{flag} does not go with --spot-policy, which moves one job from node to node.")
    if arguments.work is None:
        raise WrongUsage("--spot-policy needs --work: how long the job computes in all, such as 48h.")
    if wanted.spec.deadline is None:
        raise WrongUsage("--spot-policy needs --deadline, such as +60h.")
    return wanted


def _begin(wanted: Wanted, arguments: argparse.Namespace) -> Progress:
    from tui.gang import gang_id
    from tui.spot_drive import Progress

    now, deadline = datetime.now(UTC), wanted.spec.deadline
    assert deadline is not None
    work, changeover = _seconds(arguments.work, "--work"), _seconds(arguments.changeover or CHANGEOVER, "--changeover")
    least, left = work + changeover, (deadline - now).total_seconds()
    if left < least:
        raise WrongUsage(
            f"--deadline: it is {fmt.age(max(0.0, left))} away, and the job takes at least {fmt.age(least)}: "
            f"{fmt.age(work)} of work and one changeover of {fmt.age(changeover)}."
        )
    return Progress(
        id=gang_id(), policy=arguments.spot_policy, work_seconds=work, changeover_seconds=changeover, began_at=now,
        deadline=deadline.astimezone(UTC), spot_usd=_price(arguments.spot_price), on_demand_usd=Decimal(0),
    )  # fmt: skip


def _seconds(text: str, flag: str) -> float:
    try:
        return amounts.duration(text)
    except ValueError as error:
        raise WrongUsage(f"{flag}: {text!r} {error}.") from None


def _price(text: str | None) -> Decimal:
    """0 where it is not given: it is then asked of the nodes."""
    try:
        return amounts.dollars(text) if text else Decimal(0)
    except ValueError as error:
        raise WrongUsage(f"--spot-price: {text!r} {error}.") from None


def _policy(name: str) -> Policy:
    from pricing.spot import policy_of

    if name == "omniscient":
        raise WrongUsage("--spot-policy omniscient knows the future: it can be backtested, not run.")
    return policy_of(name)


def _go(context: Context, arguments: argparse.Namespace, wanted: Wanted, progress: Progress, file_of: Any) -> int:
    from tui.commands.run import Submission, packed_folder

    with packed_folder(wanted) as packed, context.nodes(wanted.at) as nodes:
        submission = Submission(context, arguments, wanted, packed, nodes)
        return asyncio.run(_driven(submission, wanted, progress, file_of, as_json=arguments.json))


async def _driven(submission: Submission, wanted: Wanted, progress: Progress, file_of: Any, *, as_json: bool) -> int:
    fleet = _Fleet(submission)
    if not progress.on_demand_usd:
        await _ask_prices(fleet, progress)
    file: DriveFile = file_of(progress)
    from tui.spot_drive import Drive

    drive = Drive(
        progress, _policy(progress.policy), fleet, look_seconds=file.saved.look_seconds,
        grace_seconds=wanted.spec.grace_seconds, save=lambda _: file.write(), told=say,
    )  # fmt: skip
    say(f"run {progress.id} under {progress.policy}; Ctrl-C leaves the job where it is: `rackrate run --resume {progress.id}`")
    over = False
    try:
        await drive.run()
        over = True
    finally:
        file.close(remove=over)
        if not over:
            say(f"the job goes on where it is; `rackrate run --resume {progress.id}` drives it again")
    return _outcome(progress, as_json=as_json)


async def _ask_prices(fleet: _Fleet, progress: Progress) -> None:
    """What the policy weighs; a price that is not known is never taken as low."""
    from tui.spot_drive import price_of

    found: dict[str, Decimal | None] = {}
    for kind in ("spot", "on_demand"):
        prices = [price_of(offer) for offer in await fleet.offers(kind) if offer.plan is not None]  # type: ignore[arg-type]
        found[kind] = min((price for price in prices if price is not None), default=None)
    if found["on_demand"] is None:
        raise WrongUsage(
            "no on-demand node with a known price would take the job, and without one a deadline cannot be kept; "
            "set usd_per_hour or the instance type in its agent.toml, or add such a node."
        )
    progress.on_demand_usd = found["on_demand"]
    spot = progress.spot_usd or found["spot"]
    if not spot:
        raise WrongUsage("no spot node with a known price would take the job now; say what one costs: --spot-price 0.97usd.")
    progress.spot_usd = spot


def _outcome(progress: Progress, *, as_json: bool) -> int:
    from tui.spot_drive import outcome

    record = outcome(progress, datetime.now(UTC))
    if as_json:
        print_json(record)
    else:
        cost = "at a cost that is not known" if record["cost"] is None else f"for {fmt.usd(Decimal(record['cost']))}"
        print(
            f"ended ({fmt.clean(progress.cause or '')}) {cost}: {record['spot_hours']:.2f} h on spot, "
            f"{record['on_demand_hours']:.2f} h on demand, {record['moves']} moves{', LATE' if record['late'] else ''}"
        )
    if progress.cause == "exit:0":
        return ExitCode.DONE
    return progress.exit_code or ExitCode.FAILED


class _Fleet:
    """The configured nodes, as the drive asks them."""

    def __init__(self, submission: Submission, clock: Callable[[], float] = time.monotonic) -> None:
        self._submission = submission
        self._clock = clock
        self._places: list[Place] = []
        self._fresh_until = float("-inf")

    async def offers(self, kind: Kind) -> Sequence[Offer]:
        from tui import job_nodes

        if self._clock() >= self._fresh_until:
            self._places = await self._submission.places(quiet=True)
            self._fresh_until = self._clock() + TOGETHER_SECONDS
        places = [place for place in self._places if (place.purchase == "spot") == (kind == "spot")]
        return job_nodes.by_price(await job_nodes.ask(places, self._submission.wanted, self._submission.client_for))

    async def submit(self, offer: Offer) -> wire.Job:
        upload = await self._submission.upload([offer.place])
        return (await self._submission.submit_one(offer.place, upload, interruptible=True, retries=0)).job

    async def job(self, node: str, id: str) -> wire.Job:
        async with self._client(node) as client:
            return await client.job(id)

    async def cancel(self, node: str, id: str) -> wire.Job:
        async with self._client(node) as client:
            return await client.cancel(id)

    def _client(self, name: str) -> Any:
        from tui.errors import Failed

        for node in self._submission.nodes:
            if node.name == name:
                return self._submission.client_for(node)
        raise Failed(f"node {fmt.clean(name)} is not in the configuration any more.")

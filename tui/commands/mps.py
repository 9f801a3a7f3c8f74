"""`mps NODE GPU`: how GPUs are shared through MPS now, and what a client gets that names no limit.

Invariant: without `--share` and `--memory` it only looks.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from tui import blast
from tui import format as fmt
from tui.commands.agree import agree
from tui.commands.context import Context
from tui.commands.node import fault_code
from tui.errors import Failed, RackrateError
from tui.exit_codes import ExitCode
from tui.node_orders import chosen_gpus, gpu_indexes, share_setting
from tui.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent import wire
    from tui.config import NodeConfig


def mps(context: Context, arguments: argparse.Namespace) -> int:
    """Shows or sets it."""
    from tui.fetch import fetch

    sets = arguments.share is not None or arguments.memory is not None
    setting = share_setting(arguments.share, arguments.memory) if sets else None
    indexes = gpu_indexes(arguments.gpu)
    with context.nodes([arguments.node]) as (node,):
        view = asyncio.run(fetch([node], context.client_for, context.catalog()))[node.name]
        if view.error:
            return _unread(view.error)
        gpus = chosen_gpus(view.gpus, indexes, fmt.clean(view.name))
        if setting is not None:
            whose = f"GPU {gpus[0].index}" if len(gpus) == 1 else f"{len(gpus)} GPUs"
            sentences = blast.share_sentences(view, gpus, setting)
            agree(f"Set the MPS share of {whose} of {fmt.clean(view.name)}?", sentences, len(gpus), yes=arguments.yes)
        answers = asyncio.run(_ask(context, node, gpus, setting))
    return _report(gpus, answers, as_json=arguments.json)


def _unread(error: str) -> int:
    failed = Failed(fmt.clean(error))
    failed.exit_code = ExitCode.UNREACHABLE
    raise failed


Answer = "wire.MpsState | Exception"


async def _ask(context: Context, node: NodeConfig, gpus: Sequence[wire.Gpu], setting: wire.MpsSetting | None) -> list[Answer]:
    from agent.client import ClientError

    answers: list[Answer] = []
    async with context.client_for(node) as client:
        for gpu in gpus:
            try:
                answers.append(await (client.mps(gpu.uuid) if setting is None else client.mps_set(gpu.uuid, setting)))
            except (ClientError, RackrateError) as error:
                answers.append(error)
    return answers


def _report(gpus: Sequence[wire.Gpu], answers: Sequence[Answer], *, as_json: bool) -> int:
    from tui.job_text import filled

    faults = [answer for answer in answers if isinstance(answer, Exception)]
    for gpu, answer in zip(gpus, answers, strict=True):
        if isinstance(answer, Exception):
            say(f"rackrate: GPU {gpu.index}: {fmt.clean(getattr(answer, 'text', None) or str(answer))}")
    states = [(gpu, answer) for gpu, answer in zip(gpus, answers, strict=True) if not isinstance(answer, Exception)]
    if as_json:
        print_json([{"index": gpu.index, **filled(state)} for gpu, state in states])
    elif states:
        titles = ("GPU", "STATE", "SHARE", "MEMORY", "CLIENTS", "JOBS", "WHY")
        print_table(titles, [_cells(gpu, state) for gpu, state in states], ("right", "left", "right", "right", "right", "left", "left"))
    if faults and states:
        return ExitCode.PARTLY
    return fault_code(faults[0]) if faults else ExitCode.DONE


def _cells(gpu: wire.Gpu, state: wire.MpsState) -> tuple[str, ...]:
    percent, memory = state.active_thread_percentage, state.pinned_memory_bytes
    jobs = ", ".join(f"{job} {share.normalize():f}" for job, share in state.shares.items())
    return (
        str(gpu.index), state.state, fmt.UNKNOWN if percent is None else f"{percent.normalize():f}%",
        fmt.UNKNOWN if memory is None else fmt.size(memory), str(len(state.clients)), fmt.clean(jobs) or fmt.UNKNOWN,
        fmt.clean(state.reason or "") or fmt.UNKNOWN,
    )  # fmt: skip

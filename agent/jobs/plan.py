"""What a start does, worked out before anything is done; a dry run shows it, a start does it.

Invariant: `prepare` is the only place where an attempt is put together, so a dry run lists exactly the steps of a start.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from agent import wire
from agent.isolation.limits import Limits, ranges
from agent.isolation.plan import GroupPlan, plan
from agent.jobs import launch
from agent.jobs.context import Context
from agent.jobs.launch import Part, Places
from agent.jobs.shapes import Placed
from agent.jobs.users import RunAs

CHECKPOINT = "checkpoint"
WORK = "work"


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, ready to be started."""

    spec: wire.JobSpec
    part: Part
    places: Places
    user: RunAs
    group: GroupPlan
    placed: Placed
    before_kill: tuple[Mapping[str, Any], ...] = ()

    def launch(self, context: Context) -> dict[str, Any]:
        """launch.json."""
        return launch.launch(
            self.spec,
            self.part,
            self.places,
            self.user,
            context.jobs,
            context.environ,
            group=self.group.to_dict(),
            boot_id=context.boot_id,
            before_kill=self.before_kill,
        )


def prepare(
    context: Context,
    spec: wire.JobSpec,
    part: Part,
    user: RunAs,
    placed: Placed,
    *,
    devices: tuple[str, ...] | None = None,
    before_kill: Sequence[Mapping[str, Any]] = (),
) -> Prepared:
    """`devices`: GPU device files that the job may open; None: not held off others."""
    return Prepared(
        spec=spec,
        part=part,
        places=places(context, spec, part, user),
        user=user,
        group=plan(context.host, part.unit, limits(spec, placed, devices)),
        placed=placed,
        before_kill=tuple(before_kill),
    )


def limits(spec: wire.JobSpec, placed: Placed, devices: tuple[str, ...] | None) -> Limits:
    """Its memory is not walled in to a NUMA node: a limit above what that node has would end in an OOM kill."""
    return Limits(
        memory_bytes=spec.memory_bytes,
        cpu_ids=placed.cpu_ids,
        cpus=spec.cpus,
        cpu_quota=spec.cpu_quota,
        pids=spec.pids,
        io_weight=spec.io_weight,
        device_paths=devices,
    )


def places(context: Context, spec: wire.JobSpec, part: Part, user: RunAs) -> Places:
    job = context.job_folder(part.job)
    return Places(
        job=job,
        attempt=context.attempt_folder(part.job, part.number),
        runtime=context.runtime(part.job, part.number),
        directory=_directory(spec, str(job / WORK), user),
        checkpoint=job / CHECKPOINT,
    )


def _directory(spec: wire.JobSpec, work: str, user: RunAs) -> str:
    """Where it runs: the upload, the folder that was named, else the user's home where there is one."""
    if spec.upload is not None:
        return os.path.normpath(os.path.join(work, spec.workdir or "."))
    if spec.workdir is not None:
        return spec.workdir
    return user.home if os.path.isdir(user.home) else "/"


def show(
    context: Context,
    prepared: Prepared,
    *,
    starts_now: bool,
    gpus: Sequence[wire.PlanStep],
    warnings: Sequence[str],
    usd_per_hour: Decimal | None,
) -> wire.JobPlan:
    """The dry run's answer. `gpus`: what MPS and the compute mode need before the job starts."""
    launched = prepared.launch(context)
    placed, group = prepared.placed, prepared.group
    return wire.JobPlan(
        node=context.node,
        starts_now=starts_now,
        reason=placed.reason,
        gpus=placed.gpus,
        gpu_indexes=placed.gpu_indexes,
        cpus=ranges(placed.cpu_ids) or None,
        numa_node=placed.numa_nodes[0] if len(placed.numa_nodes) == 1 else None,
        argv=tuple(launched["argv"]),
        environment=tuple(sorted(launched["environment"])),
        user=prepared.user.name,
        workdir=prepared.places.directory,
        enforcement=group.enforcement,
        steps=(*gpus, *_steps(group, prepared)),
        not_enforced=group.not_enforced,
        warnings=tuple(warnings),
        usd_per_hour=usd_per_hour,
    )


def _steps(group: GroupPlan, prepared: Prepared) -> list[wire.PlanStep]:
    steps = []
    if group.launcher:
        steps.append(wire.PlanStep(kind="run", target=shlex.join(group.launcher)))
    steps += [wire.PlanStep(kind=step.kind, target=step.path, text=step.text, limit=step.limit) for step in group.steps]
    steps.append(wire.PlanStep(kind="run", target=shlex.join(launch.argv(prepared.spec))))
    return steps

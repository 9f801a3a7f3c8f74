"""Which job holds which GPUs of a node, and when: a week of jobs at a time, drawn from the seed.

Invariant: `draw_week` is a pure function of its arguments, and within a lane jobs never overlap.
"""

from __future__ import annotations

import random
from bisect import bisect_right

import msgspec

from agent.simulation import curves, people
from agent.simulation.people import HOUR, WEEK

WARM_LEVEL = 0.03
"""GPU level while a job still loads its data and weights."""


class LaneSpec(msgspec.Struct, frozen=True):
    """Some GPUs of a node that jobs take together, and how soon the next job comes.

    `gap_hours` counts hours of full demand; with probability `queued` the next job already waits.
    A guest shares the GPU of the lane before it; lanes that share say so with a `scale` that sums to at most 1.
    """

    size: int
    role: str
    gap_hours: float
    queued: float = 0.0
    guest: bool = False
    scale: float = 1.0


PROFILES: dict[str, tuple[tuple[LaneSpec, ...], ...]] = {
    "busy": (
        (LaneSpec(8, "batch", 0.5, 0.93),),
        (LaneSpec(4, "batch", 0.5, 0.93), LaneSpec(4, "batch", 0.5, 0.9)),
        (LaneSpec(4, "batch", 0.5, 0.93), LaneSpec(2, "batch", 0.7, 0.9), LaneSpec(2, "batch", 0.7, 0.85)),
    ),
    "mixed": (
        (LaneSpec(4, "batch", 1.0, 0.8), LaneSpec(2, "batch", 1.5, 0.6), LaneSpec(1, "desk", 1.5), LaneSpec(1, "desk", 1.5)),
        (LaneSpec(2, "batch", 1.0, 0.8), LaneSpec(2, "batch", 1.0, 0.8), LaneSpec(2, "batch", 1.5, 0.6),
         LaneSpec(1, "desk", 1.5), LaneSpec(1, "desk", 1.5, scale=0.5), LaneSpec(1, "desk", 4.0, guest=True, scale=0.5)),
    ),
    "half": (
        (LaneSpec(4, "batch", 0.7, 0.85), LaneSpec(1, "desk", 3.0), LaneSpec(1, "quiet", 20.0), LaneSpec(2, "quiet", 40.0)),
    ),
    "idle": ((LaneSpec(1, "quiet", 60.0),),),
    "serve": (
        (LaneSpec(1, "serve", 0.1, 0.95), LaneSpec(1, "serve", 0.1, 0.95), LaneSpec(1, "serve", 0.2, 0.9), LaneSpec(1, "desk", 2.0)),
    ),
    "desk": ((LaneSpec(1, "desk", 0.7, scale=0.5), LaneSpec(1, "desk", 2.0, guest=True, scale=0.5)),),
}
"""profile -> patterns; one pattern is drawn a week and repeated until the node's GPUs are used up."""

ROLE_KINDS: dict[str, dict[str, float]] = {
    "batch": {"train": 1.0, "starved": 0.35, "sweep": 0.7, "evaluate": 0.5},
    "desk": {"notebook": 1.0, "evaluate": 0.2},
    "quiet": {"notebook": 0.6, "evaluate": 0.6, "sweep": 0.3},
    "serve": {"serve": 1.0},
}

KIND_SKILL = {
    "train": "train", "starved": "train", "sweep": "sweep", "evaluate": "evaluate", "notebook": "notebook", "serve": "serve",
}  # fmt: skip
"""kind -> the field of `User` that says how often this user does it."""

JOB_WORDS = {"train": "train", "starved": "train", "sweep": "sweep", "evaluate": "eval", "notebook": "notebook", "serve": "api"}

COMMANDS: dict[str, tuple[str, ...]] = {
    "train": (
        "python train.py --config configs/{project}-large.yaml",
        "python -m torch.distributed.run train.py --config {project}.yaml",
        "python finetune.py --model {project}-base --bf16",
    ),
    "starved": (
        "python train.py --data /scratch/{project}/raw --workers 4",
        "python pretrain.py --stream --config {project}.yaml",
    ),
    "sweep": ("python sweep.py --trial {number}", "ray::train_{project}"),
    "evaluate": ("python evaluate.py --checkpoint ckpt-{number}.pt", "python -m lm_eval --model {project}"),
    "notebook": ("python -m ipykernel_launcher -f kernel-{number}.json", "jupyter-lab --no-browser"),
    "serve": (
        "python -m vllm.entrypoints.openai.api_server --model {project}-7b",
        "tritonserver --model-repository /models/{project}",
    ),
}

DURATIONS: dict[str, tuple[float, float, float, float]] = {
    "train": (9.0, 0.9, 0.6, 80.0),
    "starved": (6.0, 0.8, 0.5, 48.0),
    "sweep": (0.9, 0.5, 0.2, 4.0),
    "evaluate": (0.4, 0.6, 0.08, 2.0),
    "notebook": (3.5, 0.6, 0.3, 9.0),
    "serve": (60.0, 0.6, 12.0, 140.0),
}
"""kind -> median hours, sigma of the logarithm, shortest, longest."""

MEMORY = {
    "train": (0.7, 0.96), "starved": (0.55, 0.85), "sweep": (0.3, 0.7),
    "evaluate": (0.35, 0.8), "notebook": (0.08, 0.55), "serve": (0.8, 0.93),
}  # fmt: skip
"""kind -> part of the GPU's memory that the job holds, least and most."""

WARM_SECONDS = {"train": 150.0, "starved": 90.0, "sweep": 25.0, "evaluate": 30.0, "notebook": 8.0, "serve": 75.0}
SLOT_SECONDS = {
    "train": (12.0, 30.0), "starved": (8.0, 16.0), "sweep": (4.0, 8.0),
    "evaluate": (3.0, 6.0), "notebook": (9.0, 14.0), "serve": (60.0, 60.0),
}  # fmt: skip
XIDS = (31, 13, 43, 31, 94)
FAILURE_RATIO = 0.04


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job on one lane. Times in seconds since the epoch; `level` and `area` per GPU of the lane."""

    id: str
    user: str
    project: str
    kind: str
    command: str
    pid: int
    started: float
    ended: float
    curve: curves.Curve
    slot: float
    anchor: float
    warm: float
    area_at_warm: float
    scale: float
    intensity: float
    """Part of the board's power range that a level of 1 draws."""
    memory_ratio: float
    xid: int | None = None
    """The error the driver logs when the job ends badly."""

    def level(self, seconds: float) -> float:
        """0-1: how busy each GPU of the job is at this moment."""
        if seconds - self.started < self.warm:
            return WARM_LEVEL
        return self.scale * self.curve.level(seconds - self.anchor, self.slot)

    def area(self, seconds: float) -> float:
        """Integral of `level` from the start to `seconds`, in seconds of a fully busy GPU."""
        elapsed = seconds - self.started
        if elapsed <= self.warm:
            return WARM_LEVEL * elapsed
        return WARM_LEVEL * self.warm + self.scale * (self.curve.area(seconds - self.anchor, self.slot) - self.area_at_warm)


class Lane:
    """The jobs of some GPUs over one week, in order, and what they added up to before each of them began."""

    __slots__ = ("_cursor", "_starts", "gpus", "held_before", "jobs", "weighted_before")

    def __init__(self, gpus: tuple[int, ...], jobs: list[Job]) -> None:
        self.gpus = gpus
        self.jobs = jobs
        self._starts = [job.started for job in jobs]
        self._cursor = 0
        self.held_before = [0.0]
        self.weighted_before = [0.0]
        for job in jobs:
            self.held_before.append(self.held_before[-1] + job.ended - job.started)
            self.weighted_before.append(self.weighted_before[-1] + job.intensity * job.area(job.ended))

    def begun(self, seconds: float) -> int:
        """How many jobs have begun at this moment. Time mostly moves forward, so the last answer is tried first."""
        starts, cursor = self._starts, self._cursor
        if (cursor == 0 or starts[cursor - 1] <= seconds) and (cursor == len(starts) or seconds < starts[cursor]):
            return cursor
        self._cursor = bisect_right(starts, seconds)
        return self._cursor

    def job_at(self, seconds: float) -> Job | None:
        begun = self.begun(seconds)
        if not begun:
            return None
        job = self.jobs[begun - 1]
        return job if seconds < job.ended else None

    def totals(self, seconds: float) -> tuple[float, float]:
        """Since the week began: seconds held, and the integral of level x intensity (for energy)."""
        begun = self.begun(seconds)
        if not begun:
            return 0.0, 0.0
        job = self.jobs[begun - 1]
        if seconds >= job.ended:
            return self.held_before[begun], self.weighted_before[begun]
        return (self.held_before[begun - 1] + seconds - job.started,
                self.weighted_before[begun - 1] + job.intensity * job.area(seconds))


def draw_week(key: str, started: float, gpus: int, profile: str, projects: tuple[str, ...] = ()) -> tuple[Lane, ...]:
    """The lanes of one node for the week that begins at `started` (seconds since the epoch).

    `key` holds seed, node and week. Users of `projects` come five times as often as others.
    """
    rng = random.Random(key)
    lanes: list[Lane] = []
    for spec, indexes in _layout(rng.choice(PROFILES[profile]), gpus):
        lanes.append(Lane(indexes, _draw_jobs(rng, spec, started, projects)))
    return tuple(lanes)


def _layout(pattern: tuple[LaneSpec, ...], gpus: int) -> list[tuple[LaneSpec, tuple[int, ...]]]:
    placed: list[tuple[LaneSpec, tuple[int, ...]]] = []
    taken = turn = 0
    while taken < gpus or (turn % len(pattern) and pattern[turn % len(pattern)].guest):
        spec = pattern[turn % len(pattern)]
        turn += 1
        if spec.guest:
            placed.append((spec, placed[-1][1][:1]))
            continue
        size = min(spec.size, gpus - taken)
        placed.append((spec, tuple(range(taken, taken + size))))
        taken += size
    return placed


def _draw_jobs(rng: random.Random, spec: LaneSpec, started: float, projects: tuple[str, ...]) -> list[Job]:
    jobs: list[Job] = []
    clock = started + rng.uniform(60, 3600) if spec.queued else _after_gap(rng, started, spec.gap_hours)
    while clock < started + WEEK - 120:
        job = _draw_job(rng, spec, clock, started + WEEK, projects)
        jobs.append(job)
        clock = job.ended + rng.uniform(15, 240)
        if rng.random() >= spec.queued:
            clock = _after_gap(rng, clock, spec.gap_hours)
    return jobs


def _after_gap(rng: random.Random, clock: float, gap_hours: float) -> float:
    """The moment when a random amount of demand has gone by: nights and weekends pass slowly."""
    wanted = rng.expovariate(1.0) * gap_hours * HOUR
    for _ in range(200):
        demand = people.DEMAND[people.hour_of_week(clock)]
        left = HOUR - clock % HOUR
        if wanted <= demand * left:
            return clock + wanted / demand
        wanted -= demand * left
        clock += left
    return clock


def _draw_job(rng: random.Random, spec: LaneSpec, clock: float, limit: float, projects: tuple[str, ...]) -> Job:
    kind = _pick(rng, ROLE_KINDS[spec.role])
    user = _pick_user(rng, kind, clock, projects)
    number = rng.randint(1000, 9999)
    slot = rng.uniform(*SLOT_SECONDS[kind])
    warm = WARM_SECONDS[kind]
    curve = curves.curve(kind, rng.randrange(curves.VARIANTS))
    anchor = people.MONDAY + (clock - people.MONDAY) // WEEK * WEEK if kind == "serve" else clock
    return Job(
        id=f"{user.project}-{JOB_WORDS[kind]}-{number}", user=user.name, project=user.project, kind=kind,
        command=rng.choice(COMMANDS[kind]).format(project=user.project, number=number), pid=rng.randint(2_000, 4_000_000),
        started=clock, ended=min(limit, clock + _draw_length(rng, kind, clock, user)), curve=curve, slot=slot, anchor=anchor,
        warm=warm, area_at_warm=curve.area(clock + warm - anchor, slot), scale=spec.scale * rng.uniform(0.97, 1.0),
        intensity=rng.uniform(0.72, 0.98), memory_ratio=rng.uniform(*MEMORY[kind]) * (0.45 if spec.role == "desk" else 1.0),
        xid=rng.choice(XIDS) if rng.random() < FAILURE_RATIO and kind not in ("notebook", "serve") else None,
    )


def _draw_length(rng: random.Random, kind: str, clock: float, user: people.User) -> float:
    median, sigma, shortest, longest = DURATIONS[kind]
    hours = min(longest, max(shortest, median * 2.718281828 ** rng.gauss(0, sigma)))
    if kind == "notebook" and rng.random() < 0.3:
        hours += rng.uniform(9, 15)  # forgotten over night: held, and nobody computes
    return hours * HOUR


def _pick(rng: random.Random, weights: dict[str, float]) -> str:
    return rng.choices(tuple(weights), tuple(weights.values()))[0]


def _pick_user(rng: random.Random, kind: str, clock: float, projects: tuple[str, ...]) -> people.User:
    hour = people.hour_of_week(clock)
    weights = [
        getattr(user, KIND_SKILL[kind]) * user.weight * (people.ACTIVITY[user.name][hour] + 0.02) * (5 if user.project in projects else 1)
        for user in people.USERS
    ]
    return rng.choices(people.USERS, weights)[0]



"""The best choice at every state of a modelled market: backward dynamic programming over time left and slack.

Invariant: a choice from which on-demand could not make it is in no plan. State: ticks left, slack = time left - work left -
changeover under way, instance, and of the market: available, age of the spell, share of recent availability (on grids).
Off the grid of slack values are interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from pricing.spot import HOUR_MS, Array, Decision, Job
from pricing.spot_hazard import SpotModel, gain

IDLE, SPOT, ON_DEMAND = (int(one) for one in Decision)
AGES = np.array([0, 0.12, 0.24, 0.4, 0.6, 0.9, 1.3, 1.9, 2.8, 4, 6, 9, 14, 22, 36])
"""Lower edges of the age bins, hours."""
CENTRES = np.append((AGES[:-1] + AGES[1:]) / 2, 50.0)
CENTRES[0] = 0.03
SHARES = np.array([0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.98])
BETWEEN = (SHARES[1:] + SHARES[:-1]) / 2
MOST_TICKS, MOST_SLACKS = 480, 400
NEVER = np.float32(1e9)


@dataclass(frozen=True, slots=True)
class Plan:
    """Choices by [ticks left, available, on demand now, age bin, share bin, slack]."""

    tick_hours: float
    slack_hours: float
    """Between two slacks."""
    choices: Array
    """uint8, four slacks a byte."""

    def look_up(self, time_left: float, slack: Array, available: Array, on_demand: Array, age: Array, share: Array) -> Array:
        """int8 (runs,); times in hours, the rest arrays of one entry a run."""
        left = min(max(1, round(time_left / self.tick_hours)), len(self.choices) - 1)
        step = np.rint(slack / self.slack_hours).astype(np.int64)
        most = min(ceil(left * self.tick_hours / self.slack_hours - 1e-9) - 1, 4 * self.choices.shape[-1] - 1)
        step = np.clip(step, 0, most)
        where = (
            left,
            available.astype(np.int8),
            on_demand.astype(np.int8),
            np.searchsorted(AGES, age + 1e-9, side="right") - 1,
            np.searchsorted(BETWEEN, share),
            step >> 2,
        )
        return (self.choices[where] >> (2 * (step & 3)).astype(np.uint8) & 3).astype(np.int8)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Of one solution; hours, and $ per tick."""

    tick: float
    slack: float
    parts: int
    """Slack steps of a tick."""
    start: float
    spot: np.float32
    on_demand: np.float32
    slacks: Array


def solve(job: Job, model: SpotModel, seen_hours: float = 0.0) -> Plan:
    """The plan of a job whose policy has seen `seen_hours` of the market before the start."""
    span = job.deadline_ms // job.tick_ms * job.tick_ms
    ticks_of_look = max(1, -(-span // (job.tick_ms * MOST_TICKS)))
    tick = ticks_of_look * job.tick_ms / HOUR_MS
    ticks = max(1, round(span / HOUR_MS / tick))
    spare = max(0.0, (span - job.work_ms) / HOUR_MS)
    parts = _parts(spare / tick, job.changeover_ms / HOUR_MS / tick)
    slacks = np.arange(ceil(spare * parts / tick) + 2) * (tick / parts)
    grid = _Grid(
        tick, tick / parts, parts, job.changeover_ms / HOUR_MS,
        np.float32(job.spot * tick), np.float32(job.on_demand * tick), slacks,
    )  # fmt: skip
    return _backward(grid, ticks, model, seen_hours)


def _parts(spare_ticks: float, changeover_ticks: float) -> int:
    """Slack steps of a tick: more than two only where a changeover then is a whole number of them."""
    most = max(1, min(5, int(MOST_SLACKS / max(1.0, spare_ticks))))
    whole = [parts for parts in range(3, most + 1) if abs((changeover_ticks * parts + 0.5) % 1 - 0.5) < 0.05]
    return max(whole, default=min(2, most))


def _backward(grid: _Grid, ticks: int, model: SpotModel, seen_hours: float) -> Plan:
    ages, shares, width = len(AGES), len(SHARES), len(grid.slacks)
    ends = _ends(model, grid.tick)
    older = np.minimum(1, grid.tick / np.append(np.diff(AGES), np.inf)).astype(np.float32)[:-1, None, None]
    no_idle = grid.slacks < grid.start + grid.tick - 1e-9
    no_spot = grid.slacks < 2 * grid.start - 1e-9
    choices = np.zeros((ticks + 1, 2, 2, ages, shares, -(-width // 4)), np.uint8)
    off, spot = np.zeros((2, 2, ages, shares, width), np.float32), np.zeros((ages, shares, width), np.float32)
    # off[on demand now, available]; a job on spot that loses it is idle
    for left in range(1, ticks + 1):
        moves = _share_moves(gain(model, seen_hours + (ticks - left + 1) * grid.tick, grid.tick))
        idle = _later(off[0], moves, ends, older)
        held = _later(off[1], moves, ends, older)
        on_spot = _later(np.stack([off[0, 0], spot]), moves, ends, older)[1]
        wait = _lower(idle, grid.tick, grid)
        wait[..., no_idle] = NEVER
        buy = grid.on_demand + _lower(held, grid.start, grid)
        keep = grid.on_demand + held
        enter = grid.spot + _lower(on_spot, grid.start, grid)
        enter[..., no_spot] = NEVER
        done = grid.slacks >= left * grid.tick - 1e-9
        for now, paid in enumerate((buy, keep)):
            choice = np.where(wait <= paid, np.int8(IDLE), np.int8(ON_DEMAND))
            value = np.minimum(wait, paid)
            choice[1][enter <= value[1]] = SPOT
            value[1] = np.minimum(value[1], enter)
            value[..., done] = 0
            off[now] = value
            choices[left, :, now] = _packed(choice)
        spot = grid.spot + on_spot
        spot[..., done] = 0
    return Plan(grid.tick, grid.slack, choices)


def _ends(model: SpotModel, tick: float) -> Array:
    """float32 (available, age, share, 1): the chance that a spell ends within a tick."""
    ages, shares = np.meshgrid(CENTRES, SHARES, indexing="ij")
    hazards = np.stack([model.hazard(available, ages, shares) for available in (False, True)])
    return -np.expm1(-hazards * tick).astype(np.float32)[..., None]


def _share_moves(by: float) -> Array:
    """float32 (available next, share now, share next): linear over the two neighbours."""
    count = len(SHARES)
    moves = np.zeros((2, count, count), np.float32)
    for available in (0, 1):
        new = np.clip(SHARES + by * (available - SHARES), SHARES[0], SHARES[-1])
        low = np.clip(np.searchsorted(SHARES, new) - 1, 0, count - 2)
        part = (new - SHARES[low]) / (SHARES[low + 1] - SHARES[low])
        rows = np.arange(count)
        moves[available, rows, low] += 1 - part
        moves[available, rows, low + 1] += part
    return moves


def _later(values: Array, moves: Array, ends: Array, older: Array) -> Array:
    """The expected value after a tick of the market; (available, age, share, slack)."""
    moved = np.matmul(moves[:, None], values)
    result = moved.copy()
    result[:, :-1] += older * (moved[:, 1:] - moved[:, :-1])
    result += ends * (moved[::-1, :1] - result)
    return result


def _lower(values: Array, hours: float, grid: _Grid) -> Array:
    """The values at `hours` less slack; below none, what is missing is paid on demand."""
    steps = hours / grid.slack
    whole = int(steps + 1e-6)
    part = steps - whole
    result = _shifted(values, whole, grid)
    if part > 1e-3:
        result = (1 - np.float32(part)) * result + np.float32(part) * _shifted(values, whole + 1, grid)
    return result


def _shifted(values: Array, steps: int, grid: _Grid) -> Array:
    if steps == 0:
        return values.copy()
    steps = min(steps, values.shape[-1])
    result = np.empty_like(values)
    result[..., steps:] = values[..., : values.shape[-1] - steps]
    missing = (steps - np.arange(steps)).astype(np.float32) * (grid.on_demand / np.float32(grid.parts))
    result[..., :steps] = values[..., :1] + missing
    return result


def _packed(choice: Array) -> Array:
    """Four choices a byte, along the last axis."""
    padded = np.zeros((*choice.shape[:-1], -(-choice.shape[-1] // 4) * 4), np.uint8)
    padded[..., : choice.shape[-1]] = choice
    four = padded.reshape(*choice.shape[:-1], -1, 4)
    return four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6

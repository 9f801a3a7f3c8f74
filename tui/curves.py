"""What the curves of a job mean: which one is its loss, how fast it is now, and what an epoch and the rest of it cost.

Invariant: dollars are the job's own price by exact arithmetic; where the price, the speed or the length is not told, what
depends on it is None. No clock of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import msgspec

from agent import wire
from tui import recipes

LOSSES = ("loss", "train_loss", "training_loss", "train/loss", "total_loss")
SPEEDS = ("samples_per_second", "tokens_per_second", "steps_per_second", "throughput", "it_per_s")
RIGHT = ("accuracy", "val_accuracy", "eval_accuracy", "test_accuracy", "acc", "val_acc", "val/accuracy", "auc")
NO_CURVES = (
    'no curves: the job prints no lines like {"step": 1, "loss": 2.3}, and has no TensorBoard files in its checkpoint folder'
)
NO_CURVES_YET = (
    'no curves yet: it runs, and has printed no line like {"step": 1, "loss": 2.3} so far, nor written a TensorBoard file into its'
    " checkpoint folder"
)
_HOUR = 3600
_MILLION = 1_000_000


class Run(NamedTuple):
    """A job and what it told; `node` is what the client calls it."""

    node: str
    job: wire.Job
    curves: wire.JobCurves
    price_note: str | None = None
    """What its price is, or why there is none, where the agent does not tell it (curves_price.py)."""

    @property
    def key(self) -> str:
        return f"{self.node} {self.job.id}"


def together(parts: Sequence[Run]) -> Run:
    """A run over several nodes as one: the curves of the part that tells them, the price and the cost of all."""
    if len(parts) == 1:
        return parts[0]
    teller = max(parts, key=lambda run: len(run.curves.curves))
    jobs = [run.job for run in parts]
    job = msgspec.structs.replace(
        teller.job, usd_per_hour=_all(one.usd_per_hour for one in jobs), cost=_all(one.cost for one in jobs), attempts=()
    )
    notes = [run.price_note for run in parts if run.price_note]
    unknown = [note for note, run in zip(notes, parts, strict=False) if run.job.usd_per_hour is None]
    return Run(teller.node, job, teller.curves, next(iter((*unknown, *notes)), None))


def _all(values: Iterable[Decimal | None]) -> Decimal | None:
    """The sum; None where one is not known."""
    known = list(values)
    return None if None in known else sum((value for value in known if value is not None), Decimal(0))


class Outlook(NamedTuple):
    """Money and time of a training; None: not known."""

    so_far: Decimal | None
    per_hour: Decimal | None
    epochs: float | None
    """Done."""
    samples_per_second: float | None
    steps_per_second: float | None
    whole_run: bool
    """The speed is that of the whole run: none was told for the newest steps."""
    epoch_seconds: float | None
    per_epoch: Fraction | None
    per_million_samples: Fraction | None
    per_million_tokens: Fraction | None
    steps_left: int | None
    """0 where it has ended or is through."""
    seconds_left: float | None
    to_end: Fraction | None
    total: Fraction | None


def outlook(run: Run, so_far: Decimal | None = None, now: datetime | None = None) -> Outlook:
    """`so_far`: the cost of this moment, where the caller knows a newer one than the job's row; `now`: at the node."""
    job, curves = run.job, run.curves
    rate, steps, whole = _speed(run, now)
    hour = job.usd_per_hour
    spent = so_far if so_far is not None else job.cost
    each = curves.epochs_per_step
    epoch_seconds = _over(curves.samples_per_epoch, rate) or (_over(1 / each, steps) if each and each > 0 else None)
    left = None if curves.steps_total is None or curves.step is None else max(0, curves.steps_total - curves.step)
    if job.state == "ended":
        left = 0
    seconds_left = 0.0 if left == 0 else _over(left, steps)
    to_end = _cost(hour, seconds_left)
    return Outlook(
        so_far=spent, per_hour=hour, epochs=each * curves.step if each and curves.step is not None else None,
        samples_per_second=rate, steps_per_second=steps, whole_run=whole, epoch_seconds=epoch_seconds,
        per_epoch=_cost(hour, epoch_seconds), per_million_samples=_cost(hour, _over(_MILLION, rate)),
        per_million_tokens=_cost(hour, _over(_MILLION, rate * curves.tokens_per_sample if rate and curves.tokens_per_sample else None)),
        steps_left=left, seconds_left=seconds_left, to_end=to_end,
        total=Fraction(spent) + to_end if spent is not None and to_end is not None else None,
    )  # fmt: skip


def _speed(run: Run, now: datetime | None) -> tuple[float | None, float | None, bool]:
    """(samples a second, steps a second, whether over the whole run)."""
    job, curves = run.job, run.curves
    rate, steps = curves.samples_per_second, curves.steps_per_second
    whole = False
    if steps is None and rate is None and job.attempt == 1 and job.started_at is not None and curves.step:
        end = job.ended_at or now
        seconds = (end - job.started_at).total_seconds() if end is not None else 0
        steps, whole = (curves.step / seconds if seconds > 0 else None), True
    if rate is None and steps is not None and curves.batch_size:
        rate = steps * curves.batch_size
    return rate, steps, whole and steps is not None


def _over(amount: float | None, rate: float | None) -> float | None:
    """Seconds for so much at that rate."""
    if not amount or not rate or rate <= 0:
        return None
    seconds = amount / rate
    return seconds if math.isfinite(seconds) else None


def _cost(per_hour: Decimal | None, seconds: float | None) -> Fraction | None:
    return None if per_hour is None or seconds is None else Fraction(per_hour) * Fraction(seconds) / _HOUR


# -- figures ------------------------------------------------------------------------------------------------------------


def named(curves: wire.JobCurves, name: str) -> wire.Curve | None:
    return next((curve for curve in curves.curves if curve.name == name), None)


def loss_of(curves: wire.JobCurves) -> wire.Curve | None:
    """The one that is most likely meant by its loss."""
    exact = next((curve for name in LOSSES if (curve := named(curves, name)) is not None), None)
    return exact or next((curve for curve in curves.curves if "loss" in curve.name.casefold()), None)


def speed_of(curves: wire.JobCurves) -> wire.Curve | None:
    return next((curve for name in SPEEDS if (curve := named(curves, name)) is not None), None)


def order(curves: Sequence[wire.JobCurves]) -> list[str]:
    """Names of all figures: loss first, then the speed, then as they were told."""
    first = [curve.name for one in curves for curve in (loss_of(one), speed_of(one)) if curve is not None]
    first.sort(key=lambda name: "loss" not in name.casefold())
    return list(dict.fromkeys([*first, *(curve.name for one in curves for curve in one.curves if curve.name != "epoch")]))


class Best(NamedTuple):
    step: int
    value: float


def known(curve: wire.Curve) -> list[Best]:
    return [Best(step, value) for step, value in zip(curve.steps, curve.values, strict=False) if value is not None]


def last(curve: wire.Curve | None) -> Best | None:
    """The newest value that is a number."""
    found = known(curve) if curve is not None else []
    return found[-1] if found else None


def rises(name: str) -> bool:
    """Whether more is better."""
    word = name.casefold()
    return any(part in word for part in ("per_second", "accuracy", "acc", "auc", "f1", "throughput", "bleu", "utilization"))


def best(curve: wire.Curve | None) -> Best | None:
    """Lowest or highest, by what the figure is; the first of equals."""
    found = known(curve) if curve is not None else []
    if curve is None or not found:
        return None
    return max(found, key=lambda one: one.value) if rises(curve.name) else min(found, key=lambda one: one.value)


def accuracy_of(curves: wire.JobCurves) -> float | None:
    """What the training said at its end, else the newest value of such a figure."""
    for name in RIGHT:
        try:
            return float(curves.end[name])
        except (KeyError, ValueError):
            pass
    return next((found.value for name in RIGHT if (found := last(named(curves, name))) is not None), None)


# -- what was paid by then ----------------------------------------------------------------------------------------------


class Reached(NamedTuple):
    """When a loss was first as low as asked for, and what had been paid by then."""

    step: int
    value: float
    cost: Fraction | None
    exact: bool
    """By the time of that step; else as if all steps had cost the same."""


def reached(run: Run, loss: float, so_far: Decimal | None = None) -> Reached | None:
    """None: it was not reached."""
    curve = loss_of(run.curves)
    if curve is None:
        return None
    place = next((at for at, value in enumerate(curve.values) if value is not None and value <= loss), None)
    if place is None:
        return None
    step, value = curve.steps[place], curve.values[place]
    assert value is not None
    seconds = curve.seconds[place] if place < len(curve.seconds) else None
    if seconds is not None and (cost := paid_by(run.job, seconds)) is not None:
        return Reached(step, value, cost, True)
    spent = so_far if so_far is not None else run.job.cost
    part = Fraction(step, run.curves.step) if run.curves.step else None
    return Reached(step, value, Fraction(spent) * min(Fraction(1), part) if spent is not None and part is not None else None, False)


def paid_by(job: wire.Job, seconds: float) -> Fraction | None:
    """US dollars of the job until that moment: whole attempts as they cost, of the one that ran then its part."""
    if job.usd_per_hour is None or not job.attempts:
        return None
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return None
    paid = Fraction(0)
    for attempt in job.attempts:
        if attempt.started_at is None or attempt.started_at >= at:
            continue
        if attempt.ended_at is not None and attempt.ended_at <= at:
            if attempt.cost is None:
                return None
            paid += Fraction(attempt.cost)
        else:
            paid += Fraction(job.usd_per_hour) * ((at - attempt.started_at) // timedelta(milliseconds=1)) / (_HOUR * 1000)
    return paid


# -- settings -----------------------------------------------------------------------------------------------------------


def settings_of(run: Run) -> dict[str, str]:
    """What it was run with: options of its command (of a recipe all its settings), then what its start line tells."""
    recipe = recipes.of_command(run.job.command)
    if recipe is not None:
        told = {key: value for key, value in run.curves.start.items() if key != "checkpoints"}  # each run has a folder of its own
        return {**told, "recipe": recipe[0], **{key: _plain(value) for key, value in recipe[1].items()}}
    found, rest = _options(run.job.command)
    if rest:
        found["arguments"] = " ".join(rest)
    return {**run.curves.start, **found}


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def _options(command: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """(options, everything else) of argv: `--a 1`, `--a=1`, `a=1`, `--flag`."""
    found: dict[str, str] = {}
    rest: list[str] = []
    words = list(command)
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else None
        at += 1
        name, sign, value = word.lstrip("-").partition("=")
        if sign and name.replace(".", "").replace("_", "").replace("-", "").isalnum() and (word.startswith("--") or "-" not in word[:1]):
            found[name.replace("-", "_")] = value
        elif word.startswith("--") and len(word) > 2:
            if following is not None and not following.startswith("--") and "=" not in following:
                found[name.replace("-", "_")] = following
                at += 1
            else:
                found[name.replace("-", "_")] = "yes"
        else:
            rest.append(word)
    return found, rest


def differing(runs: Sequence[Run]) -> list[tuple[str, list[str | None]]]:
    """Settings that are not the same in all runs, with the value of each. A run that told nothing differs in nothing it tells."""
    each = [settings_of(run) for run in runs]
    names = list(dict.fromkeys(name for one in each for name in one))
    told = {name for run in runs for name in run.curves.start} - {name for run in runs for name in _options(run.job.command)[0]}
    found = []
    for name in names:
        values = [one.get(name) for one in each]
        those = [value for value, run in zip(values, runs, strict=True) if run.curves.start or name not in told]
        if len(set(those)) > 1:
            found.append((name, values))
    return found

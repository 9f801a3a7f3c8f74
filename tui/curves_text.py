"""Curves, their money and their comparison in words: the same for the commands and the app.

Invariant: nothing that a job said can move a cursor; what is not known is `–` or left out, and a guess says what it is by.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from agent import wire
from tui import format as fmt
from tui.curves import (
    NO_CURVES,
    NO_CURVES_YET,
    Outlook,
    Reached,
    Run,
    accuracy_of,
    best,
    differing,
    last,
    loss_of,
    named,
    outlook,
    reached,
    rises,
)
from tui.curves_chart import MARKS, Chart, Trace, draw, figure
from tui.job_rows import has_gpu, name_text, span
from tui.job_text import filled

WIDEST_CELL = 28
_PLACES = 4


def money(value: Fraction | Decimal | None) -> str:
    """Two decimals from a dollar on, four digits that matter below it."""
    if value is None:
        return fmt.UNKNOWN
    amount = Fraction(value)
    places = 2
    while 0 < abs(amount) * 10**places < 1000 and places < 6 and abs(amount) < 1:
        places += 1
    return fmt.usd(amount, places)


def label(name: str) -> str:
    """`samples/s` of `samples_per_second`."""
    return fmt.clean(name).replace("_per_second", "/s").replace("_", " ")


def trace_of(curve: wire.Curve) -> Trace:
    return Trace(curve.steps, curve.values, curve.name.endswith("_per_second"))


def head_line(run: Run, state: bool = True) -> str:
    """`0abc00000001  train-1 on gpu-01  running  step 1,200 of 5,000  epoch 3.2`."""
    curves, seen = run.curves, outlook(run)
    parts = [f"{run.job.id}  {name_text(run.job)} on {fmt.clean(run.node)}", run.job.state if state else ""]
    if curves.step is not None:
        total = f" of {curves.steps_total:,}" if curves.steps_total else ""
        parts.append(f"step {curves.step:,}{total}")
    if seen.epochs is not None:
        parts.append(f"epoch {seen.epochs:.2f}")
    return "  ".join(part for part in parts if part)


def curve_line(curve: wire.Curve) -> str:
    """`loss  last 0.4312  lowest 0.4102 at step 1,150  mean 0.9121`."""
    newest, top = last(curve), best(curve)
    parts = [label(curve.name)]
    if newest is None or top is None:
        return f"{parts[0]}  no value is a number"
    parts.append(f"last {figure(newest.value)}")
    parts.append(f"{'highest' if rises(curve.name) else 'lowest'} {figure(top.value)} at step {top.step:,}")
    if curve.mean is not None:
        parts.append(f"mean {figure(curve.mean)}")
    return "  ".join(parts)


def chart(curves: Sequence[wire.Curve], width: int, height: int, *, unicode: bool = True, log: bool = False) -> Chart | None:
    return draw([trace_of(curve) for curve in curves], width, height, unicode=unicode, log=log)


def money_rows(run: Run, seen: Outlook) -> list[tuple[str, str]]:
    """(name, words) of what it cost and will cost."""
    hour = f", {fmt.usd(seen.per_hour)} an hour" if seen.per_hour is not None else ""
    by = f" ({run.price_note})" if run.price_note and seen.per_hour is not None else ""
    rows = [("cost", f"{money(seen.so_far)} so far{hour}{by}" if seen.so_far is not None else _unpriced(run, hour))]
    if seen.epoch_seconds is not None:
        cost = f"{money(seen.per_epoch)}, " if seen.per_epoch is not None else ""
        rows.append(("an epoch", f"{cost}{span_text(seen.epoch_seconds)} at {_speed(seen)}"))
    each = [
        f"{what} {money(value)}"
        for what, value in (("samples", seen.per_million_samples), ("tokens", seen.per_million_tokens))
        if value is not None
    ]
    if each:
        rows.append(("per million", ", ".join(each)))
    rows.append(("to the end", _to_end(run, seen)))
    return rows


def _unpriced(run: Run, hour: str) -> str:
    if hour:
        return f"not known yet{hour}"
    if run.price_note:
        return run.price_note
    if not has_gpu(run.job):
        return "not known here: a job without a GPU is priced in the reports"
    return "not known: the node has no price; give its instance type, or usd_per_hour, in its agent.toml"


def span_text(seconds: float) -> str:
    return f"{seconds:.2g}s" if seconds < 10 else span(seconds)


def _speed(seen: Outlook) -> str:
    by = " over the whole run" if seen.whole_run else ""
    if seen.samples_per_second is not None:
        return f"{figure(seen.samples_per_second)} samples/s{by}"
    return f"{figure(seen.steps_per_second)} steps/s{by}"


def _to_end(run: Run, seen: Outlook) -> str:
    if run.job.state == "ended":
        return f"it has ended: {fmt.clean(run.job.cause or 'well')}"
    if seen.steps_left is None:
        return 'not known: no line {"event": "start", "step": 0, "steps": N} told how many steps there are'
    if seen.steps_left == 0:
        return "all steps are done"
    if seen.seconds_left is None:
        return f"{seen.steps_left:,} steps; how fast it is has not been told yet"
    cost = f"{money(seen.to_end)} in " if seen.to_end is not None else ""
    total = f": {money(seen.total)} in all" if seen.total is not None else ""
    return f"{cost}{span_text(seen.seconds_left)} ({seen.steps_left:,} steps){total}"


def notes(curves: wire.JobCurves) -> list[str]:
    """What has to be said of how it was read."""
    said = [fmt.clean(text) for text in curves.problems]
    if curves.dropped_bytes:
        said.append(f"the oldest {curves.dropped_bytes:,} bytes of the log are no longer kept")
    if curves.behind_bytes:
        said.append(f"{curves.behind_bytes:,} bytes of the log have not been read yet")
    return said


# -- comparison ---------------------------------------------------------------------------------------------------------


def compare_rows(runs: Sequence[Run], seen: Sequence[Outlook], at_loss: float | None = None) -> list[tuple[str, list[str]]]:
    """(what, of each run): settings that differ, then figures, then money."""
    rows = [(label(name), [_cut(value) for value in values]) for name, values in differing(runs)]
    losses = [loss_of(run.curves) for run in runs]
    rows += [
        ("state", [run.job.state if run.job.state != "ended" else fmt.clean(run.job.cause or "ended") for run in runs]),
        ("step", [_step(run.curves) for run in runs]),
        ("last loss", [figure(found.value) if (found := last(curve)) else fmt.UNKNOWN for curve in losses]),
        ("lowest loss", [f"{figure(found.value)} at {found.step:,}" if (found := best(curve)) else fmt.UNKNOWN for curve in losses]),
        ("accuracy", [figure(accuracy_of(run.curves)) for run in runs]),
        ("samples/s", [figure(one.samples_per_second) for one in seen]),
        ("$ so far", [money(one.so_far) for one in seen]),
        ("$ per epoch", [money(one.per_epoch) for one in seen]),
        ("$ in all", [money(one.total) for one in seen]),
    ]
    if at_loss is not None:
        reach = [reached(run, at_loss, one.so_far) for run, one in zip(runs, seen, strict=True)]
        rows.append((f"$ to loss {figure(at_loss)}", [_reached(one) for one in reach]))
    always = {"state", "last loss", "$ so far"}
    return [(name, cells) for name, cells in rows if name in always or any(cell != fmt.UNKNOWN for cell in cells)]


def _cut(text: str | None) -> str:
    clean = fmt.clean(text) if text is not None else fmt.UNKNOWN
    return clean if len(clean) <= WIDEST_CELL else clean[: WIDEST_CELL - 1] + "…"


def _step(curves: wire.JobCurves) -> str:
    if curves.step is None:
        return fmt.UNKNOWN
    return f"{curves.step:,}" + (f" of {curves.steps_total:,}" if curves.steps_total else "")


def _reached(found: Reached | None) -> str:
    if found is None:
        return "not reached"
    return f"{'' if found.exact else 'about '}{money(found.cost)} at step {found.step:,}"


def run_names(runs: Sequence[Run]) -> list[str]:
    """Of each its mark and its name, and the id where names do not tell them apart."""
    titles = [name_text(run.job) for run in runs]
    same = {title for title in titles if titles.count(title) > 1}
    shown = [run.job.id if title in same else title for run, title in zip(runs, titles, strict=True)]
    marks = [f"{MARKS[place % len(MARKS)]} " if len(runs) > 1 else "" for place in range(len(runs))]
    return [mark + _cut(name) for mark, name in zip(marks, shown, strict=True)]


# -- for programs -------------------------------------------------------------------------------------------------------


def run_record(run: Run, seen: Outlook, at_loss: float | None = None) -> dict[str, Any]:
    """Every key is there; dollars are decimal strings."""
    found = reached(run, at_loss, seen.so_far) if at_loss is not None else None
    return {
        "node": run.node,
        "id": run.job.id,
        "name": run.job.name,
        "state": run.job.state,
        "loss": (one.value if (one := last(loss_of(run.curves))) else None),
        "lowest_loss": (one.value if (one := best(loss_of(run.curves))) else None),
        "accuracy": accuracy_of(run.curves),
        "epochs": seen.epochs,
        "samples_per_second": seen.samples_per_second,
        "steps_per_second": seen.steps_per_second,
        "steps_left": seen.steps_left,
        "seconds_left": seen.seconds_left,
        "seconds_per_epoch": seen.epoch_seconds,
        "usd_so_far": _decimal(seen.so_far),
        "usd_per_hour": _decimal(seen.per_hour),
        "usd_per_epoch": _decimal(seen.per_epoch),
        "usd_per_million_samples": _decimal(seen.per_million_samples),
        "usd_per_million_tokens": _decimal(seen.per_million_tokens),
        "usd_to_end": _decimal(seen.to_end),
        "usd_in_all": _decimal(seen.total),
        "at_loss": None if at_loss is None else {
            "loss": at_loss, "reached": found is not None, "step": found.step if found else None,
            "usd": _decimal(found.cost) if found else None, "exact": found.exact if found else None,
        },
        "curves": filled(run.curves),
    }  # fmt: skip


def _decimal(value: Fraction | Decimal | None) -> str | None:
    """As it is; a fraction to a billionth."""
    return None if value is None else format(value if isinstance(value, Decimal) else fmt.decimal_of(value, 9), "f")


def csv_rows(curves: Sequence[wire.Curve]) -> list[list[str]]:
    """A row a step: `step`, `time`, then each figure; empty where it is not known."""
    steps: dict[int, dict[str, str]] = {}
    for curve in curves:
        for place, (step, value) in enumerate(zip(curve.steps, curve.values, strict=False)):
            row = steps.setdefault(step, {})
            row[curve.name] = "" if value is None else repr(value)
            at = curve.seconds[place] if place < len(curve.seconds) else None
            if at is not None:
                row.setdefault("", _moment(at))
    names = [curve.name for curve in curves]
    table = [["step", "time", *(_safe(name) for name in names)]]
    return table + [[str(step), row.get("", ""), *(row.get(name, "") for name in names)] for step, row in sorted(steps.items())]


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return ""


def _safe(name: str) -> str:
    """No spreadsheet takes it for a formula."""
    clean = fmt.clean(name)
    return f"'{clean}" if clean[:1] in "=+-@" else clean


def empty_sentence(curves: wire.JobCurves, job: wire.Job) -> str:
    """Why there is nothing to draw."""
    if curves.behind_bytes:
        return f"nothing found yet: {curves.behind_bytes:,} bytes of the log have not been read"
    if not job.attempt:
        return "it has not started: there are no curves yet"
    return NO_CURVES if job.state == "ended" else NO_CURVES_YET


def missing(curves: wire.JobCurves, names: Sequence[str]) -> list[str]:
    return [name for name in names if named(curves, name) is None]

"""`report`: the cost of a range in any format, and its reconciliation with a cloud's bill (or with Cost Explorer).

Invariant: data goes to stdout or whole into a file, sentences to stderr; what is in no cost is said at the end. A report
by day is written piece by piece.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tui import format as fmt
from tui.commands.context import Context
from tui.commands.money import say_notes, sync_nodes, sync_verdict
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, say
from tui.progress import broken_off, live_line
from tui.terms import notice, options, pricing_of

if TYPE_CHECKING:
    from pricing.ledger import Ledger
    from pricing.rates import Pricing
    from pricing.report import Report
    from pricing.reports.charts import Burn


def report(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Attributes the cost of a range to who caused it."""
    from pricing.calendar import parse_range
    from pricing.garbage import paused
    from pricing.grouping import parse_by

    zone, now, pricing = context.timezone_name(arguments.tz), context.now(), pricing_of(context, arguments)
    by = parse_by(arguments.by)
    start, end = parse_range(arguments.start, arguments.end, tz="UTC" if arguments.compare else zone, now=now)
    form = "json" if arguments.json else arguments.format
    with context.open_ledger() as ledger:
        code = ExitCode.DONE if arguments.no_sync else sync_verdict(sync_nodes(context, ledger))
        notice(ledger, pricing, arguments, now)
        task = _Task(context, arguments, ledger, pricing, start, end, zone, now, by)
        with paused(), broken_off(f"{arguments.out} is as it was." if arguments.out else "what was printed is not whole."):
            if arguments.compare:
                head = _compare(task, Path(arguments.compare))
            else:
                head = {"focus": _focus, "html": _html}.get(form, _rows)(task, form)
    _say_about(head)
    return code


@dataclass(frozen=True, slots=True)
class _Task:
    context: Context
    arguments: argparse.Namespace
    ledger: Ledger
    pricing: Pricing
    start: datetime
    end: datetime
    zone: str
    now: datetime
    by: tuple[str, ...]

    def attribute(self, start: datetime, end: datetime, by: Sequence[str], tz: str | None = None) -> Report:
        from pricing.attribution import attribute

        return attribute(
            self.ledger, self.pricing.catalog, start, end, by, tz=tz or self.zone, **options(self.pricing, self.now)
        )


def _rows(task: _Task, form: str) -> Report:
    """The formats whose rows are the groups."""
    from pricing.reports import BINARY, write
    from pricing.reports.pages import attributed, head_of

    with _progress("days" if task.by[:1] == ("day",) else "months") as told:
        source = attributed(task.attribute, task.start, task.end, task.by, task.zone, told)
        binary = form in BINARY
        with _target(task.arguments.out, binary, form) as stream:
            if binary:
                BINARY[form](source, stream)
            else:
                if form == "csv" and task.arguments.bom:
                    stream.write("\ufeff")
                write(source, stream, form)
    head = head_of(source)
    _say_written(task.arguments.out, f": {fmt.counted(len(head.rows), 'row')}" if head is source else "")
    return head


def _focus(task: _Task, form: str) -> Report:
    from pricing.reports.focus import FocusSource, facts_of, write_csv, write_parquet

    nodes, tags = facts_of(task.ledger)
    pricing, out = task.pricing, task.arguments.out
    binary = bool(out) and out.lower().endswith(".parquet")
    with _progress("days") as told:
        end = min(task.end, task.now) if task.start < task.now else task.end  # nothing is bought or used after now
        source = FocusSource(
            task.attribute, task.start, end, task.zone, pricing.currency, pricing.terms.commitments, nodes, tags,
            task.arguments.account, _exchange(pricing), told,
        )  # fmt: skip
        with _target(out, binary, form) as stream:
            (write_parquet if binary else write_csv)(source, stream)  # type: ignore[operator]
    _say_written(out, "")
    return task.attribute(task.start, task.end, ())


def _exchange(pricing: Pricing) -> Callable[[str, datetime], Any]:
    from pricing.calendar import milliseconds
    from pricing.price_steps import value_at

    def rate(currency: str, moment: datetime) -> Any:
        steps = pricing.terms.exchange.steps(currency, pricing.currency)
        return None if steps is None else value_at(steps, milliseconds(moment))

    return rate


def _html(task: _Task, form: str) -> Report:
    from pricing.reports.html import HtmlReport, write_page
    from pricing.reports.pages import attributed, head_of

    with _progress("days") as told:
        asked, daily = (
            attributed(task.attribute, task.start, task.end, by, task.zone, told) for by in (task.by, ("day", "project"))
        )
        jobs = task.attribute(task.start, task.end, ("job",))
        page = HtmlReport(asked, daily, jobs, tuple(_burns(task)), task.now)
        with _target(task.arguments.out, False, form) as stream:
            write_page(page, stream)
    _say_written(task.arguments.out, "")
    return head_of(asked)


def _burns(task: _Task) -> Iterator[Burn]:
    """The configuration's budgets of the month in which the range ends."""
    if not task.context.config.budgets:
        return
    from pricing.attribution import attribute
    from pricing.budgets import budget_states
    from pricing.reports.burns import burn_of
    from tui.budgets import budgets_of

    at = min(task.now, task.end - timedelta(milliseconds=1))

    def report_for(keys: tuple[str, ...], start: datetime, end: datetime, tz: str, currency: str) -> Report:
        priced = {**options(task.pricing, task.now), "currency": currency}
        return attribute(task.ledger, task.pricing.catalog, start, end, keys, tz=tz, **priced)

    for state in budget_states(budgets_of(task.context.config, task.zone), report_for, at):
        budget = state.budget
        if budget.amount.currency == task.pricing.currency:
            keys = ("day", budget.key) if budget.key else ("day",)
            until = max(at, state.start + timedelta(milliseconds=1))
            yield burn_of(state, report_for(keys, state.start, until, budget.tz, budget.amount.currency))


def _compare(task: _Task, path: Path) -> Report:
    from pricing.compare import OUR_KEYS, compare
    from pricing.compare_read import read
    from pricing.compare_text import notes, record, write
    from pricing.reports.focus import facts_of

    nodes, _ = facts_of(task.ledger)
    ours = task.attribute(task.start, task.end, OUR_KEYS, "UTC")
    counts = {node: facts.gpu_count for node, facts in nodes.items()}
    if str(path) == "aws":
        from tui.commands.report_aws import compare_aws

        compare_aws(task.arguments, ours, counts)
        return ours
    with _progress("lines of the bill") as told:
        lines = _counted(read(path), told)
        result = compare(ours, counts, lines, str(path), account=task.arguments.account)
    if task.arguments.json or task.arguments.format == "json":
        print_json(record(result))
    else:
        write(result, sys.stdout)
    for sentence in notes(result, account=task.arguments.account):
        say(f"note: {sentence}")
    return ours


def _counted(lines: Iterator[Any], told: Callable[[int, int], None]) -> Iterator[Any]:
    for count, line in enumerate(lines):
        if count % 10_000 == 0:
            told(count, 0)
        yield line


@contextmanager
def _target(out: str | None, binary: bool, form: str) -> Iterator[Any]:
    """The file (there whole or not at all), or stdout."""
    from pricing.reports import replaced

    if out and out != "-":
        with replaced(out, binary=binary) as stream:
            yield stream
    elif not binary:
        yield sys.stdout
    elif sys.stdout.isatty():
        raise WrongUsage(f"{form} is no text: write it to a file with --out FILE.")
    else:
        yield _Pipe(sys.stdout.buffer)
        sys.stdout.buffer.flush()


class _Pipe:
    """A pipe that knows how much went through it, which Parquet writers ask for."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._count = stream, 0

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self._count += len(data)
        return len(data)

    def tell(self) -> int:
        return self._count

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tells how far it is on one line of a terminal; nothing elsewhere."""
    with live_line(step_only=True, ticks=not sys.stdout.isatty()) as line:
        line.tell("adding up")
        yield lambda done, count: line.tell(f"{done:,}{f' of {count:,}' if count else ''} {what}")


def _say_written(out: str | None, what: str) -> None:
    if out and out != "-":
        say(f"wrote {out}{what}")


def _say_about(head: Report) -> None:
    from tui.costs import notes

    for sentence in head.notes:
        say(f"note: {fmt.clean(sentence)}")
    say_notes(notes(head))

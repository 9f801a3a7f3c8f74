"""A report as one HTML file to read, print and sign: charts, each with its table, and the rows that were asked for.

Invariant: the file needs nothing else (no script, no font, no picture from elsewhere), text from outside is escaped, and
every table sums to the totals of the report: all of them show the cells of `pricing.reports.table`, grouped otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TextIO

from pricing.calendar import zone
from pricing.money import SYMBOLS
from pricing.report import Report
from pricing.reports import views
from pricing.reports.charts import Burn, Series, burn, line, ranked_bars, safe, split_bar, stacked_bars
from pricing.reports.pages import Source, head_of, tables_and_totals
from pricing.reports.style import CSS
from pricing.reports.table import Cell, Table

MOST_ROWS = 2_000
"""More rows of the last table are added up in one: the page is to be read; CSV and Parquet have all of them."""
HATCH = (
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs><pattern id="hatch" width="6" height="6" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-bg" width="6" height="6"/>'
    '<line class="hatch-line" x1="0" y1="0" x2="0" y2="6"/></pattern></defs></svg>'
)


@dataclass(frozen=True, slots=True)
class HtmlReport:
    """What a page is made of: the report that was asked for, and the same range grouped for the charts."""

    source: Source
    daily: Source | None = None
    """By `day,project`."""
    jobs: Report | None = None
    """By `job`."""
    budgets: tuple[Burn, ...] = ()
    made_at: datetime | None = None
    title: str = "GPU cost report"


def write(source: Source, stream: TextIO) -> None:
    """A page without charts over time: only what one report tells."""
    write_page(HtmlReport(source), stream)


def write_page(page: HtmlReport, stream: TextIO) -> None:
    """The whole file."""
    for part in _page(page):
        stream.write(part.encode("utf-8", "replace").decode("utf-8"))


def _page(page: HtmlReport) -> Iterable[str]:
    head = head_of(page.source)
    pieces, totals = tables_and_totals(page.source)
    money = _Money(head.currency)
    yield (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{safe(page.title)}, {safe(span(head))}</title><style>{CSS}</style></head><body>{HATCH}<main>\n"
    )
    yield _header(page, head)
    yield _tiles(head, totals, money)
    yield _notice(head)
    if page.daily is not None:
        yield _daily(page.daily, money)
        yield _utilisation(page.daily)
    yield _idle(head, totals, money)
    if page.jobs is not None:
        yield _jobs(page.jobs, money)
    for place, budget in enumerate(page.budgets):
        yield _budget(place, budget, money)
    yield _rows(head.group_by, _first(pieces), totals, money)
    yield _footer(head)
    yield "</main></body></html>\n"


@dataclass(frozen=True, slots=True)
class _Money:
    currency: str

    def __call__(self, amount: Decimal) -> str:
        """`$1,234.50`, `-$3.06`, `CNY 26.46`."""
        symbol = SYMBOLS.get(self.currency, f"{self.currency} ")
        return f"{'-' if amount < 0 else ''}{symbol}{abs(amount):,.2f}"


def span(head: Report) -> str:
    """`2026-03-01 to 2026-03-31`: whole days with the last one in it, else the two moments."""
    start, end = (moment.astimezone(zone(head.tz)) for moment in (head.start, head.end))
    if all((one.hour, one.minute, one.second) == (0, 0, 0) for one in (start, end)):
        last = end - timedelta(days=1)
        return f"{start:%-d %B %Y}" if last <= start else f"{start:%-d %B %Y} to {last:%-d %B %Y}"
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"


def _header(page: HtmlReport, head: Report) -> str:
    made = f"<br>made {page.made_at.astimezone(zone(head.tz)):%Y-%m-%d %H:%M}" if page.made_at else ""
    return (
        f'<header><div><p class="brand">Rackrate</p><h1>{safe(page.title)}</h1><p>{safe(span(head))}</p></div>'
        f'<p class="facts">all amounts in {safe(head.currency)}<br>days of {safe(head.tz)}{made}</p></header>\n'
    )


def _tiles(head: Report, totals: dict[str, Cell], money: _Money) -> str:
    ratio = totals["utilization_ratio"]
    tiles = [
        ("Total cost", _amount(totals["total_cost"], money), "" if head.complete else "not complete, see below"),
        ("Allocated", _amount(totals["allocated_cost"], money), _of(totals["allocated_cost"], totals["total_cost"])),
        ("Idle", _amount(totals["idle_cost"], money), _of(totals["idle_cost"], totals["total_cost"])),
        ("Held but unused", _amount(totals["allocated_unused_cost"], money), "part of allocated: no kernel ran"),
        ("GPU-hours", _number(totals["gpu_hours"], 1), "held by someone"),
        ("Idle GPU-hours", _number(totals["idle_gpu_hours"], 1), "held by nobody"),
        ("Utilisation", "–" if not isinstance(ratio, Decimal) else f"{ratio * 100:.0f} %", "of held time"),
        _last_tile(totals, money),
    ]
    cells = "".join(
        f'<div><dt>{safe(name)}</dt><dd>{safe(value)}<span class="note">{safe(note) or "&nbsp;"}</span></dd></div>'
        for name, value, note in tiles
    )
    return f'<dl class="tiles">{cells}</dl>\n'


def _last_tile(totals: dict[str, Cell], money: _Money) -> tuple[str, str, str]:
    """What discounts and commitments saved, where there are any; else the energy."""
    listed, total = totals["list_cost"], totals["total_cost"]
    if isinstance(listed, Decimal) and isinstance(total, Decimal) and listed != total:
        return "Against list price", _amount(total - listed, money), f"list price {money(listed)}"
    return (
        "Energy",
        f"{_number(totals['energy_kwh'], 1)} kWh" if totals["energy_kwh"] is not None else "–",
        "as far as measured",
    )


def _notice(head: Report) -> str:
    sentences = (*head.unpriced, *head.missing)
    said = ""
    if sentences or not head.complete:
        said += f'<div class="notice" role="note"><strong>Not complete.</strong> Not in any cost:{_list(sentences)}</div>\n'
    if head.notes:
        said += f'<div class="notice" role="note"><strong>Please note</strong>{_list(head.notes)}</div>\n'
    return said


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{safe(sentence)}</li>" for sentence in sentences) + "</ul>"


def _daily(daily: Source, money: _Money) -> str:
    view = views.by_day(daily)
    chart = stacked_bars("daily", "Cost per day by project", [label for label, _ in view.labels], view.series, money)
    names = [one.name for one in view.series]
    body = [
        [
            label,
            *[money(one.values[place]) for one in view.series],
            money(sum((one.values[place] for one in view.series), Decimal(0))),
        ]
        for place, (_, label) in enumerate(view.labels)
    ]
    sums = [sum(one.values, Decimal(0)) for one in view.series]
    foot = ["Total", *map(money, sums), money(sum(sums, Decimal(0)))]
    table = _table(f"Cost per {view.unit} by project", [view.unit.capitalize(), *names, "Total"], body, foot, texts=1)
    return _section(
        f"Cost per {view.unit}", "What each project caused; time that nobody held is hatched.", chart, table,
        _legend(view.series), folded=len(body) > 10,
    )  # fmt: skip


def _utilisation(daily: Source) -> str:
    view = views.utilisation(daily)
    chart = line("util", "Utilisation of held GPUs", [label for label, *_ in view.rows], [ratio for *_, ratio in view.rows])
    body = [
        [full, f"{held:,.1f}", f"{idle:,.1f}", "–" if ratio is None else f"{ratio * 100:.1f} %"]
        for _, full, held, idle, ratio in view.rows
    ]
    whole_ratio = daily.totals.utilization_ratio
    foot = [
        "All", f"{float(daily.totals.gpu_hours):,.1f}", f"{float(daily.totals.idle_gpu_hours):,.1f}",
        "–" if whole_ratio is None else f"{whole_ratio * 100:.1f} %",
    ]  # fmt: skip
    titles = [view.unit.capitalize(), "GPU-hours held", "GPU-hours idle", "Utilisation"]
    table = _table("Utilisation and hours", titles, body, foot, texts=1)
    return _section(
        "Utilisation", "Share of the held and measured time in which a kernel ran.", chart, table, "", folded=len(body) > 10
    )


def _idle(head: Report, totals: dict[str, Cell], money: _Money) -> str:
    parts = views.idle_parts(totals)
    if totals["idle_cost"] is None:
        return ""
    chart = split_bar("idle", "What idle money consists of", [(name, value, css) for name, value, css, _ in parts], money)
    body = [
        [name, money(value), _of(value, totals["idle_cost"]).removesuffix(" of the total"), why]
        for name, value, css, why in parts
    ]
    foot = ["Idle", _amount(totals["idle_cost"], money), "100 %" if totals["idle_cost"] else "–", ""]
    table = _table("Idle cost by reason", ["Reason", "Cost", "Share", "Meaning"], body, foot, texts=1, last_text=True)
    legend = _legend([Series(name, (), css) for name, _, css, _ in parts])
    return _section("Idle money", "Paid for, and held by nobody.", chart, table, legend, folded=False)


def _jobs(jobs: Report, money: _Money) -> str:
    rows = views.top_jobs(jobs)
    drawn = [one for one in rows if one.css == "s1"] or rows
    rest = [f"{one.name} {money(one.cost)}" for one in rows if one not in drawn]
    chart = ranked_bars("jobs", "Cost of the dearest jobs", [(one.name, one.cost, one.css) for one in drawn], money)
    body = [[one.name, f"{one.hours:,.1f}", one.ratio, money(one.cost)] for one in rows]
    foot = [
        "Total",
        f"{sum((one.hours for one in rows), Decimal(0)):,.1f}",
        "",
        money(sum((one.cost for one in rows), Decimal(0))),
    ]
    table = _table("Cost by job", ["Job", "GPU-hours", "Utilisation", "Cost"], body, foot, texts=1)
    lead = f"The dearest jobs{'; beside them ' if rest else ''}{', '.join(rest)}."
    return _section("Jobs", lead, chart, table, "", folded=True)


def _budget(place: int, budget: Burn, money: _Money) -> str:
    chart = burn(f"budget{place}", f"Budget {budget.name}", budget, money)
    body = [
        [label, "–" if spent is None else money(spent), "–" if spent is None else _of(spent, budget.limit).split(" of")[0]]
        for label, spent in zip(budget.labels, budget.spent, strict=True)
    ]
    known = [spent for spent in budget.spent if spent is not None]
    foot = ["Limit", money(budget.limit), "100 %"]
    table = _table(f"Budget {budget.name}, spent by the end of each day", ["Day", "Spent", "Of the limit"], body, foot, texts=1)
    lead = f"{money(known[-1]) if known else money(Decimal(0))} of {money(budget.limit)} spent."
    if budget.forecast:
        low, likely, high = map(money, budget.forecast)
        lead += f" At the end of the month: {likely}, between {low} and {high}."
    return _section(f"Budget: {budget.name}", lead, chart, table, "", folded=True)


_ROW_TITLES = {
    "gpu_hours": "GPU-hours", "utilization_ratio": "Util.", "allocated_cost": "Allocated",
    "allocated_unused_cost": "of it unused", "idle_cost": "Idle", "unused_commitment_cost": "Unused commitment",
    "adjustment_cost": "Adjustment", "total_cost": "Total", "list_cost": "At list price",
}  # fmt: skip


@dataclass(slots=True)
class _First:
    """The rows that the page shows, and the others added up: no more of them is held in memory."""

    rows: list[dict[str, Cell]] = field(default_factory=list)
    others: int = 0
    rest: dict[str, Cell] = field(default_factory=lambda: {"complete": True, "utilization_ratio": None})


def _first(pieces: Iterable[Table]) -> _First:
    first = _First()
    for piece in pieces:
        for row in piece.rows:
            if len(first.rows) < MOST_ROWS:
                first.rows.append(row)
                continue
            first.others += 1
            first.rest["complete"] = first.rest["complete"] and row["complete"]
            for name in _ROW_TITLES:
                cell, sum_ = row[name], first.rest.get(name)
                if name != "utilization_ratio" and isinstance(cell, Decimal):
                    first.rest[name] = cell + sum_ if isinstance(sum_, Decimal) else cell
    return first


def _rows(keys: tuple[str, ...], first: _First, totals: dict[str, Cell], money: _Money) -> str:
    if not keys:
        return ""
    optional = ("unused_commitment_cost", "adjustment_cost")
    names = [name for name in _ROW_TITLES if name not in optional or totals[name]]
    if totals["list_cost"] == totals["total_cost"]:
        names.remove("list_cost")
    blank = [""] * (len(keys) - 1)
    lines = [[*[str(row[key]) for key in keys], *[_cell(name, row, money) for name in names]] for row in first.rows]
    if first.others:
        rest = dict.fromkeys(names) | first.rest
        lines.append([f"({first.others:,} more rows: see the CSV)", *blank, *[_cell(name, rest, money) for name in names]])
    foot = ["Total", *blank, *[_cell(name, totals, money) for name in names]]
    titles = [*[key.replace("_", " ").capitalize() for key in keys], *[_ROW_TITLES[name] for name in names]]
    by, count = ", ".join(keys), len(first.rows) + first.others
    table = _table(f"Cost by {by}", titles, lines, foot, texts=len(keys))
    return f'<section class="quiet"><h2>Cost by {safe(by)}</h2><p class="lead">{count:,} rows.</p>{table}</section>\n'


def _cell(name: str, row: dict[str, Cell], money: _Money) -> str:
    cell = row[name]
    if name == "gpu_hours":
        return _number(cell, 2)
    if name == "utilization_ratio":
        return "–" if not isinstance(cell, Decimal) else f"{cell * 100:.0f} %"
    return _amount(cell, money) + ("" if row["complete"] else "*")


def _footer(head: Report) -> str:
    mark = "" if head.complete else " * Some of this row's time has no price and is in no cost."
    return (
        '<div class="sign"><p>Prepared by, date</p><p>Approved by, date</p></div><footer>Every cost is the price of the node '
        "for the time, attributed exactly and rounded once, so that rows, days and parts add up to the total to the cent. "
        f"Idle time is never spread over those who held something.{mark}</footer>"
    )


def _section(title: str, lead: str, chart: str, table: str, legend: str, *, folded: bool) -> str:
    below = f"<details><summary>The numbers</summary>{table}</details>" if folded else table
    return f'<section><h2>{safe(title)}</h2><p class="lead">{safe(lead)}</p><figure>{chart}{legend}</figure>{below}</section>\n'


def _legend(series: Sequence[Series]) -> str:
    box = '<svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{}" width="12" height="12" rx="2"/></svg>'
    return '<ul class="legend">' + "".join(f"<li>{box.format(one.css)}{safe(one.name)}</li>" for one in series) + "</ul>"


def _table(
    caption: str,
    titles: Sequence[str],
    body: Sequence[Sequence[str]],
    foot: Sequence[str],
    *,
    texts: int,
    last_text: bool = False,
) -> str:
    """`texts`: how many of the first columns are text; `last_text`: the last one is, too."""

    def cells(row: Sequence[str], tag: str) -> str:
        said = []
        for place, cell in enumerate(row):
            text = place < texts or (last_text and place == len(row) - 1)
            style = ' class="text"' if text else ""
            kind, scope = ("th", ' scope="col"') if tag == "th" else ("th", ' scope="row"') if not place else ("td", "")
            said.append(f"<{kind}{scope}{style}>{safe(cell)}</{kind}>")
        return "<tr>" + "".join(said) + "</tr>"

    rows = "".join(cells(row, "td") for row in body)
    return (
        f'<div class="scroll"><table><caption>{safe(caption)}</caption><thead>{cells(titles, "th")}</thead>'
        f"<tbody>{rows}</tbody>"
        f"<tfoot>{cells(foot, 'td')}</tfoot></table></div>"
    )


def _amount(cell: Cell, money: _Money) -> str:
    return money(cell) if isinstance(cell, Decimal) else "–"


def _number(cell: Cell, places: int) -> str:
    return f"{cell:,.{places}f}" if isinstance(cell, Decimal) else "–"


def _of(part: Cell, total: Cell) -> str:
    if not isinstance(part, Decimal) or not isinstance(total, Decimal) or not total:
        return ""
    return f"{part / total * 100:.1f} % of the total"

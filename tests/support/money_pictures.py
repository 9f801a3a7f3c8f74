"""Pictures of the screens of money, from a made-up ledger and price book: the same each time.

Arguments: the folder to write into (`screenshots`).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from pricing.attribution import cost_summary
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from tests.support.fleets import AT
from tests.support.money_app import filled, money_app, priced, until
from tests.support.screens import press, running
from tui.config import BudgetConfig
from tui.screenshot import KEYS, clean_svg, write_picture
from tui.ui.panes.header import Costs

BUDGETS = (
    BudgetConfig(name="vision", amount="12000", project="vision"),
    BudgetConfig(name="speech", amount="7000", project="speech"),
    BudgetConfig(name="everything", amount="60000"),
)
PICTURES: dict[str, tuple[str, tuple[str, ...], tuple[int, int]]] = {
    "costs": ("costs", (), (140, 36)),
    "market": ("market", ("slash", *"H100 buy:spot", "enter"), (140, 30)),
    "price": ("market", ("slash", *"p4d.24xlarge zone:use1-az1", "enter", "enter"), (120, 36)),
    "advice": ("advice", (), (140, 44)),
}
"""Name -> the screen, what is pressed there, and the size."""
DAYS, NODES = 26, 5


def costs_of(path: Path) -> Costs:
    """What the header tells."""
    with Ledger.open(path) as ledger:
        summary = cost_summary(ledger, Catalog.embedded(), AT, "UTC")
    return Costs(today=summary.today.totals.total_cost, month=summary.month.totals.total_cost)


async def draw(home: Path, out: Path) -> None:
    ledger, prices = filled(home, DAYS, NODES), priced(home)
    costs = costs_of(ledger)
    for name, (screen, keys, size) in PICTURES.items():
        used = prices if screen == "market" else None
        app = money_app(home, ledger, prices_path=used, budgets=BUDGETS, costs=costs)
        async with running(app, size) as pilot:
            for more in ((*KEYS[screen],), keys):
                await press(pilot, *more)
                await until(pilot, lambda app=app: not app.is_reading, 120)  # type: ignore[misc]
            app.screen.query("StatusLine").first().note("", seconds=0)  # type: ignore[attr-defined]
            app.redraw()
            await pilot.pause()
            svg = clean_svg(app.export_screenshot(title="rackrate"))
        for kind in ("png",):
            write_picture(svg, out / f"{name}.{kind}")


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(draw(Path(home), out))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())

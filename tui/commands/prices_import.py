"""`prices import`: prices of a file into the price book: a table of the user's, or spot history as AWS tells it.

Invariant: what is not clear is told with its row and left out, the rest is kept; a file that is no such thing gives nothing.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.commands.context import Context
from tui.commands.prices import say_some
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json
from tui.progress import live_line

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from pricing.price_file import PriceFile
    from pricing.pricebook import PutResult
    from pricing.prices import Price

HISTORY = (".json", ".json.gz", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
"""Ends of the names of files of spot history; also a folder of them."""
CHUNK = 20_000
"""Rows that are put at once: an interruption keeps what was put before."""


def import_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Takes prices from a file; rows that are not clear are told, the others kept."""
    from pricing.catalog import CLOUDS
    from pricing.price_file import read_price_file

    path, now = Path(arguments.file), datetime.now(UTC)
    if path.is_dir() or path.name.lower().endswith(HISTORY):
        return _import_history(context, arguments, path, now)
    if arguments.zone_id:
        raise WrongUsage("--zone-id: only for spot history (.json); a table of prices has ids in its column zone.")
    cloud = arguments.cloud.strip().lower() if arguments.cloud else (path.stem if path.stem in CLOUDS else None)
    if cloud is not None and cloud not in CLOUDS:
        raise WrongUsage(f"--cloud {fmt.clean(cloud)}: there are {', '.join(CLOUDS)}.")
    found = read_price_file(path.read_bytes(), path.name, cloud, CLOUDS, now)
    context.catalog()  # what was known before
    with context.open_prices() as book:
        result = book.put(found.prices, now, accept=arguments.accept)
    told = [(found.rows[price], f"row {found.rows[price]}, column price: {sentence}") for price, sentence in result.refused]
    faults = [text for _, text in sorted([*told, *((fault.row, str(fault)) for fault in found.faults)])]
    notes = _notes(context, found, {price for price, _ in result.refused})
    notes += [f"row {found.rows[price]}, column price: {sentence}" for price, sentence in result.warned]
    kept = result.new + result.changed + result.unchanged
    if arguments.json:
        record = {"file": str(path), "new": result.new, "changed": result.changed, "unchanged": result.unchanged}
        print_json({**record, "held": result.held, "refused": faults, "notes": notes})
    else:
        print(
            f"{fmt.counted(kept, 'price')} taken: {result.new} new, {result.changed} changed, {result.unchanged} known; {len(faults)} refused"
        )
        say_some(faults)
        say_some([f"note: {sentence}" for sentence in notes])
    if not faults:
        return ExitCode.DONE
    return ExitCode.PARTLY if kept else ExitCode.FAILED


def _import_history(context: Context, arguments: argparse.Namespace, path: Path, now: datetime) -> ExitCode:
    """Spot history: what `aws ec2 describe-spot-price-history` printed."""
    from pricing.market_read import read_history
    from pricing.market_traps import summary
    from pricing.price_history_file import prices_of
    from pricing.pricebook import PutResult

    if arguments.cloud not in (None, "aws"):
        raise WrongUsage(f"--cloud {fmt.clean(arguments.cloud)}: spot history in .json is read of aws alone.")
    ids = _zone_ids(arguments.zone_id)
    result = PutResult()
    with live_line() as line:
        tell = lambda count, name: line.tell(f"reading {path.name}", f", {count:,} files: {fmt.clean(name)}")  # noqa: E731
        reading = read_history(path, on_progress=tell)
        found = prices_of(reading, ids, _regions(context.catalog()))
        with context.open_prices() as book:
            for at in range(0, len(found.prices), CHUNK):
                line.tell(f"keeping prices of {path.name}", f", {at:,} of {len(found.prices):,}")
                result = result.plus(book.put(found.prices[at : at + CHUNK], now, accept=arguments.accept))
    notes = [*found.left_out, *summary(reading.traps)]
    if reading.traces:
        notes.append(f"{fmt.counted(len(reading.traces), 'file')} of traces of availability, which are no prices, left out.")
    _tell_history(arguments, path, result, reading.rows, notes)
    kept = result.new + result.changed + result.unchanged
    if not notes and not result.refused:
        return ExitCode.DONE
    return ExitCode.PARTLY if kept else ExitCode.FAILED


def _tell_history(arguments: argparse.Namespace, path: Path, result: PutResult, rows: int, notes: list[str]) -> None:
    refused = [sentence for _, sentence in result.refused]
    if arguments.json:
        record = {"file": str(path), "rows": rows, "new": result.new, "changed": result.changed, "unchanged": result.unchanged}
        print_json({**record, "held": result.held, "refused": refused, "notes": notes})
        return
    print(
        f"{fmt.counted(rows, 'row')}: {result.new:,} new by zone and type, {fmt.counted(result.changed, 'change')} of price added, "
        f"{result.unchanged:,} known; {len(refused):,} refused"
    )
    say_some(refused)
    say_some([f"note: {sentence}" for sentence in notes])


def _zone_ids(pairs: list[str]) -> dict[str, str]:
    from pricing.zones import is_aws_id

    found: dict[str, str] = {}
    for pair in pairs:
        name, _, zone = (part.strip().lower() for part in pair.partition("="))
        if not name or not is_aws_id(zone):
            raise WrongUsage(f"--zone-id {fmt.clean(pair)}: write it as us-east-1a=use1-az2.")
        found[name] = zone
    return found


def _regions(catalog: Catalog) -> dict[str, str]:
    """`use1` -> `us-east-1`, of all zones that are known."""
    from pricing.zones import aws_region_code, is_aws_id

    zones = {offer.zone: offer.region for offer in catalog.offers("aws") if offer.zone is not None}
    return {aws_region_code(zone): region for zone, region in zones.items() if is_aws_id(zone)}


def _notes(context: Context, found: PriceFile, refused: set[Price]) -> list[str]:
    """Of rows that were taken: a type or a region that nothing else knows may be a slip of the pen. Each is told once."""
    from pricing.lookup import did_you_mean

    catalog, told, notes = context.catalog(), set[str](), list[str]()
    taken = sorted((row, price) for price, row in found.rows.items() if price not in refused)
    clouds = {price.cloud for _, price in taken}
    types = {cloud: [shape.instance_type for shape in catalog.instances(cloud)] for cloud in clouds}
    regions = {cloud: sorted({offer.region for offer in catalog.offers(cloud)}) for cloud in clouds}
    for row, price in taken:
        known = catalog.instance(price.cloud, price.instance_type) is not None
        for column, name, names, is_known in (
            ("instance_type", price.instance_type, types[price.cloud], known),
            ("region", price.region, regions[price.cloud], price.region in regions[price.cloud]),
        ):
            if not is_known and name not in told:
                told.add(name)
                notes.append(f"row {row}, column {column}: no other table knows {name!r}{did_you_mean(name, names)}; it was taken.")
    return notes

"""Where the data of a workload can lie, how fast the GPUs can read it there, and what that costs a month.

Invariant: a price that is not known is None and makes the whole cost unknown, never free. More bandwidth is never slower.

The data's home is an object store of the same cloud. From there it is copied to local disks or volumes before the work
(`stage`), or read by a shared file system or by the nodes themselves in the first epoch. Later epochs find a part of it in
the nodes' memory (half of it counts as cache), and of what is read from the object store also on their local disks.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from typing import NamedTuple

from pricing.errors import CatalogError
from pricing.hardware import FOLDER, Wiring, rows
from pricing.instances import InstanceType
from pricing.planner_workload import Assumed, Data

GB = 10**9
ASSUMED_NETWORK = 5e9 / 8
"""Bytes per second between a node and its object store, where its cloud tells no network: 5 Gbit/s."""
MOST_OF_A_NODE = 100e9 / 8
"""Bytes per second that one node gets from storage at most: 100 Gbit/s, whatever its network to other nodes is."""
CACHE_SHARE = 0.5
"""Of a node's memory, as a cache of the data."""
CACHE_BYTES_PER_SECOND = 10e9
"""Read from a node's memory: an assumption."""
CLOUD_TO_CLOUD = 10e9 / 8
"""Bytes per second: SkyPilot counts 10 Gbit/s between clouds (sky/optimizer.py, _egress_time)."""
STAGED = ("local_nvme", "attached_ssd", "block")


class Tier(NamedTuple):
    """One row of the table. Sizes in decimal GB, throughput in MB/s; prices a month."""

    cloud: str
    tier: str
    name: str
    price_per_gb_month: Fraction | None
    min_gb: float
    step_gb: float
    max_gb: float | None
    included_mb: float
    mb_per_tb: float
    max_mb: float | None
    price_per_mb_month: Fraction | None
    """None: throughput cannot be bought by itself."""
    currency: str
    as_of: date
    source: str


class Storage(NamedTuple):
    """One way to keep the data, for all nodes together."""

    tier: str
    name: str
    volumes: int
    volume_gb: float
    """0 where nothing is provisioned (it comes with the node, or grows with the data)."""
    tier_bytes_per_second: float
    """What the tier itself gives."""
    first_bytes_per_second: float
    later_bytes_per_second: float
    stage_seconds: float
    restaged: bool
    """A new node has to copy it again."""
    monthly: Fraction | None
    """In `currency`, while it is kept; with the object store it came from."""
    currency: str
    sources: tuple[str, ...]


@cache
def tiers(path: Path = FOLDER / "storage.csv") -> tuple[Tier, ...]:
    """All rows. CatalogError names the file and the line."""
    found = []
    for line, row in rows(path):
        try:
            found.append(_tier(row))
        except (ValueError, KeyError, ZeroDivisionError) as fault:
            raise CatalogError(f"{path.name}, line {line} is damaged ({fault}): reinstall rackrate.") from None
    return tuple(found)


def _tier(row: dict[str, str]) -> Tier:
    return Tier(
        row["cloud"], row["tier"], row["name"],
        Fraction(row["price_per_gb_month"]) if row["price_per_gb_month"] else None,
        float(row["min_gb"] or 0), float(row["step_gb"] or 0), float(row["max_gb"]) if row["max_gb"] else None,
        float(row["included_mb_per_s"] or 0), float(row["mb_per_s_per_tb"] or 0),
        float(row["max_mb_per_s"]) if row["max_mb_per_s"] else None,
        Fraction(row["price_per_mb_per_s_month"]) if row["price_per_mb_per_s_month"] else None,
        row["currency"], date.fromisoformat(row["as_of"]), row["source"],
    )  # fmt: skip


def row_of(table: Iterable[Tier], cloud: str, tier: str) -> Tier | None:
    return next((one for one in table if one.cloud == cloud and one.tier == tier), None)


def node_network(wiring: Wiring, assumed: Assumed) -> float:
    """Bytes per second between one node and its object store; EFA and InfiniBand do not carry all of it."""
    rate = (wiring.network_bytes_per_second or ASSUMED_NETWORK) * float(assumed.network_efficiency)
    return min(rate, MOST_OF_A_NODE)


class Site(NamedTuple):
    """What the tiers are judged against: the data, the nodes and how fast the GPUs would read."""

    data: Data
    shape: InstanceType
    wiring: Wiring
    nodes: int
    need_bytes_per_second: float
    assumed: Assumed

    @property
    def node_network(self) -> float:
        """Bytes per second of one node to storage; at most MOST_OF_A_NODE."""
        return node_network(self.wiring, self.assumed)

    @property
    def memory_share(self) -> float:
        """Of the data that a node's memory keeps after the first epoch; 0 where its memory is not known."""
        return min(1.0, CACHE_SHARE * float(self.shape.memory_bytes or 0) / float(self.data.size_bytes))


def options(site: Site, table: Iterable[Tier]) -> tuple[list[Storage], list[str]]:
    """Every way to keep the data that the workload allows, and why not the others."""
    table = tuple(table)
    found: list[Storage] = []
    reasons: list[str] = []
    home = row_of(table, site.shape.cloud, "object")
    for name in site.data.tiers:
        row = row_of(table, site.shape.cloud, name)
        if row is None or home is None or (name == "attached_ssd" and site.shape.nvme_bytes != 0):
            continue  # to a type that comes with local disks none are added
        made = (
            _local(site, row, home)
            if name == "local_nvme"
            else _object(site, home)
            if name == "object"
            else _volumes(site, row, home)
        )
        if isinstance(made, str):
            reasons.append(made)
        else:
            found.extend(made)
    return found, reasons


def _local(site: Site, row: Tier, home: Tier) -> list[Storage] | str:
    disk, size = site.shape.nvme_bytes, float(site.data.size_bytes)
    if disk is None:
        return "its local disks are not known"
    if disk < size:
        return (
            f"its local disks hold {disk / GB:,.0f} GB, the data has {size / GB:,.0f} GB" if disk else "it has no local disks"
        )
    rate = _throughput(row, disk / GB)
    return [_made(site, row, home, 0.0, site.nodes, rate, Fraction(0))]


def _object(site: Site, home: Tier) -> list[Storage]:
    """Read by the nodes themselves; later epochs from their memory, and from their local disks as far as those reach."""
    rate = site.node_network
    memory = site.memory_share
    disk = min(1.0 - memory, float(site.shape.nvme_bytes or 0) / float(site.data.size_bytes))
    disk_rate = max(rate, _throughput_of_disks(site))
    later = 1 / (memory / max(rate, CACHE_BYTES_PER_SECOND) + disk / disk_rate + (1 - memory - disk) / rate)
    monthly = _price(home, float(site.data.size_bytes) / GB)
    nodes = site.nodes
    return [
        Storage("object", home.name, 0, 0.0, rate * nodes, rate * nodes, later * nodes, 0.0, False, monthly, home.currency, (home.source,))
    ]  # fmt: skip


def _throughput_of_disks(site: Site) -> float:
    row = row_of(tiers(), site.shape.cloud, "local_nvme")
    return _throughput(row, float(site.shape.nvme_bytes or 0) / GB) if row else 0.0


def _volumes(site: Site, row: Tier, home: Tier) -> list[Storage] | str:
    """A volume for each node, or one file system for all: as small as may be, and large enough to keep the GPUs fed."""
    size_gb = float(site.data.size_bytes) / GB
    volumes = 1 if row.tier == "shared" else site.nodes
    least = _rounded(row, size_gb)
    if row.max_gb is not None and least > row.max_gb:
        return f"{row.name} holds at most {row.max_gb:,.0f} GB"
    need = site.need_bytes_per_second / volumes / 1e6
    found: dict[tuple[float, float], Storage] = {}
    for gb, mb in {(least, _own_mb(row, least)), _fed(row, least, need)}:
        extra = max(0.0, mb - _own_mb(row, gb))
        price = _price(row, gb)
        if extra and price is not None and row.price_per_mb_month is not None:
            price += row.price_per_mb_month * ceil(extra)
        rate = mb * 1e6
        if row.tier == "shared":
            rate = min(rate, site.node_network * site.nodes)
        found[gb, mb] = _made(site, row, home, gb, volumes, rate, None if price is None else price * volumes)
    return [found[key] for key in sorted(found)]


def _made(site: Site, row: Tier, home: Tier, gb: float, volumes: int, rate: float, price: Fraction | None) -> Storage:
    """`rate`: of one volume (or of the whole file system)."""
    size, nodes = float(site.data.size_bytes), site.nodes
    shared = row.tier == "shared"
    total = rate if shared else rate * nodes
    stage = 0.0 if shared else size / min(rate, site.node_network)
    memory = site.memory_share
    each = total / nodes
    later = nodes / (memory / max(each, CACHE_BYTES_PER_SECOND) + (1 - memory) / each)
    first = min(total, site.node_network * nodes) if shared else total
    kept = _price(home, size / GB)
    monthly = None if price is None or kept is None or home.currency != row.currency else price + kept
    restaged = row.tier in ("local_nvme", "attached_ssd")
    sources = (row.source, home.source)
    return Storage(
        row.tier, row.name, volumes, gb, total, first, max(first, later), stage, restaged, monthly, row.currency, sources
    )


def _rounded(row: Tier, gb: float) -> float:
    """The least size that the tier sells which holds `gb`."""
    if gb <= row.min_gb:
        return row.min_gb
    if row.tier == "shared" and row.step_gb > row.min_gb:
        return ceil(gb / row.step_gb - 1e-9) * row.step_gb
    return row.min_gb + ceil((gb - row.min_gb) / row.step_gb - 1e-9) * row.step_gb if row.step_gb else gb


def _own_mb(row: Tier, gb: float) -> float:
    """MB/s that come with a size."""
    mb = row.included_mb + row.mb_per_tb * gb / 1000
    return mb if row.max_mb is None else min(mb, row.max_mb)


def _fed(row: Tier, least_gb: float, need_mb: float) -> tuple[float, float]:
    """(GB, MB/s) that reach `need_mb`, or come as near as the tier can."""
    own = _own_mb(row, least_gb)
    if need_mb <= own:
        return least_gb, own
    if row.price_per_mb_month is not None:
        return least_gb, min(float(ceil(need_mb)), row.max_mb or float(ceil(need_mb)))
    if not row.mb_per_tb:
        return least_gb, own
    goal = need_mb if row.max_mb is None else min(need_mb, row.max_mb)
    gb = _rounded(row, max(least_gb, (goal - row.included_mb) / row.mb_per_tb * 1000))
    gb = gb if row.max_gb is None else min(gb, row.max_gb)
    return gb, _own_mb(row, gb)


def _throughput(row: Tier, gb: float) -> float:
    return _own_mb(row, gb) * 1e6


def _price(row: Tier, gb: float) -> Fraction | None:
    return None if row.price_per_gb_month is None else row.price_per_gb_month * Fraction(ceil(gb))


def fed_ratio(storage: Storage, need_bytes_per_second: float) -> float:
    """What the slower of the first and the later epochs gives, to what the GPUs would read; 1 and more: they never wait."""
    return min(storage.first_bytes_per_second, storage.later_bytes_per_second) / need_bytes_per_second

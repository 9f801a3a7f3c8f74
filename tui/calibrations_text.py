"""Calibrations as tables: what was measured with its spread, and whether two of them agree.

Invariant: a figure is never shown without its spread, and figures under other conditions are not held against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tui import format as fmt
from tui.calibrations import when

if TYPE_CHECKING:
    from pricing.calibration import Calibration, Figure

LIST_TITLES = ("ID", "MEASURED (UTC)", "NODE", "TYPE", "HARDWARE", "FIGURES")
TITLES = ("FIGURE", "MEASURED", "SPREAD", "UNDER")
COMPARE_TITLES = ("FIGURE", "A", "B", "B TO A", "SPREADS", "VERDICT")
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
CONDITIONS = ("batch_size", "precision", "ranks", "settings", "side", "bytes", "direct", "fields", "dense", "tokens_a_sample")
"""Under which a figure was measured, so that one under others cannot be held against it."""


def amount(value: float, unit: str, samples: str = " samples") -> str:
    """`612 TFLOPS`, `3.1 TB/s`, `1,362 samples/s`."""
    if unit == "samples_per_second":
        return f"{value:,.0f}{samples}/s" if value >= 100 else f"{value:.3g}{samples}/s"
    prefix, size = next(((one, size) for one, size in _PREFIXES if value >= size), ("", 1.0))
    return f"{value / size:.3g} {prefix}{'FLOPS' if unit == 'flops' else 'B/s'}"


def spread(ratio: float) -> str:
    return f"±{ratio * 100:.1f} %"


def title(found: Calibration) -> str:
    """`gpu-01, aws p5.48xlarge in us-east-1: 8 x NVIDIA H100 80GB HBM3`."""
    place = " ".join(filter(None, (found.cloud and found.cloud.replace("_", " "), found.instance_type))) + (f" in {found.region}" if found.region else "")
    return f"{fmt.clean(', '.join(filter(None, (found.node or found.host, place))))}: {fmt.clean(found.hardware)}"


def versions(found: Calibration) -> str:
    """When it was measured, and with what."""
    parts = [when(found) + " UTC", f"id {found.id}", f"torch {found.torch}"]
    parts += [f"{name} {value}" for name, value in (("CUDA", found.cuda), ("driver", found.driver)) if value]
    parts += [f"CPU {found.cpu}"] if found.cpu else []
    parts += [f"{found.threads} thread{'s' * (found.threads > 1)}"] if found.threads and not found.gpu else []
    parts += [f"${found.usd_per_hour}/h"] if found.usd_per_hour else []
    return fmt.clean(", ".join(parts))


def list_row(found: Calibration) -> tuple[str, ...]:
    node, kind = found.node or found.host or fmt.UNKNOWN, found.instance_type or fmt.UNKNOWN
    recipes = [one.name.removeprefix("recipe_") for one in found.figures if one.name.startswith("recipe_")]
    return (found.id, when(found), fmt.clean(node), fmt.clean(kind), fmt.clean(found.hardware), f"{len(found.figures)}: {', '.join(recipes) or 'no recipe'}")


def row(one: Figure) -> tuple[str, ...]:
    return (fmt.clean(one.name), amount(one.value, one.unit), spread(one.spread_ratio), under(one))


def under(one: Figure) -> str:
    """The conditions, in short."""
    about = one.about
    if one.name.startswith("recipe_"):
        ranks = f" on {about['ranks']} ranks" if about.get("ranks", 1) != 1 else ""
        return fmt.clean(f"batch {about.get('batch_size')}, {about.get('precision')}{ranks}{_changed(one)}")
    if "side" in about:
        return f"side {about['side']}"
    size = fmt.size(about["bytes"]) if isinstance(about.get("bytes"), int) else ""
    return size + ("" if about.get("direct", True) else ", through the kernel's cache")


def _changed(one: Figure) -> str:
    """Settings of the recipe that are not as it ships: `, width=768 parallel=fsdp`."""
    from tui import recipes

    name, settings = one.name.removeprefix("recipe_"), one.about.get("settings")
    if name not in recipes.names() or not isinstance(settings, dict):
        return ""
    ships = recipes.defaults(name)
    other = [f"{key}={value}" for key, value in settings.items() if key in ships and value != ships[key] != "auto"]
    return f", {' '.join(other)}" if other else ""


class Pair(NamedTuple):
    """One figure of two calibrations; `agrees` None: one has it alone, or under other conditions."""

    name: str
    one: Figure | None
    other: Figure | None
    agrees: bool | None

    @property
    def change(self) -> float | None:
        return self.other.value / self.one.value - 1 if self.one and self.other else None


def pairs(one: Calibration, other: Calibration) -> Iterator[Pair]:
    """Of every figure that either has."""
    for name in dict.fromkeys(figure.name for both in (one, other) for figure in both.figures):
        a, b = one.figure(name), other.figure(name)
        if a is None or b is None or _conditions(a) != _conditions(b):
            yield Pair(name, a, b, None)
        else:
            yield Pair(name, a, b, a.agrees(b))


def _conditions(one: Figure) -> dict[str, Any]:
    return {key: one.about.get(key) for key in CONDITIONS}


def compare_row(pair: Pair) -> tuple[str, ...]:
    a, b = (amount(one.value, one.unit, "") if one else fmt.UNKNOWN for one in (pair.one, pair.other))
    if pair.one is None or pair.other is None:
        return (fmt.clean(pair.name), a, b, fmt.UNKNOWN, fmt.UNKNOWN, "only in A" if pair.one else "only in B")
    verdict = {True: "agree", False: "DIFFER", None: "other settings"}[pair.agrees]
    change = f"{(pair.change or 0.0) * 100:+.1f} %"
    spreads = f"±{pair.one.spread_ratio * 100:.1f} ±{pair.other.spread_ratio * 100:.1f} %"
    return (fmt.clean(pair.name), a, b, change, spreads, verdict)


def verdict(found: Sequence[Pair]) -> str:
    """One sentence."""
    held = [one for one in found if one.agrees is not None]
    differ = [one for one in held if one.agrees is False]
    if not held:
        return "nothing was measured under the same settings in both"
    if not differ:
        return f"they agree within their spread in all {len(held)} figures that can be held against each other"
    told = ", ".join(f"{fmt.clean(one.name)} by {abs(one.change or 0.0) * 100:.1f} %" for one in differ)
    return f"they differ by more than their spread in {len(differ)} of {len(held)} figures: {told}"

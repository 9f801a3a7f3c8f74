"""Orders to nodes as people type them: how long alerts are paused and why, which part of a GPU a client of MPS gets.

Invariant: what can be read in two ways is refused with how to write it. The app and the commands take the same words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from agent import wire
from tui import amounts
from tui.blast import length, me
from tui.errors import WrongUsage

RULES = (
    "gpu_idle_held", "gpu_lost", "gpu_hot", "gpu_throttled", "gpu_xid", "disk_full", "memory_full", "sensor_failing", "node_silent",
    "cloud_notice",
)  # fmt: skip
"""As the agents name them; an agent that is newer may know others, and says so."""
PAUSE_EXAMPLE = "2h new fan"
SHARE_EXAMPLE = "0 50% 8G"


class Share(NamedTuple):
    """`all`, or the indexes of GPUs, and what a client gets of each."""

    indexes: tuple[int, ...] | None
    """None: all GPUs of the node."""
    setting: wire.MpsSetting


def pause_seconds(text: str, what: str = "--for") -> float:
    """`2h`, `1d`. Raises `WrongUsage`."""
    try:
        seconds = amounts.duration(text)
    except ValueError as error:
        raise WrongUsage(f"{what}: `{text}` {error}.") from None
    if not 1 <= seconds <= wire.LONGEST_PAUSE_SECONDS:
        raise WrongUsage(f"{what}: alerts are paused for a second at least, and for {length(wire.LONGEST_PAUSE_SECONDS)} at most.")
    return seconds


def reason_of(text: str | None, what: str = "--reason") -> str | None:
    """One line, or None where nothing was said. Raises `WrongUsage`."""
    if text is None or not text.strip():
        return None
    if not text.strip().isprintable() or len(text.strip()) > wire.LONGEST_REASON:
        raise WrongUsage(f"{what}: a reason is one line of at most {wire.LONGEST_REASON} printable characters.")
    return text.strip()


def pause_order(seconds: float, reason: str | None, rule: str | None = None, gpu: str | None = None) -> wire.PauseOrder:
    return wire.PauseOrder(seconds=seconds, rule=rule, gpu=gpu, reason=reason, who=me())


def typed_pause(text: str) -> tuple[float, str | None]:
    """`2h new fan`: how long, and why. Raises `WrongUsage`."""
    first, _, rest = text.strip().partition(" ")
    return pause_seconds(first, "for how long"), reason_of(rest, "why")


def typed_share(text: str) -> Share:
    """`0 50% 8G`, `0,2 0.25`, `all 50%`: which GPUs, which share, which memory. Raises `WrongUsage`."""
    words = text.split()
    if not 2 <= len(words) <= 3:
        raise WrongUsage(f"write the GPU, its share and, if wanted, the memory: `{SHARE_EXAMPLE}`, `all 25%`.")
    parts = [share_setting(word, None) if _is_share(word) else share_setting(None, word) for word in words[1:]]
    percent = [one.active_thread_percentage for one in parts if one.active_thread_percentage is not None]
    memory = [one.pinned_memory_bytes for one in parts if one.pinned_memory_bytes is not None]
    if len(percent) > 1 or len(memory) > 1:
        raise WrongUsage(f"write one share and one memory: `{SHARE_EXAMPLE}`.")
    setting = wire.MpsSetting(active_thread_percentage=next(iter(percent), None), pinned_memory_bytes=next(iter(memory), None))
    return Share(gpu_indexes(words[0]), setting)


def _is_share(word: str) -> bool:
    return re.fullmatch(r"[\d.]+%?", word, re.ASCII) is not None


def gpu_indexes(text: str) -> tuple[int, ...] | None:
    """`0`, `0,2`, `all`. Raises `WrongUsage`."""
    if text.casefold() == "all":
        return None
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text, re.ASCII):
        raise WrongUsage(f"`{text[:40]}` is no GPU of a node; write its index, `0`, some of them, `0,2`, or `all`.")
    return tuple(dict.fromkeys(map(int, text.split(","))))


def share_setting(share: str | None, memory: str | None) -> wire.MpsSetting:
    """`50%` or `0.5` of the SMs, `8G` of memory. Raises `WrongUsage`."""
    if share is None and memory is None:
        raise WrongUsage("say what to set: --share 50%, --memory 8G, or both.")
    found = None if memory is None else _memory(memory)
    return wire.MpsSetting(active_thread_percentage=None if share is None else _percent(share), pinned_memory_bytes=found)


def _percent(text: str) -> Decimal:
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?|\.\d{1,6})(%?)", text.strip(), re.ASCII)
    value = Decimal(match[1]) if match else Decimal(0)
    if match and not match[2] and value > 1:
        raise WrongUsage(f"--share: `{text}` could be meant in two ways; write {value:f}% or a part of one, such as 0.5.")
    percent = value if match and match[2] else value * 100
    if not 0 < percent <= 100:
        raise WrongUsage(f"--share: `{text[:40]}` is no share of a GPU; write it as 50% or 0.5.")
    return percent


def _memory(text: str) -> int:
    try:
        return amounts.size(text)
    except ValueError as error:
        raise WrongUsage(f"--memory: `{text[:40]}` {error}.") from None


def chosen_gpus(gpus: Sequence[wire.Gpu], indexes: tuple[int, ...] | None, node: str) -> list[wire.Gpu]:
    """The GPUs with these indexes. Raises `WrongUsage`."""
    if not gpus:
        raise WrongUsage(f"{node} has no GPUs.")
    if indexes is None:
        return list(gpus)
    by_index = {gpu.index: gpu for gpu in gpus}
    if missing := [index for index in indexes if index not in by_index]:
        raise WrongUsage(f"{node} has no GPU {missing[0]}; it has {', '.join(map(str, by_index))}.")
    return [by_index[index] for index in indexes]


def share_words(setting: wire.MpsSetting) -> list[str]:
    """The options of `rackrate mps` that say it."""
    words = []
    if setting.active_thread_percentage is not None:
        words += ["--share", f"{setting.active_thread_percentage.normalize():f}%"]
    if setting.pinned_memory_bytes is not None:
        words += ["--memory", memory_text(setting.pinned_memory_bytes)]
    return words


def memory_text(value: int) -> str:
    unit, scale = next(((unit, scale) for unit, scale in (("G", 1 << 30), ("M", 1 << 20)) if value % scale == 0), ("", 1))
    return f"{value // scale}{unit}"

"""State files for the stand-in libnvidia-ml.so.1: boards, presets and changes while a program runs.

Invariant: a state file is only ever replaced whole (by rename), so a reader never sees half of one.
Figures of the boards are those of public data sheets; a key that is absent is NOT_SUPPORTED to the driver.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

M, G = 1 << 20, 1 << 30

BOARDS: dict[str, dict[str, Any]] = {
    "H100": dict(name="NVIDIA H100 80GB HBM3", total=81559 * M, reserved=551 * M, watt=700, sm=1980, memory_clock=2619,
                 generation=5, cc="9.0", ecc=True, mig=True, nvlinks=18),
    "A100": dict(name="NVIDIA A100-SXM4-40GB", total=40960 * M, reserved=571 * M, watt=400, sm=1410, memory_clock=1215,
                 generation=4, cc="8.0", ecc=True, mig=True, nvlinks=12),
    "T4": dict(name="Tesla T4", total=15360 * M, reserved=438 * M, watt=70, sm=1590, memory_clock=5001,
               generation=3, cc="7.5", ecc=True, mig=False),
    "GB10": dict(name="NVIDIA GB10", total=None, reserved=None, watt=None, sm=3003, memory_clock=None,
                 generation=1, cc="12.1", ecc=False, mig=False),
}
MIG_PROFILES = {"1g.5gb": (1, 14, 4864 * M), "2g.10gb": (2, 28, 9856 * M), "3g.20gb": (3, 42, 19968 * M)}


class State(dict[str, Any]):
    """The keys of a state file. `s["3.util"] = 97; s.write(path)` changes GPU 3 while a program runs."""

    @classmethod
    def machine(cls, board: str, count: int, driver: str = "550.90.07", cuda: int = 12040) -> State:
        """`count` idle GPUs of one board."""
        state = cls(count=count, driver=driver, cuda=cuda, nvml=f"{cuda // 1000}.{driver}")
        for gpu in range(count):
            state.board(gpu, **BOARDS[board])
        return state

    def write(self, path: str | Path) -> State:
        """Replaces the file at `path` atomically."""
        partial = f"{path}.partial"
        Path(partial).write_text(str(self))
        os.replace(partial, path)
        return self

    def __str__(self) -> str:
        lines = sorted((key, value) for key, value in self.items() if value is not None and value != "")
        return "".join(f"{key}={value}\n" for key, value in lines)

    def gpu(self, index: int, **values: Any) -> State:
        """Sets keys of one GPU; `__` stands for a dot: `state.gpu(3, mem__used=5, util=97)`."""
        self.update({f"{index}.{key.replace('__', '.')}": value for key, value in values.items()})
        return self

    def board(self, gpu: int, *, name: str, total: int | None, reserved: int | None, watt: int | None, sm: int,
              memory_clock: int | None, generation: int, cc: str, ecc: bool, mig: bool, nvlinks: int = 0) -> None:
        """One idle GPU."""
        self.gpu(gpu, name=name, uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}.{gpu}')}", serial=1650000000000 + gpu,
                 minor=gpu, pci=f"00000000:{0x10 + 0x11 * gpu % 0xF0:02X}:00.0", cc=cc, numa=gpu // 4, persistence=1,
                 compute_mode=0, display=0, util=0, util__mem=0, enc=0, dec=0, enc__period=167000, temp=31 + gpu % 3,
                 power=watt * 100 if watt else 4500, throttle=1, pstate=0, procs=" ", procs__graphics=" ", procs__mps=" ")
        self.gpu(gpu, clock__0=sm // 4, clock__1=sm // 4, clock__2=memory_clock, pcie__0=500, pcie__1=500, pcie__gen=generation,
                 pcie__width=16 if watt else 1, pcie__gen__max=generation, pcie__width__max=16 if watt else 1,
                 clock__3=(sm - 195) // 4, clock__max__0=sm, clock__max__1=sm, clock__max__2=memory_clock, clock__max__3=sm - 195)
        if total:
            self.gpu(gpu, mem__total=total, mem__used=4 * M, mem__reserved=reserved, bar1__total=total, bar1__used=4 * M, mem__bus=5120)
        if watt:
            self.gpu(gpu, power__limit=watt * 1000, power__enforced=watt * 1000, power__default=watt * 1000, energy=10_000_000 * (gpu + 1))
        if ecc:
            self.gpu(gpu, ecc=1, ecc__pending=1, ecc__0__0=0, ecc__0__1=0, ecc__1__0=0, ecc__1__1=0)
        if mig:
            self.gpu(gpu, mig__mode=0, mig__pending=0, mig__max=7)
        if nvlinks:
            self.nvlink(gpu, nvlinks)

    def busy(self, gpu: int, *processes: tuple[Any, ...], utilization: int = 97) -> State:
        """GPU at work: processes are (pid, bytes or "na", SM %, memory %)."""
        used = sum(memory for _, memory, *_ in processes if memory != "na")
        limit = self.get(f"{gpu}.power.limit")
        self.gpu(gpu, procs=" ".join(":".join(map(str, row)) for row in processes) or " ", util=utilization, throttle=0, temp=55 + gpu % 5)
        if self.get(f"{gpu}.mem.total"):
            self.gpu(gpu, mem__used=4 * M + used, util__mem=utilization // 3)
        if limit:
            self.gpu(gpu, power=int(limit) * utilization // 105)
        return self

    def nvlink(self, gpu: int, links: int, received_kib: int = 0, sent_kib: int = 0, down: tuple[int, ...] = ()) -> State:
        """NVLinks that are up but for `down`; counters of payload are spread evenly over them."""
        self[f"{gpu}.field.91"] = links
        self[f"{gpu}.field.138.{2**32 - 1}"], self[f"{gpu}.field.139.{2**32 - 1}"] = sent_kib, received_kib
        for link in range(links):
            self[f"{gpu}.nvlink.{link}.state"] = int(link not in down)
            self[f"{gpu}.field.138.{link}"] = sent_kib // links
            self[f"{gpu}.field.139.{link}"] = received_kib // links
        return self

    def mig(self, gpu: int, *profiles: str) -> State:
        """MIG on, with instances of the 40 GB profiles."""
        self.gpu(gpu, mig__mode=1, mig__pending=1, util="!3", enc="!3", dec="!3")
        for m, profile in enumerate(profiles):
            slices, sms, memory = MIG_PROFILES[profile]
            values = dict(name=f"{self[f'{gpu}.name']} MIG {profile}", uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, f'mig.{gpu}.{m}')}",
                          gi=7 + m, ci=0, sms=sms, slices=slices, procs=" ", cc=self[f"{gpu}.cc"])
            self.update({f"{gpu}.mig.{m}.{key}": value for key, value in values.items()})
            self.update({f"{gpu}.mig.{m}.mem.total": memory, f"{gpu}.mig.{m}.mem.used": 12 * M})
            self.update({f"{gpu}.mig.{m}.procs.graphics": " ", f"{gpu}.mig.{m}.procs.mps": " "})
        return self

    def lost(self, gpu: int, code: int = 15) -> State:
        """Every call for that GPU, its handle too, fails with `code`."""
        self[f"fault.{gpu}.*"] = code
        return self


PRESETS: dict[str, Callable[[], State]] = {
    "8xH100": lambda: State.machine("H100", 8),
    "8xA100": lambda: State.machine("A100", 8),
    "4xT4": lambda: State.machine("T4", 4, "535.183.01", 12020),
    "1xGB10": lambda: State.machine("GB10", 1, "580.95.05", 13000),
    "2xA100-mig": lambda: State.machine("A100", 2).mig(0, "3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb").mig(1, *["1g.5gb"] * 7),
    "8xH100-lost": lambda: State.machine("H100", 8).lost(5),
}

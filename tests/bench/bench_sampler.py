"""CPU of one pass over 8 busy stand-in H100s: ours, nvitop's collector and a raw pynvml loop, in one run; and memory.

Invariant: every figure is CPU time of the whole process at 1 Hz, so threads (XID) are counted too: the median pass.
Run: python -m tests.bench.bench_sampler [PASSES]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.nvml import FakeNvml, compiler
from tests.support.fake_nvml.state import G, State

NVITOP_BUDGET, RAW_BUDGET, MEMORY_BUDGET_MB = 0.4, 2.0, 60.0


def raw_pass() -> Callable[[], object]:
    """Every call that our fast and slow lanes together make, bare."""
    import pynvml as n

    def quiet(call: Callable[..., object], *arguments: object) -> object:
        try:
            return call(*arguments)
        except n.NVMLError as error:
            return error.value

    def one(h: object) -> None:
        simple = (
            n.nvmlDeviceGetUtilizationRates, n.nvmlDeviceGetPowerUsage, n.nvmlDeviceGetEnforcedPowerLimit, n.nvmlDeviceGetFanSpeed,
            n.nvmlDeviceGetTotalEnergyConsumption, n.nvmlDeviceGetPerformanceState, n.nvmlDeviceGetCurrPcieLinkGeneration,
            n.nvmlDeviceGetCurrPcieLinkWidth, n.nvmlDeviceGetCurrentClocksEventReasons, n.nvmlDeviceGetMigMode,
            n.nvmlDeviceGetEncoderUtilization, n.nvmlDeviceGetDecoderUtilization, n.nvmlDeviceGetComputeRunningProcesses,
            n.nvmlDeviceGetGraphicsRunningProcesses, n.nvmlDeviceGetMPSComputeRunningProcesses,
        )  # fmt: skip
        for call in simple:
            quiet(call, h)
        quiet(n.nvmlDeviceGetMemoryInfo, h, n.nvmlMemory_v2)
        for call, argument in ((n.nvmlDeviceGetTemperature, 0), (n.nvmlDeviceGetClockInfo, 1), (n.nvmlDeviceGetClockInfo, 2)):
            quiet(call, h, argument)
        quiet(n.nvmlDeviceGetTotalEccErrors, h, 0, 0)
        quiet(n.nvmlDeviceGetTotalEccErrors, h, 1, 0)
        quiet(n.nvmlDeviceGetProcessUtilization, h, 0)

    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(index) for index in range(n.nvmlDeviceGetCount())]
    return lambda: [one(handle) for handle in handles]


def nvitop_pass() -> Callable[[], object]:
    """nvitop's ResourceMetricCollector over all devices."""
    from nvitop import Device, ResourceMetricCollector

    collector = ResourceMetricCollector(Device.all(), interval=1.0)
    collector.activate("bench")
    return collector.collect


def our_pass(*, slow: bool = False, host: bool = True) -> Callable[[], object]:
    """GPUs, processes and, with `host`, the host. With `slow` each pass has the slow lane, which at 1 Hz is every fifth."""
    from agent.sensors.host import HostSensor
    from agent.sensors.nvml import NvmlSensor

    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 10.0 if slow else 1.0
        return now

    gpus, machine = NvmlSensor(clock=clock), HostSensor()
    return lambda: (gpus.read(), machine.read() if host else None)


PASSES = {
    "raw": raw_pass,
    "nvitop": nvitop_pass,
    "gpus": lambda: our_pass(host=False),
    "gpus-slow": lambda: our_pass(host=False, slow=True),
    "all": our_pass,
    "all-slow": lambda: our_pass(slow=True),
}


def measure(name: str, passes: int) -> None:
    """Prints milliseconds of CPU a pass (in a child)."""
    once = PASSES[name]()
    once()
    once()
    costs = []
    for _ in range(passes):
        time.sleep(1.0)  # at the rate of the daemon: nvitop answers from its caches when asked faster
        before = time.process_time()
        once()
        costs.append(time.process_time() - before)
    begin = time.process_time()
    time.sleep(2.0)
    idle = (time.process_time() - begin) / 2  # what threads of its own use meanwhile
    print((statistics.median(costs) + idle) * 1e3, flush=True)
    os._exit(0)


def pss(seconds: float = 4.0) -> None:
    """Prints the PSS in MB and the CPU in ms a second of a process that only runs the sampler (in a child)."""
    from agent.sampler import Sampler
    from agent.sensors.host import HostSensor
    from agent.sensors.nvml import NvmlSensor

    sampler = Sampler("bench", [HostSensor(), NvmlSensor()])
    sampler.start()
    sampler.wait(5)
    begin = time.process_time()
    for sequence in range(int(seconds)):
        time.sleep(1)
        sampler.sample(sequence)
    cpu = (time.process_time() - begin) / seconds * 1e3
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    print(next(int(line.split()[1]) / 1024 for line in rollup if line.startswith("Pss:")), cpu, flush=True)
    sampler.close()


def main(passes: int) -> int:
    """Prints the table; 1 when a budget is missed."""
    if compiler() is None:
        print("no C compiler: the stand-in NVML library cannot be built")
        return 0
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(8)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _compare(FakeNvml(Path(folder)), children, passes)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _compare(fake: FakeNvml, children: list[subprocess.Popen[bytes]], passes: int) -> int:
    state = fake.use(State.machine("H100", 8))
    for gpu, child in enumerate(children):
        state.busy(gpu, (child.pid, 60 * G, 95, 40))
    fake.write()

    def child(*arguments: str) -> list[float]:
        return [float(word) for word in fake.run([sys.executable, "-m", "tests.bench.bench_sampler", *arguments]).split()]

    with ThreadPoolExecutor() as pool:  # side by side, so that a busy machine is busy for all of them
        cost = dict(zip(PASSES, (figure for figure, in pool.map(lambda name: child(name, str(passes)), PASSES))))
    gpus, ours = ((4 * cost[name] + cost[f"{name}-slow"]) / 5 for name in ("gpus", "all"))
    memory, cpu = child("pss")
    print(f"raw pynvml loop            {cost['raw']:7.2f} ms CPU a pass")
    print(f"nvitop collector           {cost['nvitop']:7.2f} ms")
    print(f"ours, GPUs only            {gpus:7.2f} ms  (fast {cost['gpus']:.2f}, with the slow lane {cost['gpus-slow']:.2f})")
    print(f"ours, GPUs and host        {ours:7.2f} ms  (fast {cost['all']:.2f}, with the slow lane {cost['all-slow']:.2f})")
    print(f"GPUs and host / nvitop     {ours / cost['nvitop']:7.2f}     budget {NVITOP_BUDGET}")
    print(f"GPUs / raw loop            {gpus / cost['raw']:7.2f}     budget {RAW_BUDGET}")
    print(f"sampler alone, 1 Hz        {cpu:7.2f} ms CPU a second, with its threads")
    print(f"sampler alone, PSS         {memory:7.1f} MB  budget of the whole agent {MEMORY_BUDGET_MB:.0f}")
    return int(ours > NVITOP_BUDGET * cost["nvitop"] or gpus > RAW_BUDGET * cost["raw"] or memory > MEMORY_BUDGET_MB)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["pss"]:
            pss()
        case [name, count]:
            measure(name, int(count))
        case rest:
            sys.exit(main(int(rest[0]) if rest else 12))

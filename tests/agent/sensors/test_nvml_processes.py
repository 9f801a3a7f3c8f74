"""Processes on the stand-in's GPUs: whose they are, what they hold, and what cannot be known."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import wire
from tests.support.fake_nvml.state import PRESETS, G
from tests.support.nvml import FakeNvml, fake_nvml  # noqa: F401  (a fixture)

ABSENT_PID = 4_194_304 + 7
"""Above the kernel's largest pid."""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A program that waits, with arguments that would write to a terminal and an environment that names its job."""
    code = "import time; time.sleep(120)"
    command = [sys.executable.encode(), b"-c", code.encode(), b"--name", b"\x1b[31mred\x1b[0m", b"bad\xff\xfebytes", b"two\nlines"]
    environment = {**os.environ, "RACKRATE_JOB": "job-\x1b[2J7", "RACKRATE_PROJECT": "vision", "SLURM_JOB_ID": "12"}
    child = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 60
    while b"--name" not in Path(f"/proc/{child.pid}/cmdline").read_bytes() and time.monotonic() < deadline:
        time.sleep(0.01)
    yield child
    child.kill()
    child.wait()


def processes_of(fake: FakeNvml, gpu: int = 0) -> dict[int, wire.Process]:
    with fake.sensor() as sensor:
        return {process.pid: process for process in sensor.gpus()[gpu].processes or ()}


def test_a_process_has_its_user_command_job_and_share(fake_nvml: FakeNvml, sleeper: subprocess.Popen[bytes]) -> None:
    fake_nvml.use(PRESETS["8xH100"]().busy(0, (sleeper.pid, 40 * G, 95, 40)))
    process = processes_of(fake_nvml)[sleeper.pid]
    assert (process.user, process.job, process.project) == (getpass.getuser(), "job-[2J7", "vision")
    assert (process.memory_used_bytes, process.utilization_ratio, process.visible, process.kind) == (40 * G, 0.95, True, "compute")
    assert process.started_at is not None and abs(process.started_at.timestamp() - time.time()) < 120


def test_escape_bytes_and_invalid_utf_8_in_a_command_come_out_clean(fake_nvml: FakeNvml, sleeper: subprocess.Popen[bytes]) -> None:
    fake_nvml.use(PRESETS["8xH100"]().busy(0, (sleeper.pid, G, 5, 1)))
    command = processes_of(fake_nvml)[sleeper.pid].command or ""
    assert command.isprintable()
    assert command.endswith("--name [31mred[0m bad\ufffd\ufffdbytes two lines")


def test_a_pid_that_cannot_be_resolved_is_invisible_but_keeps_its_memory(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]().busy(0, (ABSENT_PID, 7 * G, 12, 1)))
    process = processes_of(fake_nvml)[ABSENT_PID]
    assert process == wire.Process(pid=ABSENT_PID, visible=False, memory_used_bytes=7 * G, utilization_ratio=0.12)


def test_a_pid_in_several_lists_keeps_its_largest_figure_not_the_sum(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]())
    fake_nvml.state.gpu(0, procs=f"1:{3 * G}:10:0 2:{G}:10:0", procs__graphics=f"1:{5 * G} 3:{G}", procs__mps=f"2:{4 * G} 4:na")
    fake_nvml.write()
    found = [(p.pid, p.kind, p.memory_used_bytes) for p in processes_of(fake_nvml).values()]
    assert found == [(1, "compute", 5 * G), (2, "mps", 4 * G), (3, "graphics", G), (4, "mps", None)]


def test_a_pid_on_two_gpus_is_on_both(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]().busy(0, (1, G, 10, 1)).busy(1, (1, 2 * G, 20, 1)))
    with fake_nvml.sensor() as sensor:
        gpus = sensor.gpus()
    found = [[(p.pid, p.memory_used_bytes, p.utilization_ratio) for p in gpu.processes or ()] for gpu in gpus[:3]]
    assert found == [[(1, G, 0.1)], [(1, 2 * G, 0.2)], []]


def test_no_sample_is_no_work_where_the_driver_measures_it_and_unknown_where_not(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["8xH100"]())
    state.gpu(0, procs=f"1:{G}").gpu(1, procs=f"1:{G}:50:0").gpu(2, procs=f"1:{G}:50000:0")
    state["fault.1.nvmlDeviceGetProcessUtilization"] = 3
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        gpus = sensor.gpus()
    assert [(gpu.processes or ())[0].utilization_ratio for gpu in gpus[:3]] == [0.0, None, 0.0]
    assert "processes.utilization_ratio" in gpus[1].unsupported


def test_shares_of_a_process_follow_from_second_to_second(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]().busy(0, (1, G, 10, 1)))
    with fake_nvml.sensor() as sensor:
        seen = [(sensor.gpus()[0].processes or ())[0].utilization_ratio]
        for share in (80, 30):
            fake_nvml.use(fake_nvml.state.busy(0, (1, G, share, 1)))
            seen.append((sensor.gpus(1)[0].processes or ())[0].utilization_ratio)
    assert seen == [0.1, 0.8, 0.3]


def test_processes_in_mig_instances_are_the_parents_with_unknown_share(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["2xA100-mig"]())
    fake_nvml.state["0.mig.1.procs"] = f"1:{3 * G}:50:0"
    fake_nvml.write()
    process = processes_of(fake_nvml)[1]
    assert (process.memory_used_bytes, process.utilization_ratio) == (3 * G, None)


def test_a_parent_that_may_not_list_its_instances_processes_is_asked_instance_by_instance(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["2xA100-mig"]())
    fake_nvml.state.update({"0.procs": "!4", "0.mig.0.procs": f"1:{G}", "0.mig.1.procs": f"1:{3 * G} 2:{G}"})
    fake_nvml.write()
    assert [(p.pid, p.memory_used_bytes) for p in processes_of(fake_nvml).values()] == [(1, 3 * G), (2, G)]

"""The compute mode: taken, kept, given back, also by another agent; and through NVML on the stand-in driver."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from agent.errors import MpsFault
from agent.isolation import mps_record
from agent.isolation.mps_record import Record, Sharer
from tests.support.fake_mps.rig import FakeMps, fake_mps
from tests.support.fake_nvml.state import State
from tests.support.nvml import FakeNvml, fake_nvml

__all__ = ["fake_mps", "fake_nvml"]


def record_of(fake_mps: FakeMps) -> Record:
    return mps_record.load(fake_mps.root, fake_mps.uuid)


def test_the_mode_before_is_on_disk_before_the_mode_is_changed(fake_mps: FakeMps, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    fake_mps.mode.mode = "exclusive_thread"
    change = fake_mps.mode.set

    def spy(uuid: str, mode: str) -> None:
        seen.append((mode, record_of(fake_mps).mode_before))
        change(uuid, mode)

    monkeypatch.setattr(fake_mps.mode, "set", spy)
    gpu = fake_mps.gpu()
    gpu.start()
    gpu.stop()
    assert seen == [("exclusive_process", "exclusive_thread"), ("exclusive_thread", "exclusive_thread")]


def test_an_agent_killed_between_record_and_mode_is_put_right_by_the_next(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    gpu._daemon.make_folders()
    gpu._modes.take()
    assert (fake_mps.mode.mode, record_of(fake_mps).mode_before) == ("exclusive_process", "default")
    fake_mps.gpu().adopt({})
    assert fake_mps.mode.mode == "default" and list(fake_mps.runtime.iterdir()) == []


def test_a_mode_that_was_exclusive_before_stays_so(fake_mps: FakeMps) -> None:
    fake_mps.mode.mode = "exclusive_process"
    gpu = fake_mps.gpu()
    assert "mode" not in {step.kind for step in gpu.plan(Decimal("0.5"))}
    gpu.start()
    gpu.stop()
    assert fake_mps.mode.asked == [] and fake_mps.mode.mode == "exclusive_process"


def test_a_mode_that_may_not_be_set_is_said_and_not_fatal(fake_mps: FakeMps) -> None:
    fake_mps.mode.refused = True
    gpu = fake_mps.gpu()
    gpu.start()
    gpu.admit("a", Decimal("0.5"))
    (sentence,) = gpu.not_enforced
    assert "Insufficient Permissions" in sentence and "does not use MPS can use the GPU" in sentence
    assert gpu.state().state == "idle" and record_of(fake_mps).mode_before is None


def test_a_mode_that_cannot_be_put_back_is_said_and_tried_again(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    gpu.start()
    fake_mps.mode.refused = True
    gpu.stop()
    (sentence,) = gpu.warnings
    assert "was left in compute mode EXCLUSIVE_PROCESS, which was DEFAULT before" in sentence and gpu.state().reason == sentence
    fake_mps.mode.refused = False
    fake_mps.gpu().adopt({})
    assert fake_mps.mode.mode == "default" and list(fake_mps.runtime.iterdir()) == []


def test_a_mode_that_somebody_changed_is_told_and_set_again(fake_mps: FakeMps) -> None:
    ticks = 0.0
    gpu = fake_mps.gpu(clock=lambda: ticks)
    gpu.start()
    assert gpu.poll() == ()
    fake_mps.mode.mode, ticks = "default", 3.0
    assert gpu.poll() == (
        f"somebody changed the compute mode of {fake_mps.uuid} to DEFAULT while it is shared; it is EXCLUSIVE_PROCESS again",
    )
    fake_mps.mode.mode = "prohibited"
    gpu.stop()
    assert fake_mps.mode.mode == "prohibited", "not ours to put back"
    with pytest.raises(MpsFault, match="PROHIBITED"):
        gpu.start()


def test_a_record_of_before_a_reboot_keeps_the_defaults_alone(tmp_path: Path) -> None:
    record = Record(gpu="GPU-a", boot_id="another", mode_before="default", percentage=Decimal(40), jobs={"a": Sharer(share=5)})
    mps_record.save(tmp_path, record)
    assert mps_record.load(tmp_path, "GPU-a") == Record(gpu="GPU-a", boot_id=mps_record.boot_id(), percentage=Decimal(40))
    assert mps_record.load(tmp_path, "GPU-b") == Record(gpu="GPU-b", boot_id=mps_record.boot_id())
    (tmp_path / "gpu.json").write_text("{half")
    assert mps_record.load(tmp_path, "GPU-a") == Record(gpu="GPU-a", boot_id=mps_record.boot_id())
    assert (tmp_path / "gpu.json").stat().st_mode & 0o777 == 0o600


NVML = """
import json, sys
from agent.isolation.mps_modes import ModeRefused, NvmlComputeMode
mode, answers = NvmlComputeMode(), []
for call in json.loads(sys.argv[1]):
    try:
        answers.append(getattr(mode, call[0])(*call[1:]))
    except ModeRefused as refused:
        answers.append(str(refused))
print(json.dumps(answers))
"""


def test_nvml_reads_and_sets_the_mode_of_the_gpu_that_was_meant(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(State.machine("H100", 2))
    first, second = state["0.uuid"], state["1.uuid"]

    def run(*calls: tuple[str, ...]) -> list[str | None]:
        return json.loads(fake_nvml.run([sys.executable, "-W", "error", "-c", NVML, json.dumps(calls)]))

    answers = run(("get", second), ("set", second, "exclusive_process"), ("get", second), ("get", first))
    assert answers == ["default", None, "exclusive_process", "default"]
    assert run(("set", second, "default"), ("get", second)) == [None, "default"]
    state["fault.1.nvmlDeviceSetComputeMode"] = 4
    fake_nvml.write()
    denied, unknown = run(("set", second, "exclusive_process"), ("get", "GPU-none"))
    assert (
        denied == f"the compute mode of {second} cannot be set (Insufficient Permissions, NVML error 4): run the agent as root"
    )
    assert "GPU-none cannot be read (Not Found, NVML error 6)" in (unknown or "")
    fake_nvml.path.unlink()
    (absent,) = run(("get", first))
    assert "cannot be read (Driver Not Loaded" in (absent or "")

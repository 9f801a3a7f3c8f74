"""Where MPS cannot work: the reason, and nothing started."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from agent.errors import MpsFault
from agent.isolation import mps
from agent.isolation.mps_refusal import client_limit, refusal
from agent.wire import GpuInventory
from tests.support.fake_mps.rig import FakeMps, fake_mps

__all__ = ["fake_mps"]

UUID = "GPU-5ebe9c5d-0000-0000-0000-000000000000"
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run a server as another user")


def gpu(**fields: object) -> GpuInventory:
    return GpuInventory(**{"index": 3, "uuid": UUID, "compute_capability": "9.0", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "options", "sentence"),
    [
        ({"mig_enabled": True}, {}, "MIG mode"),
        ({"compute_capability": "3.0"}, {}, "needs 3.5"),
        ({"uuid": "lost-index-3"}, {}, "driver cannot reach it"),
        ({}, {"control": "nvidia-cuda-mps-control-that-is-not-there"}, "Debian: nvidia-cuda-mps; Ubuntu: nvidia-compute-utils"),
        ({}, {"platform": "darwin"}, "Linux alone"),
    ],
)
def test_a_gpu_is_refused_with_its_reason(fields: dict[str, object], options: dict[str, str], sentence: str) -> None:
    assert sentence in (refusal(gpu(**fields), **{"control": "/bin/true", **options}) or "")


def test_wsl_is_refused_and_what_is_not_known_is_not(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/osrelease").write_text("5.15.90.1-microsoft-standard-WSL2\n")
    assert "WSL" in (refusal(gpu(), control="/bin/true", proc=tmp_path) or "")
    for fields in ({}, {"mig_enabled": False}, {"compute_capability": None}, {"compute_capability": "strange"}):
        assert refusal(gpu(**fields), control="/bin/true") is None


def test_the_most_clients_follow_architecture_and_driver() -> None:
    pairs = [
        ("6.1", "13.1"),
        ("7.0", "12.4"),
        ("9.0", "13.0"),
        ("9.0", "13.1"),
        ("12.0", "14.0"),
        ("9.0", None),
        (None, "13.1"),
        ("x", "y"),
    ]
    assert [client_limit(*pair) for pair in pairs] == [16, 48, 48, 60, 60, 48, 16, 16]


def test_more_clients_or_jobs_than_mps_takes_are_refused(fake_mps: FakeMps) -> None:
    shared = fake_mps.gpu(compute_capability="6.1")
    assert shared.not_enforced == (
        "GPUs before Volta ignore MPS's thread percentage and memory limit: the share is an agreement, not a limit",
    )
    shared.start()
    for number in range(16):
        shared.admit(f"job{number}", Decimal("0.01"))
    with pytest.raises(MpsFault, match="shared by 16 jobs, and MPS takes at most 16 clients"):
        shared.admit("job16", Decimal("0.01"))
    shared.release("job0")
    server = fake_mps.start_server()
    for _ in range(16):
        fake_mps.client(server, "0123456789ab")
    with pytest.raises(MpsFault, match="has 16 MPS clients"):
        shared.admit("job16", Decimal("0.01"))


def test_without_the_program_every_call_names_the_package(fake_mps: FakeMps) -> None:
    shared = fake_mps.gpu(control="nvidia-cuda-mps-control-that-is-not-there")
    state = shared.state()
    assert state.state == "refused" and "nvidia-cuda-mps;" in (state.reason or "")
    for call in (shared.start, lambda: shared.plan(Decimal("0.5")), lambda: shared.admit("a", Decimal("0.5"))):
        with pytest.raises(MpsFault, match="is not installed"):
            call()
    shared.adopt({})
    assert shared.poll() == () and not fake_mps.runtime.exists()


def test_a_runtime_folder_too_deep_for_a_socket_is_refused(fake_mps: FakeMps) -> None:
    fake_mps.runtime = fake_mps.folder / ("x" * 90)
    shared = fake_mps.gpu()
    with pytest.raises(MpsFault, match=r"too long for the sockets of MPS \(\d+ bytes, at most 107\)"):
        shared.start()
    assert shared.state().state == "refused" and not fake_mps.runtime.exists()
    with pytest.raises(MpsFault, match="no UUID of a whole GPU"):
        mps.MpsGpu("MIG-1/../..", "/tmp", control=str(fake_mps.control)).start()


@as_root
def test_a_user_who_cannot_reach_the_daemon_is_told_which_folder_is_closed(fake_mps: FakeMps) -> None:
    shared = fake_mps.gpu(run_as_uid=NOBODY)
    fake_mps.folder.chmod(0o700)
    with pytest.raises(MpsFault, match=f"chmod o\\+x {fake_mps.folder}"):
        shared.start()
    fake_mps.folder.chmod(0o711)
    umask = os.umask(0o077)
    try:
        shared.start()
    finally:
        os.umask(umask)
    assert {folder.stat().st_mode & 0o777 for folder in (fake_mps.runtime, fake_mps.root, fake_mps.pipe)} == {0o711}
    assert shared.admit("a", Decimal("0.5"))["CUDA_MPS_PIPE_DIRECTORY"] == str(fake_mps.pipe)


@as_root
def test_jobs_of_two_users_never_share_a_gpu(fake_mps: FakeMps) -> None:
    shared = fake_mps.gpu()
    shared.start()
    shared.admit("a", Decimal("0.5"), uid=NOBODY)
    with pytest.raises(
        MpsFault, match="is used by jobs of user nobody, and MPS serves one user at a time: user root would wait"
    ):
        shared.admit("b", Decimal("0.5"), uid=0)
    shared.release("a")
    server = fake_mps.start_server(NOBODY)
    shared.admit("b", Decimal("0.5"), uid=0)
    shared.release("b")
    fake_mps.client(server, "0123456789ab")
    with pytest.raises(MpsFault, match=f"MPS server {server} of user nobody"):
        shared.admit("b", Decimal("0.5"), uid=0)
    shared.admit("c", Decimal("0.5"), uid=NOBODY)


@as_root
def test_a_server_that_another_user_runs_elsewhere_on_this_gpu_is_a_refusal(fake_mps: FakeMps) -> None:
    theirs = fake_mps.gpu()
    theirs.start()
    server = fake_mps.start_server(NOBODY)
    ours = mps.MpsGpu(fake_mps.uuid, fake_mps.folder / "ours", control=str(fake_mps.control), answer_seconds=30)
    with pytest.raises(MpsFault, match=f"is used by the MPS server {server} of user nobody"):
        ours.start()
    assert not (fake_mps.folder / "ours").exists()
    other = mps.MpsGpu("GPU-another", fake_mps.folder / "ours", control=str(fake_mps.control), answer_seconds=30)
    other.start()
    other.stop()

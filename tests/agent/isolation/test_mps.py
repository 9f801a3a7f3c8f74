"""One GPU shared by jobs, on the stand-in control daemon: plan, parts, state, terminate before kill, life after a killed agent."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pytest

from agent.errors import MpsFault
from agent.isolation.mps import MpsGpu, left_behind
from agent.isolation.mps_control import ClientRow
from agent.wire.jobs import MpsSetting, PlanStep
from tests.support.fake_mps.rig import FakeMps, fake_mps
from tests.support.nvml import ROOT

__all__ = ["fake_mps"]

GIB = 1 << 30
A, B, C = "0123456789ab", "cdefghjkmnpq", "rstvwxyz0123"
NOBODY = 65534


def texts(steps: tuple[PlanStep, ...], kind: str) -> list[str | None]:
    return [step.text for step in steps if step.kind == kind]


def run_hook(gpu: MpsGpu, pids: str, seconds: str = "60") -> subprocess.CompletedProcess[str]:
    """What the shim does with `before_kill`."""
    (hook,) = gpu.before_kill(f"job-{A}-1")
    argv = [pids if word == "{cgroup_pids}" else word for word in hook["argv"]] + [seconds]
    return subprocess.run(argv, env=hook["environment"], check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("version", ["550", "535"])
def test_the_plan_is_exactly_what_is_done(fake_mps: FakeMps, version: str) -> None:
    gpu = fake_mps.gpu(version)
    gpu.set(MpsSetting(active_thread_percentage=Decimal(60), pinned_memory_bytes=8 * GIB))
    plan = gpu.plan(Decimal("0.5"), 4 * GIB)
    assert not fake_mps.pipe.exists() or not list(fake_mps.pipe.iterdir()), "a plan does nothing"
    gpu.start()
    gpu.admit(A, Decimal("0.5"), 4 * GIB)
    assert texts(plan, "mps") == fake_mps.commands()
    assert texts(plan, "mode") == [mode.upper() for mode in fake_mps.mode.asked] == ["EXCLUSIVE_PROCESS"]
    assert [step.kind for step in plan[:2]] == ["mode", "run"] and {step.limit for step in plan} == {"gpu"}
    (pid,) = fake_mps.processes()
    *assignments, program, option = shlex.split(texts(plan, "run")[0] or "")
    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert set(assignments) <= set(environment) and [program, option] == [str(fake_mps.control), "-d"]
    assert f"CUDA_VISIBLE_DEVICES={fake_mps.uuid}" in assignments

    server = fake_mps.start_server()
    fake_mps.client(server, A)
    gpu.poll()
    before = len(fake_mps.commands())
    plan = gpu.plan(Decimal("0.25"))
    gpu.start()
    gpu.admit(B, Decimal("0.25"))
    assert (
        texts(plan, "mps")
        == fake_mps.commands()[before:]
        == ["get_server_list", "get_server_list", f"get_client_list {server}"]
    )
    assert {step.kind for step in plan} == {"mps"}


def test_a_client_gets_its_part_in_its_environment(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    with pytest.raises(MpsFault, match="has not been started"):
        gpu.admit(A, Decimal("0.5"))
    gpu.start()
    first = gpu.admit(A, Decimal("0.333333"), 4 * GIB + 5)
    assert first == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_MPS_PIPE_DIRECTORY": str(fake_mps.pipe),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33.3333",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    second = gpu.admit(B, Decimal("0.5"))
    assert second["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50" and "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in second
    with pytest.raises(MpsFault, match=r"^0\.166667 of GPU-.* is left, and the job asks for 0\.166668$"):
        gpu.admit(C, Decimal("0.166668"))
    gpu.admit(C, Decimal("0.166667"))
    gpu.admit(C, Decimal("0.1"))
    assert gpu.shares == {A: Decimal("0.333333"), B: Decimal("0.5"), C: Decimal("0.1")}
    with pytest.raises(MpsFault, match=f"still shared by {A}, {B}, {C}"):
        gpu.stop()


def test_two_processes_on_one_gpu_are_seen_with_their_jobs(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    assert (gpu.state().state, gpu.state().compute_mode) == ("off", "default")
    gpu.start()
    assert (gpu.state().state, gpu.state().compute_mode) == ("idle", "exclusive_process")
    for job in (A, B):
        gpu.admit(job, Decimal("0.5"))
    server = fake_mps.start_server()
    children = [fake_mps.client(server, job) for job in (A, B)]
    state = gpu.state()
    assert (state.state, state.reason, state.servers, state.client_limit) == ("active", None, (server,), 48)
    assert {client.pid: client.job for client in state.clients} == {
        child.pid: job for child, job in zip(children, (A, B), strict=True)
    }
    assert {client.command for client in state.clients} == {"/bin/sleep 600"}
    assert state.shares == {A: Decimal("0.5"), B: Decimal("0.5")}
    assert gpu.warnings == () and gpu.not_enforced == ()


def test_the_wide_form_of_ps_is_read_alike(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu(environment={"FAKE_MPS_PS": "8"})
    gpu.start()
    server = fake_mps.start_server()
    child = fake_mps.client(server, A)
    (client,) = gpu.state().clients
    assert (client.pid, client.job, client.command) == (child.pid, A, "/bin/sleep 600")
    assert "PRIORITY" in fake_mps.ask("ps") and ClientRow(child.pid, server, "/bin/sleep 600")


def test_clients_are_terminated_before_they_are_killed(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    gpu.start()
    for job in (A, B):
        gpu.admit(job, Decimal("0.5"))
    server = fake_mps.start_server()
    mine, too, other = fake_mps.client(server, A), fake_mps.client(server, A), fake_mps.client(server, B)
    done = run_hook(gpu, f"1,{mine.pid},{too.pid},999999")
    assert (done.returncode, done.stderr) == (0, "")
    assert [client.pid for client in gpu.state().clients] == [other.pid], "the other job's client goes on"
    for child in (mine, too):
        child.kill()
        child.wait(60)
    fake_mps.ask("ps")
    said = [line for line in fake_mps.commands() if line.startswith(("terminate", "x_gone"))]
    assert said[:2] == [f"terminate_client {server} {pid}" for pid in sorted((mine.pid, too.pid))]
    assert sorted(said[2:]) == sorted(f"x_gone {child.pid}" for child in (mine, too))


def test_the_hook_says_what_it_could_not_do_and_always_ends(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu(environment={"FAKE_MPS_STUBBORN": "1"})
    gpu.start()
    server = fake_mps.start_server()
    child = fake_mps.client(server, A)
    assert run_hook(gpu, "").returncode == run_hook(gpu, "999999").returncode == 0, "nothing to do"
    assert run_hook(gpu, "1;2").returncode == 2, "never sent"
    done = run_hook(gpu, str(child.pid), "6")
    assert (done.returncode, str(child.pid) in done.stderr) == (1, True)
    gpu.stop()
    gone = run_hook(gpu, str(child.pid))
    assert gone.returncode == 2 and "Cannot find MPS control daemon" in gone.stderr


def test_a_hook_on_a_daemon_that_hangs_gives_up(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu(environment={"FAKE_MPS_HANG": "get_client_list"})
    gpu.start()
    fake_mps.start_server()
    done = run_hook(gpu, "1", "6")
    assert done.returncode == 2 and "no answer to get_client_list" in done.stderr


def test_the_last_job_leaves_nothing_behind(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    gpu.start()
    gpu.admit(A, Decimal(1))
    fake_mps.start_server()
    gpu.release(A)
    gpu.release("unknown")
    gpu.stop()
    assert fake_mps.processes() == [] and list(fake_mps.runtime.iterdir()) == []
    assert fake_mps.mode.asked == ["exclusive_process", "default"]
    assert gpu.state().state == "off" and gpu.poll() == ()
    gpu.stop()
    assert fake_mps.mode.asked == ["exclusive_process", "default"]


AGENT = """
import sys, time
from decimal import Decimal
from tests.support.fake_mps.rig import FakeMps, Path
from agent.isolation.mps import MpsGpu
gpu = MpsGpu(sys.argv[1], sys.argv[2], control=sys.argv[3], environment={"FAKE_MPS_VERSION": sys.argv[4]}, answer_seconds=30)
gpu.start()
gpu.admit(sys.argv[5], Decimal("0.25"), 1 << 30)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("version", ["550", "535"])
def test_a_killed_agent_leaves_the_daemon_running_and_the_next_one_adopts_it(fake_mps: FakeMps, version: str) -> None:
    argv = [sys.executable, "-c", AGENT, fake_mps.uuid, str(fake_mps.runtime), str(fake_mps.control), version, A]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as agent:
        assert agent.stdout is not None and agent.stdout.readline() == "ready\n"
        (daemon,) = fake_mps.processes()
        assert os.getsid(daemon) == daemon, "a session of its own"
        os.killpg(agent.pid, signal.SIGKILL)
    assert fake_mps.processes() == [daemon]
    assert left_behind(fake_mps.runtime) == (fake_mps.uuid,)
    server = fake_mps.start_server()
    child = fake_mps.client(server, A)
    gpu = fake_mps.gpu(version)
    gpu.adopt({A: Decimal("0.25")})
    assert (gpu.state().state, [client.pid for client in gpu.state().clients], gpu.shares) == (
        "active",
        [child.pid],
        {A: Decimal("0.25")},
    )
    gpu.start()
    gpu.admit(B, Decimal("0.75"))
    assert daemon in fake_mps.processes()
    for job in (A, B):
        gpu.release(job)
    gpu.stop()
    assert fake_mps.processes() == []


def test_a_restarted_agent_without_jobs_clears_away_what_was_left(fake_mps: FakeMps) -> None:
    first = fake_mps.gpu()
    first.start()
    first.admit(A, Decimal("0.5"))
    second = fake_mps.gpu()
    assert second.state().compute_mode == "exclusive_process"
    second.adopt({})
    assert (fake_mps.processes(), fake_mps.mode.mode, left_behind(fake_mps.runtime)) == ([], "default", ())


@pytest.mark.parametrize("version", ["550", "535"])
def test_a_daemon_that_was_killed_is_noticed_and_its_leavings_do_not_hinder_the_next(fake_mps: FakeMps, version: str) -> None:
    gpu = fake_mps.gpu(version)
    gpu.start()
    gpu.admit(A, Decimal("0.5"))
    server = fake_mps.start_server()
    (daemon,) = [pid for pid in fake_mps.processes() if pid != server]
    os.kill(daemon, signal.SIGKILL)
    (news,) = gpu.poll()
    assert "has died" in news and (gpu.state().state, gpu.state().reason) == ("degraded", news)
    assert gpu.poll() == (), "said once"
    for call in (gpu.start, lambda: gpu.admit(B, Decimal("0.1")), lambda: gpu.plan(Decimal("0.1"))):
        with pytest.raises(MpsFault, match="has died"):
            call()
    assert (fake_mps.pipe / "control").exists(), "stale sockets"
    gpu.release(A)
    gpu.start()
    assert gpu.state().state == "idle" and server not in fake_mps.processes(), "the orphan would hold the GPU"
    gpu.admit(B, Decimal("0.1"))


def test_a_daemon_that_hangs_is_degraded_and_can_be_ended(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu(environment={"FAKE_MPS_HANG": "ps"})
    gpu.start()
    gpu.admit(A, Decimal("0.5"))
    server = fake_mps.start_server()
    fake_mps.hang("ps")
    gpu._control._seconds = 0.4  # type: ignore[attr-defined]
    state = gpu.state()
    assert (state.state, "does not answer `get_server_list` within 0.4 s" in (state.reason or "")) == ("degraded", True)
    assert state.shares == {A: Decimal("0.5")}
    with pytest.raises(MpsFault, match="hangs"):
        gpu.admit(B, Decimal("0.1"))
    with pytest.raises(MpsFault, match="does not answer"):
        gpu.start()
    gpu.release(A)
    assert server in fake_mps.processes()
    gpu.stop()
    assert (fake_mps.processes(), fake_mps.mode.mode) == ([], "default")


def test_a_connection_that_breaks_is_asked_again_and_no_death(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu(environment={"FAKE_MPS_DROP": "get_server_list"})
    gpu.start()
    gpu.admit(A, Decimal("0.5"))
    assert gpu.poll() == () and gpu.state().state == "idle"
    server = fake_mps.start_server_unseen()
    child = fake_mps.client(server, A)
    assert run_hook(gpu, str(child.pid)).returncode == 0
    assert gpu.state().clients == () and gpu.state().state == "active"


def test_a_start_that_fails_says_why_and_undoes_the_mode(fake_mps: FakeMps) -> None:
    broken = fake_mps.folder / "broken"
    broken.write_text("#!/bin/sh\necho 'no luck today'; exit 1\n")
    broken.chmod(0o755)
    gpu = fake_mps.gpu(control=str(broken))
    with pytest.raises(MpsFault, match="does not start: no luck today"):
        gpu.start()
    assert fake_mps.mode.asked == ["exclusive_process", "default"] and gpu.state().state == "off"
    assert list(fake_mps.runtime.iterdir()) == []


def test_a_folder_that_another_gpu_or_user_holds_is_not_taken(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    gpu.start()
    other = fake_mps.gpu()
    other._daemon._uuid = "GPU-another"
    with pytest.raises(MpsFault, match="serves GPU-"):
        other._daemon.start()
    gpu.stop()
    if os.geteuid() != 0:
        return
    gpu.set(MpsSetting(active_thread_percentage=Decimal(50)))
    os.chown(fake_mps.root, NOBODY, NOBODY)
    with pytest.raises(MpsFault, match="not a folder of this user"):
        gpu.start()


def test_many_threads_together_never_give_more_than_the_whole_gpu(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    gpu.start()
    faults: list[str] = []

    def ask(number: int) -> None:
        try:
            gpu.admit(f"job{number}", Decimal("0.3"))
        except MpsFault as fault:
            faults.append(str(fault))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(gpu.shares) == 3 and len(faults) == 3 and sum(gpu.shares.values()) == Decimal("0.9")

"""launch.json: an environment made from nothing, the user, the limits of the log, and nothing secret."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent.config import JobsTable
from agent.errors import JobForbidden, JobRefused
from agent.jobs import launch, users
from agent.jobs.actor import Actor
from agent.jobs.launch import Part, Places
from agent.jobs.signals import signal_name, signal_number
from agent.jobs.users import RunAs
from agent.wire import Gang, JobSpec

ANN = RunAs(name="ann", uid=1000, gid=1000, groups=(1000, 44), home="/home/ann", shell="/bin/bash", switch=True)
PLACES = Places(
    job=Path("/j"), attempt=Path("/j/1"), runtime=Path("/run/x"), directory="/home/ann", checkpoint=Path("/j/checkpoint")
)
OWN = {"PATH": "/agent/bin", "HOME": "/root", "AWS_SECRET_ACCESS_KEY": "x", "LD_LIBRARY_PATH": "/cuda", "TZ": "Europe/Berlin"}


def made(
    part: Part = Part(job="0123456789ab", number=2, gpus=("GPU-a", "GPU-b")), jobs: JobsTable = JobsTable(), **fields: Any
) -> dict[str, Any]:
    spec = JobSpec(**{"command": ("python", "t.py"), **fields})
    return launch.launch(spec, part, PLACES, ANN, jobs, OWN, group={"enforcement": "none"}, boot_id="b")


def test_the_environment_is_an_allow_list_what_the_node_sets_and_what_the_job_brings() -> None:
    environment = made(env={"LR": "0.1", "HOME": "/scratch"}, project="vision", name="n")["environment"]
    assert environment == {
        "PATH": "/agent/bin", "LD_LIBRARY_PATH": "/cuda", "TZ": "Europe/Berlin", "LANG": "C.UTF-8",
        "HOME": "/scratch", "USER": "ann", "LOGNAME": "ann", "SHELL": "/bin/bash", "PWD": "/home/ann", "LR": "0.1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "25", "TORCHELASTIC_ERROR_FILE": "/run/x/error.json",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
        "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "RACKRATE_JOB": "0123456789ab", "RACKRATE_ATTEMPT": "2", "RACKRATE_PROJECT": "vision", "RACKRATE_JOB_NAME": "n",
        "RACKRATE_CHECKPOINT_DIR": "/j/checkpoint",
    }  # fmt: skip


def test_an_array_a_deadline_cpus_and_secrets_are_told() -> None:
    part = Part(job="0123456789ab_7", number=1, array="0123456789ab", array_index=7)
    deadline = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
    environment = made(
        part, array=(7, 9), deadline=deadline, cpus=Decimal(9), command=("torchrun", "--nproc-per-node", "4", "t.py"),
        secrets={"k": ""}, time_limit_seconds=90.5,
    )["environment"]  # fmt: skip
    assert environment["RACKRATE_ARRAY_INDEX"] == "7" and environment["RACKRATE_ARRAY_COUNT"] == "2"
    assert (
        environment["RACKRATE_DEADLINE"] == "2030-01-02T03:04:00+00:00" and environment["RACKRATE_TIME_LIMIT_SECONDS"] == "90.5"
    )
    assert environment["OMP_NUM_THREADS"] == "2" and environment["CREDENTIALS_DIRECTORY"] == "/run/x/secrets"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_a_client_of_mps_names_no_gpu() -> None:
    part = Part(job="0123456789ab", number=1, gpus=("GPU-a",), mps={"CUDA_MPS_PIPE_DIRECTORY": "/p"})
    environment = made(part)["environment"]
    assert "CUDA_VISIBLE_DEVICES" not in environment and environment["CUDA_MPS_PIPE_DIRECTORY"] == "/p"


def test_the_rest_of_launch_json() -> None:
    found = made(stop_signal="USR1", grace_seconds=7.0, time_limit_seconds=60.0, log_quota_bytes=100_000)
    assert (found["unit"], found["argv"], found["directory"]) == ("job-0123456789ab-2", ["python", "t.py"], "/home/ann")
    assert found["user"] == {"name": "ann", "uid": 1000, "gid": 1000, "groups": [1000, 44]} and found["no_new_privs"] is True
    assert found["stop"] == {"signal": 10, "grace_seconds": 7.0, "kill_wait_seconds": 60.0, "before_kill": []}
    assert found["log"] == {"rotate_bytes": 100_000, "quota_bytes": 100_000, "free_floor_bytes": 64 << 20}
    assert (found["time_limit_seconds"], found["umask"], found["version"]) == (60.0, 0o077, 1)


def test_a_shell_text_is_passed_as_it_stands() -> None:
    assert launch.argv(JobSpec(command=("echo '$(rm -rf /)' \"$X\"",), shell=True)) == (
        "/bin/sh",
        "-c",
        "echo '$(rm -rf /)' \"$X\"",
    )


@pytest.mark.parametrize(("text", "number"), [("TERM", 15), ("sigusr1", 10), ("9", 9), (" INT ", 2)])
def test_signals_are_named_as_people_name_them(text: str, number: int) -> None:
    assert signal_number(text) == number and signal_number(signal_name(number)) == number


@pytest.mark.parametrize("text", ["", "SIG", "99", "-9", "KILLALL", "٩"])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(JobRefused, match="is no signal"):
        signal_number(text)


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as others")


@root
def test_root_runs_jobs_as_the_user_that_is_named_with_all_their_groups() -> None:
    found = users.run_as("daemon", Actor("node"), JobsTable())
    assert (found.name, found.switch) == ("daemon", True) and found.uid != 0 and found.gid in found.groups
    assert users.run_as(None, Actor("d", user="daemon"), JobsTable()).name == "daemon"


@root
def test_root_itself_needs_the_configurations_leave() -> None:
    for wanted in ("root", None):
        with pytest.raises(JobForbidden, match="allow_root"):
            users.run_as(wanted, Actor("node"), JobsTable())
    assert users.run_as(None, Actor("node"), JobsTable(allow_root=True)).uid == 0


@root
def test_a_list_of_users_is_the_whole_list() -> None:
    assert users.run_as("daemon", Actor("node"), JobsTable(users=("daemon",))).name == "daemon"
    with pytest.raises(JobForbidden, match="`users` in"):
        users.run_as("nobody", Actor("node"), JobsTable(users=("daemon",)))


def test_an_agent_that_is_not_root_runs_jobs_as_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    monkeypatch.setattr("os.geteuid", lambda: pwd.getpwnam("daemon").pw_uid)
    assert users.run_as(None, Actor("node"), JobsTable()).to_launch() is None
    with pytest.raises(JobForbidden, match="only as that user"):
        users.run_as("nobody", Actor("node"), JobsTable())


def test_a_user_that_nobody_knows_is_refused() -> None:
    with pytest.raises(JobRefused, match="no user 'no-such-user'"):
        users.look_up("no-such-user")
    with pytest.raises(JobRefused):
        users.look_up("a\0b")


def test_a_part_of_a_run_over_nodes_is_told_its_price_and_where_the_others_are() -> None:
    part = Part(job="0123456789ab", number=1, usd_per_hour=Decimal("1.50"))
    gang = Gang(id="run-1", nodes=2, least_nodes=2, endpoint="10.0.0.5:29400", host_here=True, processes_per_node=0)
    job = made(part, gang=gang)
    told = {name: value for name, value in job["environment"].items() if "GANG" in name or "USD" in name}
    assert told == {
        "RACKRATE_USD_PER_HOUR": "1.50", "RACKRATE_GANG": "run-1", "RACKRATE_GANG_NODES": "2",
        "RACKRATE_GANG_ENDPOINT": "10.0.0.5:29400", "RACKRATE_GANG_HOST": "1",
    }  # fmt: skip
    assert job["argv"] == ["python", "t.py"]

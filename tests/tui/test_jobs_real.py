"""The commands about jobs against a real agent that runs real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli import ROOT, Done, rackrate_here, write_config
from tests.support.job_agent import JobAgent
from tui.gang import free_port
from tui.local import wait_for_url


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[JobAgent]:
    with JobAgent(tmp_path / "agent") as made:
        yield made


@pytest.fixture
def home(agent: JobAgent, tmp_path: Path) -> Path:
    write_config(tmp_path / "home", agent.listed())
    return tmp_path / "home"


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Done]:
    monkeypatch.setenv("RACKRATE_HOME", str(home))
    return lambda *arguments: rackrate_here(capfdbinary, *arguments)


def test_a_job_with_files_environment_and_a_secret_is_followed_to_its_exit_code(
    command: Callable[..., Done], agent: JobAgent, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "job.sh").write_text('cat data.txt\necho "$MODE $RACKRATE_JOB_ID"\ncat "$CREDENTIALS_DIRECTORY/KEY"\npwd\nexit 7\n')
    (work / "data.txt").write_text("from the folder\n")
    (tmp_path / "key").write_text("hush\n")
    options = (
        "--workdir",
        str(work),
        "--secret",
        f"KEY={tmp_path / 'key'}",
        "--env",
        "MODE=fast",
        "--name",
        "first",
        "--memory",
        "256M",
    )
    dry = command("run", *options, "--dry-run", "--", "sh", "job.sh")
    assert dry.code == 0 and "sh job.sh" in dry.out and "hush" not in dry.out and agent.jobs() == []
    done = command("run", *options, "-f", "--", "sh", "job.sh")
    assert done.code == 7, done
    lines = done.out.splitlines()
    assert lines[0] == "from the folder" and lines[1].startswith("fast") and lines[2] == "hush" and lines[3].endswith("/work")
    record = command("job", "show", "--json", "first").json()
    assert (record["state"], record["cause"], record["exit_code"], record["secrets"]) == ("ended", "exit:7", 7, ["KEY"])
    assert command("job", "logs", "--tail", "1", "first").out == lines[3] + "\n"
    assert command("job", "wait", record["id"][:10]).code == 7
    shown = command("jobs", "--all", "cause:exit")
    assert shown.code == 0 and "first" in shown.out and "hush" not in shown.out + command("job", "show", "first").out


def test_a_job_that_waits_for_another_an_array_and_a_cancelled_one(command: Callable[..., Done], agent: JobAgent) -> None:
    first = command("run", "--name", "sleeper", "--", "sleep", "3600").out.strip()
    after = command("run", "--after", "any:sleeper", "--", "sh", "-c", "exit 0").out.strip()
    array = command("run", "--array", "1-3%2", "--shell", "--", "echo task").out.strip()
    agent.until(first, "running")
    assert agent.job(after)["state"] == "queued"
    assert command("job", "wait", array).code == 0
    assert command("job", "logs", f"{array}_2").out == "task\n"
    assert command("job", "cancel", "sleeper").code == 0
    waited = command("job", "wait", first, after)
    assert waited.code not in (0, None) and "(cancelled" in waited.err
    assert command("job", "wait", after).code == 0
    again = command("job", "cancel", first)
    assert again.code == 1 and "ended" in again.err
    refused = command("run", "--gpus", "64", "--", "x")
    assert refused.code == 2 and "64 GPUs are asked for" in refused.err
    assert command("run", "--chdir", "/nonexistent", "--", "x").code == 2


def test_a_followed_log_is_whole_after_the_agent_was_killed_and_started_again(home: Path, agent: JobAgent) -> None:
    agent.end()
    port = free_port("127.0.0.1")

    def start() -> None:
        arguments = ["run", "--listen", f"127.0.0.1:{port}", "--state-dir", str(agent.state), "--config", str(agent.config)]
        with agent.log.open("ab") as words:
            agent.process = subprocess.Popen(
                [sys.executable, "-m", "agent.cli", *arguments], cwd=ROOT, env=agent._environment({}), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=words, start_new_session=True,
            )  # fmt: skip
        wait_for_url(agent.process, agent.log)

    start()
    token = agent.state / "token"
    write_config(home, f'[[nodes]]\nname = "box"\nurl = "http://127.0.0.1:{port}"\ntoken_file = "{token}"\n')
    script = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; exit 5"
    follower = subprocess.Popen(
        [sys.executable, "-m", "tui.cli", "run", "--shell", "-f", "--", script], cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "RACKRATE_HOME": str(home)},
    )  # fmt: skip
    try:
        first = follower.stdout.readline()
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait(60)
        agent.process.stdout.close()
        time.sleep(0.5)
        start()
        out, err = follower.stdout.read(), follower.stderr.read()
        follower.wait(60)
    finally:
        follower.kill()
        follower.stdout.close()
        follower.stderr.close()
    assert follower.returncode == 5, err
    assert (first + out).splitlines() == [f"line {number}" for number in range(300)]
    assert "trying again" in err and "it answers again" in err

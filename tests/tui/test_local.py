"""This machine's own agent: started when there is none, used when one runs, never left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cli import rackrate
from tui.config import NodeConfig, Paths
from tui.errors import Failed
from tui.local import end_agent, local_agent, running_agent, start_agent, wait_for_url


def run_agent(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return start_agent(
        ["run", "--simulate", "1xL4", "--state-dir", str(home / "agent"), "--listen", "127.0.0.1:0", *arguments], home / "log"
    )


def test_an_agent_that_runs_already_is_used_and_left_running_also_with_tls(tmp_path: Path) -> None:
    home = tmp_path
    init = [sys.executable, "-m", "agent.cli", "init", "--host", "127.0.0.1", "--state-dir", str(home / "agent")]
    subprocess.run(init, env={**os.environ, "RACKRATE_HOME": str(home)}, check=True, capture_output=True)
    process = run_agent(home, "--config", str(home / "agent.toml"))
    try:
        url = wait_for_url(process, home / "log")
        assert url.startswith("https://")
        [node] = rackrate(home, "nodes", "--json").json()
        assert (node["state"], node["url"], len(node["gpus"])) == ("live", url, 1)
        assert process.poll() is None
    finally:
        end_agent(process)
    assert running_agent(home / "agent") is None


ENDING = """
import fcntl, json, os, pathlib, sys
folder = pathlib.Path(sys.argv[2])
lock = open(folder / "lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
(folder / "agent.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid()}))
print(flush=True)
sys.stdin.read()
"""
"""An agent that listens no more: `agent` is in its command line."""


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "agent").mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", ENDING, "agent", str(tmp_path / "agent")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"\n"
    yield process
    process.kill()
    process.communicate()


def test_an_agent_that_ends_just_now_is_waited_for_and_another_one_started(
    tmp_path: Path, ending: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def listens(node: NodeConfig) -> bool:
        asked.append(node.url)
        if len(asked) == 3:
            ending.communicate()
        return False

    monkeypatch.setattr("tui.local._listens", listens)
    with local_agent(Paths(config_file=tmp_path / "config.toml", data_dir=tmp_path)) as node:
        assert asked == ["http://127.0.0.1:1"] * 3
        assert running_agent(tmp_path / "agent") == node and node.url != "http://127.0.0.1:1"
    assert running_agent(tmp_path / "agent") is None


def test_what_an_agent_left_that_was_killed_is_no_agent(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir(mode=0o700)
    other = subprocess.Popen([sys.executable, "-c", "input()", "an agent, and not ours"], stdin=subprocess.PIPE)
    try:
        (tmp_path / "agent" / "agent.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": other.pid}))
        with local_agent(Paths(config_file=tmp_path / "config.toml", data_dir=tmp_path)) as node:
            assert node.url != "http://127.0.0.1:1"
    finally:
        other.kill()
        other.communicate()


def test_of_two_programs_that_start_an_agent_at_once_both_use_the_one_that_came_first(tmp_path: Path) -> None:
    def look() -> str:
        with local_agent(Paths(config_file=tmp_path / "config.toml", data_dir=tmp_path)) as node:
            together.wait(60)
            return node.url

    together = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(look), pool.submit(look)
        assert one.result(60) == other.result(60)


def test_a_recycled_pid_is_not_taken_for_the_agent(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        (tmp_path / "agent.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": other.pid}))
        assert running_agent(tmp_path) is None
    finally:
        other.kill()
        other.wait()


def test_an_agent_on_a_unix_socket_only_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.local._is_agent", lambda pid: True)
    (tmp_path / "agent.json").write_text(json.dumps({"url": "unix:///run/x", "pid": os.getpid()}))
    with pytest.raises(Failed, match="--listen"):
        running_agent(tmp_path)


def test_an_agent_that_cannot_start_says_why_in_its_own_words(tmp_path: Path) -> None:
    process = start_agent(["run", "--state-dir", str(tmp_path / "agent"), "--listen", "0.0.0.0:0"], tmp_path / "log")
    with pytest.raises(Failed, match="unencrypted"):
        wait_for_url(process, tmp_path / "log")
    assert process.poll() is not None


def test_an_agent_that_was_started_for_a_job_goes_on_until_it_has_ended_and_then_ends_itself(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text("[jobs]\nallow_root = true\nisolation = 'none'\n[node]\nmetadata = false\n")
    go_on = tmp_path / "go-on"
    sent = rackrate(tmp_path, "run", "--", "sh", "-c", f"while [ ! -e {go_on} ]; do sleep 0.05; done; echo done")
    assert sent.code == 0, sent.err
    assert "the agent goes on until then" in sent.err
    agent = running_agent(tmp_path / "agent")
    assert agent is not None
    go_on.touch()
    job = sent.out.strip()
    waited = rackrate(tmp_path, "job", "wait", job)
    assert waited.code == 0, waited.err
    assert rackrate(tmp_path, "job", "logs", job).out == "done\n"
    end = time.monotonic() + 60
    while running_agent(tmp_path / "agent") is not None:
        assert time.monotonic() < end
        time.sleep(0.1)

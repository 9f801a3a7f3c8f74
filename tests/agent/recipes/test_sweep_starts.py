"""Ray dies while it starts, where a machine is so busy that its helpers are late: it is started anew, and nothing else is.

Invariant: no Ray runs here; a program that dies, or makes the socket that Ray makes, stands for it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from agent.recipes import sweep_cluster, sweep_run
from tests.agent.recipes.test_sweep import plan


def fake_ray(monkeypatch: pytest.MonkeyPatch, *programs: str) -> list[list[str]]:
    """Each start of Ray is the next of these programs, which know the FOLDER of their sockets; the words that they were started with."""
    started: list[list[str]] = []

    def start(words: list[str], cpus: int, gpus: int, out: IO[bytes]) -> subprocess.Popen[bytes]:
        started.append(words)
        folder = Path(words[words.index("--temp-dir") + 1]) / "session_1" / "sockets"
        lines = f"import pathlib, socket, sys, time; folder = pathlib.Path({str(folder)!r}); {programs[len(started) - 1]}"
        return subprocess.Popen([sys.executable, "-c", lines], stdout=out, stderr=out, start_new_session=True)

    def end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    monkeypatch.setattr(sweep_cluster, "_start", start)
    monkeypatch.setattr(sweep_cluster, "ended", end)  # the real one ends all children of this process
    monkeypatch.setattr(sweep_cluster, "_children", contextlib.nullcontext)
    return started


DIES = "sys.exit('Some Ray subprocesses exited unexpectedly')"
WHOLE = "folder.mkdir(parents=True); (folder / 'raylet').touch(); time.sleep(600)"


def test_a_head_whose_ray_dies_while_it_starts_is_started_anew_and_only_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_cluster, "_reached", lambda host, port, seconds, process, stopped={}: process.poll() is None)
    monkeypatch.setenv("RACKRATE_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setattr(sweep_run.cluster, "prepare", lambda *_: 1)
    asked: list[str] = []

    class Sweep:
        def __init__(self, plan: object, folder: Path, stop: sweep_run.Stop, address: str, nodes: int) -> None:
            self.address, self.stop = address, stop

        def run(self) -> int:
            asked.append(self.address)
            if len(asked) == 1:
                raise sweep_cluster.NotStarted("Ray has started and does not answer: no word")
            return 7

    monkeypatch.setattr(sweep_run, "Sweep", Sweep)
    before = signal.getsignal(signal.SIGTERM)
    try:
        started = fake_ray(monkeypatch, DIES, WHOLE, WHOLE)
        assert sweep_run.run(plan(), tmp_path) == 7 and len(started) == 3 and len(set(asked)) == 2

        started = fake_ray(monkeypatch, DIES, DIES, DIES)
        with pytest.raises(sweep_cluster.NodeLost, match="Ray has not started: Some Ray subprocesses exited unexpectedly"):
            sweep_run.run(plan(), tmp_path)
        assert len(started) == sweep_cluster.STARTS == 3

        def lost(self: Sweep) -> int:
            raise sweep_cluster.NodeLost("1 of 2 nodes came")

        monkeypatch.setattr(Sweep, "run", lost)
        started = fake_ray(monkeypatch, WHOLE)
        with pytest.raises(sweep_cluster.NodeLost, match="1 of 2 nodes came"):
            sweep_run.run(plan(), tmp_path)

        monkeypatch.setattr(Sweep, "run", lambda self: self.stop._note(15, None) or lost_start())
        started = fake_ray(monkeypatch, WHOLE)
        assert sweep_run.run(plan(), tmp_path) == 0 and len(started) == 1, "a soft stop meanwhile is no failure"
    finally:
        signal.signal(signal.SIGTERM, before)


def lost_start() -> int:
    raise sweep_cluster.NotStarted("Ray has started and does not answer: no word")


def test_a_node_whose_ray_dies_before_it_is_whole_joins_again_and_a_whole_one_that_dies_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        meet = sweep_cluster.Gang(2, "127.0.0.1", head.getsockname()[1], False)
        started = fake_ray(monkeypatch, DIES, WHOLE.replace("time.sleep(600)", "time.sleep(4); sys.exit('gone')"))
        with pytest.raises(sweep_cluster.NodeLost, match="Ray has ended on this node: gone") as told:
            sweep_cluster.join(meet, 1, 0, {})
        assert len(started) == 2 and not isinstance(told.value, sweep_cluster.NotStarted)
        started = fake_ray(monkeypatch, *[DIES] * 3)
        with pytest.raises(sweep_cluster.NotStarted, match="Ray has not started on this node: Some Ray"):
            sweep_cluster.join(meet, 1, 0, {})
        assert len(started) == 3
        started = fake_ray(monkeypatch, DIES)
        assert sweep_cluster.join(meet, 1, 0, {"now": True}) == 0 and len(started) <= 1

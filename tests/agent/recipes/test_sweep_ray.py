"""The driver of a sweep with a real Ray on this machine: early stops, a lost and a failing trial, a soft stop, and going on.

Invariant: when the driver has ended, so has every process that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.recipes.test_sweep import RAW
from tests.support.extras import needs
from tests.support.job_agent import wait_for
from tests.support.one_ray import one_ray

needs("ray", extra="sweep")

ROOT = Path(__file__).parents[3]
SLOW = 600.0
TOY = """
import json, os, pathlib, signal, sys, time
kept = pathlib.Path(os.environ["RACKRATE_CHECKPOINT_DIR"], "last.json")
rate, number = float(sys.argv[1]), os.environ["RACKRATE_TRIAL"]
with open("ran", "a") as ran:
    print(number, file=ran)
if number == "2":
    sys.exit("no data for 2")
if number == "3" and not os.path.exists("lost"):
    open("lost", "w").close()
    os.kill(os.getppid(), signal.SIGKILL)  # as if its node were gone
    time.sleep(60)
signal.signal(signal.SIGTERM, lambda *_: (open(f"saved-{number}", "w").close(), sys.exit(0)))
for step in range(1, 9):
    print(json.dumps({"step": step, "loss": (rate - 0.3) ** 2 + 1 / step}), flush=True)
    if step == 1 and os.path.exists("slow") and (number == "3" or int(number) >= 6):
        open(f"slow-{number}", "w").close()
        time.sleep(600)
    while step == 2 and not (kept.exists() and json.loads(kept.read_text())["step"] == 2):
        time.sleep(0.01)  # the newest report is told, and at this one it is judged
"""
WITHOUT_TOKEN = """
import os, sys
import ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    print("in")
except Exception as error:
    print(type(error).__name__, error)
os._exit(0)
"""


def first_words(address: str, environment: dict[str, str]) -> str:
    """What Ray says first to a client with a token of its own; it would try again for long."""
    words = {**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_TOKEN, address], env=words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as client:
        assert client.stdout is not None
        said = ""
        for line in client.stdout:  # on a busy machine it may complain of that first
            said += line
            if "InvalidAuthToken" in line:
                break
        client.kill()
    return said


class Driver:
    """A sweep's folder, and the driver in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out.txt"
        (folder / "toy.py").write_text(TOY)
        raw = {**RAW, "search": "optuna", "space": {"rate": {"uniform": [0.0, 1.0]}}}
        (folder / "sweep.json").write_text(json.dumps(raw))
        self.environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "RACKRATE_CHECKPOINT_DIR": str(folder / "ck"), "RACKRATE_USD_PER_HOUR": "3.6",
            "CUDA_VISIBLE_DEVICES": "", "RACKRATE_TEST_SWEEP": str(folder),
        }  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.out.open("wb") as out, (self.folder / "err.txt").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agent.recipes.sweep", "sweep.json"], cwd=self.folder, env=self.environment, stdout=out,
                stderr=err,
            )  # fmt: skip

    def lines(self) -> list[dict[str, Any]]:
        """Those that are whole: the driver may write the next one just now."""
        return [json.loads(line) for line in self.out.read_text().split("\n")[:-1]]

    def trials(self, *states: str) -> list[dict[str, Any]]:
        return [one for one in self.lines() if one["event"] == "trial" and one["state"] in states]

    def slow(self) -> bool:
        """Whether all that run will not end by themselves."""
        newest = {one["trial"]: one["state"] for one in self.lines() if one["event"] == "trial"}
        run = [number for number, state in newest.items() if state in ("started", "reported")]
        return len(run) == RAW["at_once"] and all((self.folder / f"slow-{number}").exists() for number in run)

    def words(self) -> str:
        return self.out.read_text() + (self.folder / "err.txt").read_text()[-3000:]

    def ended(self) -> int:
        assert self.process is not None
        return self.process.wait(SLOW)

    def left(self) -> list[int]:
        """Processes that have the sweep's folder in their environment."""
        marker = f"RACKRATE_TEST_SWEEP={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    found += [int(entry.name)] if marker in (entry / "environ").read_bytes() else []
                except OSError:
                    continue
        return found


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with one_ray():
        made = Driver(tmp_path)
        try:
            yield made
        finally:
            for pid in made.left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if made.process is not None:
                made.process.wait(30)


def test_a_sweep_stops_softly_and_goes_on_to_its_best_trial(driver: Driver) -> None:
    (driver.folder / "slow").touch()  # the lost one's second run, and those from the sixth on, run until they are stopped
    driver.start()
    wait_for(driver.slow, SLOW, driver.words)
    address = driver.lines()[0]["ray"]
    assert "InvalidAuthToken" in first_words(address, driver.environment)
    assert driver.process is not None
    driver.process.send_signal(signal.SIGTERM)
    assert driver.ended() == 0, driver.words()
    assert driver.left() == []
    before, first = driver.trials("ended", "stopped early"), driver.lines()
    assert first[-1]["event"] == "swept" and first[-1]["stopped"] == "a soft stop"
    (failed,) = driver.trials("failed")
    assert (failed["trial"], failed["why"]) == (2, "exit 1: no data for 2")
    (lost,) = driver.trials("lost")
    begun = [one["trial"] for one in driver.trials("started")]
    assert (lost["trial"], lost["why"]) == (3, "its node was lost; it is run again, once") and begun.count(3) == 2
    ran = [int(line) for line in (driver.folder / "ran").read_text().split()]
    assert set(ran) <= set(begun) and all(ran.count(one) <= begun.count(one) for one in ran), "no trial has two processes at once"
    stopped = driver.trials("stopped")
    slow = [one["trial"] for one in stopped if (driver.folder / f"slow-{one['trial']}").exists()]
    assert sorted(slow) == [3, 6] and all((driver.folder / f"saved-{number}").exists() for number in slow), driver.words()

    (driver.folder / "slow").unlink()
    driver.start()
    assert driver.ended() == 0, driver.words()
    assert driver.left() == []
    kept = [one["trial"] for one in driver.lines() if one.get("kept")]
    started = [one["trial"] for one in driver.trials("started")]
    assert sorted(kept) == sorted({one["trial"] for one in before} | {2}), driver.words()
    assert {one["trial"] for one in stopped} <= set(started) and not set(started) & set(kept)
    ends = driver.trials("ended", "stopped early", "failed")
    assert sorted(one["trial"] for one in ends) == list(range(1, 13)), driver.words()
    assert any(one["state"] == "stopped early" for one in ends)
    head, *_, best, end = driver.lines()
    assert head["resumed"] and end["stopped"] is None and end["trials"] == 12 and float(end["spent"]) > float(first[-1]["spent"])
    known = [one for one in ends if "metric" in one]
    assert best["metric"] == min(one["metric"] for one in known) and best["command"].startswith("python3 toy.py 0.")

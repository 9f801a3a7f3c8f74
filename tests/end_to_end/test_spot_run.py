"""One job under a spot policy, on two real agents: a spot notice moves it, a killed driver takes it up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cli import ROOT, write_config
from tests.support.imds import MetadataService, metadata_service
from tests.support.job_agent import JobAgent, wait_for

NODE = 'cloud = "aws"\nregion = "us-east-1"\nzone = "use1-az1"\ninstance_type = "p3.2xlarge"\npurchase = "{}"'
STEPS = 20
JOB = f"""
import os, pathlib, time
steps = pathlib.Path(os.environ["STEPS"])
done = len(steps.read_text().splitlines()) if steps.exists() else 0
for step in range(done, {STEPS}):
    time.sleep(0.2)
    with steps.open("a") as file:
        file.write(f"{{step}} {{os.getpid()}}\\n")
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.05)
"""


class Site(NamedTuple):
    spot: JobAgent
    on_demand: JobAgent
    service: MetadataService
    home: Path
    steps: Path
    drivers: list[subprocess.Popen[str]]

    def drive(self, *options: str) -> subprocess.Popen[str]:
        self.drivers.append(subprocess.Popen(
            [sys.executable, "-m", "tui.cli", "run", *options], cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "RACKRATE_HOME": str(self.home)},
        ))  # fmt: skip
        return self.drivers[-1]

    def words(self) -> str:
        """What the newest driver said, which this ends."""
        self.drivers[-1].kill()
        return str(self.drivers[-1].communicate(timeout=60))

    def close(self) -> None:
        for driver in self.drivers:
            driver.kill()
            driver.communicate(timeout=60)

    @property
    def go(self) -> Path:
        """The job ends once this file is there."""
        return self.steps.with_name("go")

    def begin(self, policy: str, *more: str) -> subprocess.Popen[str]:
        return self.drive(
            "--spot-policy", policy, "--work", "10s", "--changeover", "1s", "--deadline", "+20m", "--look", "0.3s",
            "--cpus", "1", "--grace", "2s", "--env", f"STEPS={self.steps}", "--env", f"GO={self.go}", "--json", *more, "--", sys.executable, "-c", JOB,
        )  # fmt: skip

    def done(self) -> list[int]:
        return [int(line.split()[0]) for line in self.steps.read_text().splitlines()] if self.steps.exists() else []


def is_locked(file: Path) -> bool:
    """Looked up with the kernel: to try to lock it would be in the driver's way."""
    inode = file.stat().st_ino
    return any(line.split()[5].endswith(f":{inode}") for line in Path("/proc/locks").read_text(encoding="ascii").splitlines() if "->" not in line)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        service = stack.enter_context(metadata_service("ec2"))
        agents = []
        for name, purchase, environment in (
            ("cheap", "spot", {"RACKRATE_EC2_METADATA_URL": service.url}),
            ("sure", "on_demand", {"RACKRATE_METADATA": "off"}),
        ):
            agent = JobAgent(tmp_path / name, name=name, node=NODE.format(purchase), environment=environment)
            stack.callback(agent.close)
            agents.append(agent.start())
        nodes = [f'[[nodes]]\nname = "{agent.folder.name}"\nurl = "{agent.url}"\ntoken_file = "{agent.state}/token"\n' for agent in agents]
        write_config(tmp_path / "home", "".join(nodes))
        made = Site(agents[0], agents[1], service, tmp_path / "home", tmp_path / "steps", [])
        stack.callback(made.close)
        yield made


def reclaim(site: Site) -> None:
    at = datetime.now(UTC) + timedelta(seconds=8)
    site.service.values["spot/instance-action"] = json.dumps({"action": "terminate", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"})


def test_a_notice_takes_the_job_from_spot_and_it_goes_on_once_there_is_spot_again(site: Site) -> None:
    driver = site.begin("uniform_progress")
    wait_for(lambda: len(site.done()) >= 5, 60, site.words)
    reclaim(site)
    wait_for(lambda: site.spot.jobs()[0]["state"] == "ended", 60, lambda: str(site.spot.jobs()))
    assert not site.on_demand.jobs()  # it is far ahead of the pace that its deadline asks for
    del site.service.values["spot/instance-action"]
    site.go.touch()
    said, words = driver.communicate(timeout=120)
    assert driver.returncode == 0, words
    record = json.loads(said)
    assert (record["cause"], record["late"], record["moves"]) == ("exit:0", False, 1), words
    assert [(leg["node"], leg["cause"]) for leg in record["legs"]] == [("cheap", "spot_reclaim"), ("cheap", "exit:0")]
    assert site.done() == list(range(STEPS))
    assert not list((site.home / "drives").glob("*.json"))


def test_without_spot_a_near_deadline_is_kept_on_demand(site: Site) -> None:
    site.go.touch()
    reclaim(site)
    wait_for(lambda: "takes this node away" in str(site.spot.http.post("/v1/jobs?dry_run=true", json={"command": ["true"]}).json()))
    driver = site.begin("greedy", "--deadline", "+135s")
    said, words = driver.communicate(timeout=120)
    record = json.loads(said)
    assert (driver.returncode, record["cause"], [leg["node"] for leg in record["legs"]]) == (0, "exit:0", ["sure"]), words
    assert site.done() == list(range(STEPS)) and not site.spot.jobs()


def test_a_driver_that_is_killed_leaves_the_job_running_and_another_takes_it_up(site: Site) -> None:
    driver = site.begin("greedy")
    wait_for(lambda: len(site.done()) >= 3, 60, site.words)
    driver.send_signal(signal.SIGKILL)
    driver.communicate(timeout=60)
    before = len(site.done())
    wait_for(lambda: len(site.done()) > before, 60)
    [file] = (site.home / "drives").glob("*.json")
    assert "STEPS=" in file.read_text() and file.stat().st_mode & 0o077 == 0
    unknown = site.drive("--resume", "nosuchrun1")
    assert unknown.communicate(timeout=60)[1].startswith("rackrate: --resume nosuchrun1: there is no such run") and unknown.returncode == 2
    again = site.drive("--resume", file.stem, "--json")
    wait_for(lambda: is_locked(file.with_suffix(".lock")), 60, lambda: str(again.poll()))
    second = site.drive("--resume", file.stem)
    assert "is driven by another rackrate now" in second.communicate(timeout=60)[1]
    site.go.touch()
    said, words = again.communicate(timeout=120)
    record = json.loads(said)
    assert (again.returncode, record["cause"], len(record["legs"])) == (0, "exit:0", 1), words
    assert site.done() == list(range(STEPS)) and len(site.spot.jobs()) == 1 and not site.on_demand.jobs()


def test_what_cannot_be_driven_is_a_sentence_before_anything_starts(site: Site) -> None:
    for options, sentence in (
        (("--spot-policy", "greedy", "--deadline", "+1h"), "--spot-policy needs --work"),
        (("--spot-policy", "greedy", "--work", "1h"), "--spot-policy needs --deadline"),
        (("--spot-policy", "greedy", "--work", "2h", "--deadline", "+1h"), "the job takes at least 2h"),
        (("--spot-policy", "wizard", "--work", "1h", "--deadline", "+2h"), "wizard"),
        (("--spot-policy", "omniscient", "--work", "1h", "--deadline", "+2h"), "knows the future"),
        (("--work", "1h"), "--work goes with --spot-policy"),
        (("--spot-policy", "greedy", "--work", "1h", "--deadline", "+2h", "--node", "cheap"), "no on-demand node with a known price"),
    ):
        driver = site.drive(*options, "--cpus", "1", "--", "true")
        _, words = driver.communicate(timeout=60)
        assert driver.returncode == 2 and sentence in words, words
    assert not site.spot.jobs() and not site.on_demand.jobs()

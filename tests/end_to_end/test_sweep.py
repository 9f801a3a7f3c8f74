"""A sweep over two real agents: submitted as a person does, a Ray of its own with a token, early stops, and what it cost.

Invariant: no Ray process is left when the test ends: each is a child of a job of these agents.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import rackrate_inside, write_config
from tests.support.extras import needs
from tests.support.job_agent import JobAgent, usage_rows, wait_for
from tests.support.nvml import compiler
from tests.support.one_ray import one_ray

needs("ray", "hyperopt", extra="sweep")
pytestmark = pytest.mark.skipif(compiler() is None, reason="the stand-in of NVML needs a C compiler: money needs GPUs")

SLOW = 600.0
A_MILLISECOND = Decimal(36) / 3_600_000
"""Of both nodes' parts."""
TOY = """
import json, os, pathlib, sys, time
kept = pathlib.Path(os.environ["RACKRATE_CHECKPOINT_DIR"], "last.json")
rate, steps = float(sys.argv[1]), 8
for step in range(1, steps + 1):
    print(json.dumps({"step": step, "loss": (rate - 0.3) ** 2 + 1 / step}), flush=True)
    while step == 2 and not (kept.exists() and json.loads(kept.read_text())["step"] == 2):
        time.sleep(0.01)  # the newest report is told, and at this one it is judged
    time.sleep(0.01)
"""
SWEEP = """
[sweep]
name = "toy"
command = ["{python}", "toy.py", "{rate}"]
metric = "loss"
mode = "min"
trials = 12
trials_at_a_time = 2
gpus_per_trial = 0.6  # so that each node has one at a time
cpus_per_trial = 1
max_steps = 8
grace = 2
reduction = 2
budget = "40usd"
search = "hyperopt"
seed = 3
[space]
rate = { uniform = [0.0, 1.0] }
[job]
workdir = "work"
nodes = 2
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[JobAgent]]:
    made = [JobAgent(tmp_path / name, name=name, gpus=2) for name in ("one", "two")]
    with one_ray():
        try:
            yield [one.start() for one in made]
        finally:
            for one in made:
                one.close()


@pytest.fixture
def home(nodes: list[JobAgent], tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "toy.py").write_text(TOY)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    tables = [
        f'[[nodes]]\nname = "{name}"\nurl = "{one.url}"\ntoken_file = "{one.state / "token"}"\n'
        for name, one in zip(("one", "two"), nodes, strict=True)
    ]
    write_config(tmp_path / "home", "".join(tables))
    return tmp_path / "home"


def held(node: JobAgent, id: str, usd_per_hour: Decimal) -> Decimal:
    """What the node's usage rows say that the job held, at the price of one GPU."""
    total = Decimal(0)
    for row in usage_rows(node):
        if row.get("job") == id and row["kind"] == "held":
            span = datetime.fromisoformat(row["ends_at"]) - datetime.fromisoformat(row["starts_at"])
            total += Decimal(str(span.total_seconds())) * Decimal(str(row["share"])) * usd_per_hour / 3600
    return total


def test_a_sweep_over_two_nodes_ends_its_trials_and_costs_what_the_usage_rows_say(
    nodes: list[JobAgent], home: Path, tmp_path: Path
) -> None:
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    done = rackrate_inside(home, "sweep", str(tmp_path / "sweep.toml"), "--env", path)
    assert done.code == 0, done.err
    ids = done.out.split()
    jobs = []
    for node, id in zip(nodes, ids, strict=True):
        node.until(id, "ended", seconds=SLOW)
        jobs.append(node.job(id))
    told = "\n".join(node.text(id) for node, id in zip(nodes, ids, strict=True))
    assert [job["cause"] for job in jobs] == ["exit:0", "exit:0"], (jobs, told)

    shown: dict[str, Any] = rackrate_inside(home, "sweep", "show", ids[0], "--json").json()
    states = [one["state"] for one in shown["trials"]]
    assert len(states) == 12 and set(states) == {"ended", "stopped early"}, told
    assert states.count("stopped early") >= 3
    assert shown["best"] in [one["number"] for one in shown["trials"] if one["state"] == "ended"]
    assert shown["command"].startswith("python3 toy.py 0.")
    heads = [json.loads(line) for line in told.splitlines() if line.startswith('{"event": "sweep"')]
    assert [(one["nodes"], one["gpus"], one["usd_per_hour"]) for one in heads] == [(2, 2.0, "36")]

    on = {json.loads(line)["on_gpus"] for line in told.splitlines() if '"on_gpus"' in line}
    assert on == {uuid for job in jobs for uuid in job["gpus"]}, "each trial sees a GPU that was given, by its UUID"

    cost = sum(Decimal(job["cost"]) for job in jobs)
    trials = sum(Decimal(one["cost"]) for one in shown["trials"])
    assert Decimal(shown["job_cost"]) == cost and trials + Decimal(shown["idle_cost"]) == cost and 0 < trials < cost
    for node in nodes:
        node.end()
        node.start()  # the orderly end wrote the open rows
    rows = sum((held(node, id, Decimal(18)) for node, id in zip(nodes, ids, strict=True)), Decimal(0))
    assert abs(rows - cost) < A_MILLISECOND, (rows, cost)
    for node, id in zip(nodes, ids, strict=True):
        assert node.marked(f"RACKRATE_JOB={id}") == [] and wait_for(lambda one=node, id=id: not one.shims(id), 10)
    assert not [one for one in told.splitlines() if "ray-token" in one.lower()]

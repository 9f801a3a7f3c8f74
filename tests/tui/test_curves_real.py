"""A real job on a real agent: its curves through a kill and a resume, by the commands."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.cli import Done, rackrate_here, write_config
from tests.support.job_agent import JobAgent, wait_for

TRAINING = """
import json, os, signal, sys, time
there = os.path.join(os.environ["RACKRATE_CHECKPOINT_DIR"], "step")
begin = int(open(there).read()) if os.path.exists(there) else 0
say = lambda **values: print(json.dumps(values), flush=True)
say(event="start", step=begin, steps=12, batch_size=4, samples_an_epoch=16, tokens_a_sample=10)
for step in range(begin + 1, 13):
    say(step=step, loss=(8.0 if begin else 9.0) / step, samples_per_second=20.0, time=time.time())
    if step == 4:
        open(there, "w").write("4")
    if step == 7 and not begin:
        os.kill(os.getpid(), signal.SIGKILL)
say(event="end", step=12, accuracy=0.9)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[JobAgent]:
    with JobAgent(tmp_path / "agent", gpus=2) as made:
        yield made


@pytest.fixture
def command(agent: JobAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Done]:
    write_config(tmp_path / "home", agent.listed())
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path / "home"))
    return lambda *arguments: rackrate_here(capfdbinary, *arguments)


def test_a_job_that_was_killed_and_resumed_has_one_curve_with_its_money(command: Callable[..., Done], agent: JobAgent) -> None:
    job = agent.python(TRAINING, gpus=1, retries=1, name="cut")
    agent.ended(job)
    record = command("job", "curves", "--json", "cut").json()
    loss = next(one for one in record["curves"]["curves"] if one["name"] == "loss")
    assert loss["steps"] == list(range(1, 13))
    assert loss["values"] == [9.0 / step for step in range(1, 5)] + [8.0 / step for step in range(5, 13)]
    assert all(abs(at - time.time()) < 600 for at in loss["seconds"]) and record["accuracy"] == 0.9
    # 36 USD an hour for two GPUs: 18 for one. An epoch: 16 samples at 20 a second = 0.8 s = 0.004 USD.
    # a million samples: 50,000 s = 250 USD; of tokens, ten a sample: 25 USD
    assert (record["usd_per_hour"], record["usd_per_epoch"]) == ("18", "0.004000000")
    assert (record["usd_per_million_samples"], record["usd_per_million_tokens"]) == ("250.000000000", "25.000000000")
    assert record["usd_so_far"] == agent.job(job)["cost"] and Decimal(record["usd_in_all"]) == Decimal(record["usd_so_far"])
    shown = command("job", "curves", "cut")
    assert shown.code == 0 and "lowest 0.6667 at step 12" in shown.out and "step 12 of 12" in shown.out and "epoch 3.00" in shown.out
    rows = list(csv.DictReader(io.StringIO(command("job", "curves", "--csv", "--name", "loss", "cut").out)))
    assert [row["step"] for row in rows] == [str(step) for step in range(1, 13)] and rows[0]["time"].startswith("20")
    other = agent.python(TRAINING.replace("8.0 if begin else 9.0", "4.0").replace("step == 7", "step == 99"), gpus=1, name="better")
    agent.ended(other)
    compared = command("job", "compare", "cut", "better", "--at-loss", "1.0", "--json").json()
    assert [one["at_loss"]["step"] for one in compared] == [8, 4] and all(one["at_loss"]["exact"] for one in compared)
    for one in compared:
        assert 0 < Decimal(one["at_loss"]["usd"]) <= Decimal(one["usd_so_far"])
    plain = agent.python("print('no figures here')", gpus=0)
    agent.ended(plain)
    refused = command("job", "curves", plain)
    assert refused.code == 1 and "the job prints no lines like" in refused.err
    partly = command("job", "compare", "cut", plain)
    assert partly.code == 4 and "no curves" in partly.err and "last loss" in partly.out
    assert "points has to be a whole number from 4 to 1000" in agent.http.get(f"/v1/jobs/{job}/curves?points=3").text
    assert agent.http.get("/v1/jobs/0abc00000001/curves").status_code == 404


def test_a_job_that_runs_is_read_on_as_it_writes(command: Callable[..., Done], agent: JobAgent) -> None:
    job = agent.python("import json, time\nfor step in range(1, 10**6):\n print(json.dumps({'step': step, 'loss': 1 / step}), flush=True); time.sleep(0.02)")
    wait_for(lambda: "step" in agent.text(job))
    first = agent.http.get(f"/v1/jobs/{job}/curves").json()
    wait_for(lambda: agent.http.get(f"/v1/jobs/{job}/curves?names=loss").json()["step"] > first["step"] + 2)
    shown = command("job", "curves", job)
    assert shown.code == 0 and "no line" in shown.out and "its part of the node by processors and memory" in shown.out

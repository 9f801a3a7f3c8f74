"""Whatever happens to a node and its agent, the rows tile the time: random histories, and a real process that is killed."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent import wire
from agent.meter import Meter
from agent.meter_claims import Claim
from tests.support.examples import examples
from tests.support.metering import ANN, BOB, EVE, INFO, HandClock, all_rows, check_cover, check_gpu_tiles, check_sequences, gpu, lost, sample

GPUS = 3
MOVED = wire.NodeInfo(node="n1", gpus=(), cloud="aws", region="us-east-1", instance_type="g4dn.12xlarge", purchase="on_demand")
ROOT = Path(__file__).resolve().parents[2]


class Act(NamedTuple):
    """One thing that happens, `wait_ms` after the one before. `shares`: of each GPU, the millionths that jobs claim."""

    what: str
    wait_ms: int = 0
    gpus: tuple[str, ...] = ()
    step_ms: int = 0
    shares: tuple[tuple[int, ...], ...] = ()


LAST = Act("see", 1, ("ann",) * GPUS)
STATES = st.sampled_from(["ann", "ann+bob", "ann+bob+eve", "idle", "unknown", "lost", "missing"])
WAITS = st.one_of(st.integers(0, 1500), st.integers(9_000, 11_000), st.integers(29_000, 45_000))
SHARES = st.sampled_from([(), (1_000_000,), (500_000,), (333_333, 333_333), (999_998, 1), (1, 1, 999_998)])
CLAIMS = st.builds(Act, st.sampled_from(["claim", "moment"]), WAITS, shares=st.tuples(*[SHARES] * GPUS))
ACTS = st.one_of(
    CLAIMS,
    CLAIMS,
    *[st.builds(Act, st.just("see"), WAITS, st.tuples(*[STATES] * GPUS)) for _ in range(6)],
    st.builds(Act, st.just("step"), WAITS, st.just(()), st.integers(-4_000_000, 4_000_000)),
    st.builds(Act, st.sampled_from(["kill", "close", "move", "silence"]), WAITS),
)


def seen(index: int, state: str) -> wire.Gpu | None:
    match state:
        case "missing":
            return None
        case "lost":
            return lost(index)
        case "idle":
            return gpu(index)
        case "unknown":
            return gpu(index, processes=None, utilization_ratio=None, power_watts=None)
    people = {"ann": ANN, "bob": BOB, "eve": EVE}
    return gpu(index, *[people[name] for name in state.split("+")])


def claims(shares: tuple[int, ...]) -> tuple[Claim, ...]:
    return tuple(Claim("bob", None, f"j{number}", share) for number, share in enumerate(shares))


class Life:
    """A node's record through restarts, driven by `Act`s."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.hands = HandClock()
        self.info = INFO
        self.meter = self._open()

    def _open(self) -> Meter:
        return Meter.open(self.path, "n1", durable=False, clock=self.hands.clock(), stall_seconds=30)

    def close_and_read(self) -> tuple[list[wire.UsageRow], dict[int, wire.Placement]]:
        self.hands.pass_ms(1)
        self.meter.close()
        self.meter = self._open()
        found = all_rows(self.meter)
        self.meter.close()
        return found

    def do(self, act: Act) -> None:
        self.hands.pass_ms(act.wait_ms)
        match act.what:
            case "see":
                found = [seen(index, state) for index, state in enumerate(act.gpus)]
                self.meter.observe(sample(*[one for one in found if one], at_ms=self.hands.wall_ms), self.info)
            case "claim":
                self.meter.claim({f"GPU-{index}": claims(shares) for index, shares in enumerate(act.shares)})
            case "moment":
                with self.meter.moment():
                    self.hands.pass_ms(act.wait_ms)
                    self.meter.claim({f"GPU-{index}": claims(shares) for index, shares in enumerate(act.shares)})
                    self.meter.claim({"GPU-0": claims(act.shares[0])})
            case "silence":
                self.meter.observe(sample(at_ms=self.hands.wall_ms, ok=None), self.info)
            case "step":
                self.hands.step_wall(act.step_ms)
            case "move":
                self.info = MOVED if self.info is INFO else INFO
            case "kill":
                self.meter.flush()
                self.meter._store.close()
                self.meter = self._open()
            case "close":
                self.meter.close()
                self.meter = self._open()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTS, max_size=25))
def test_every_moment_of_a_node_is_covered_exactly_once(acts: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(f"{folder}/usage.db")
        for act in [*acts, LAST]:
            life.do(act)
        rows, placements = life.close_and_read()
    check_sequences(rows)
    check_cover(rows, placements)


STEADY = st.sampled_from(["ann", "ann+bob", "ann+bob+eve", "idle", "unknown", "lost"])
STEADY_ACTS = st.one_of(
    CLAIMS,
    *[st.builds(Act, st.just("see"), WAITS, st.tuples(*[STEADY] * GPUS)) for _ in range(4)],
    st.builds(Act, st.just("step"), WAITS, st.just(()), st.integers(-4_000_000, 4_000_000)),
    st.builds(Act, st.sampled_from(["kill", "close", "move", "silence"]), WAITS),
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEADY_ACTS, max_size=25))
def test_the_rows_of_a_gpu_that_stays_tile_its_whole_life(acts: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(f"{folder}/usage.db")
        for act in [*acts, LAST]:
            life.do(act)
        rows, placements = life.close_and_read()
    check_sequences(rows)
    for uuid in {row.gpu for row in rows}:
        check_gpu_tiles(rows, uuid)
    of_gpus = [[row for row in rows if row.gpu == uuid] for uuid in {row.gpu for row in rows} - {None}]
    spans = {(min(row.starts_at for row in own), max(row.ends_at for row in own)) for own in of_gpus}
    assert len(spans) <= 1, "GPUs that are there from the start to the end have records of the same length"


COUNTERS = st.one_of(st.none(), st.just("same"), st.floats(0, 50_000), st.just("reset"))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.integers(10_000, 45_000), COUNTERS, STEADY, SHARES), min_size=2, max_size=30))
def test_the_energy_of_all_rows_is_the_growth_of_the_counter(
    readings: list[tuple[int, float | str | None, str, tuple[int, ...]]],
) -> None:
    hands, counter, values = HandClock(), 1_000_000.0, []
    with_meter = Meter.open(":memory:", "n1", durable=False, clock=hands.clock(), stall_seconds=30)
    for wait_ms, change, state, shares in readings:
        hands.pass_ms(wait_ms // 2)
        with_meter.claim({"GPU-0": claims(shares)})
        hands.pass_ms(wait_ms - wait_ms // 2)
        if isinstance(change, float):
            counter += change
        elif change == "reset":
            counter = 7.0
        told = None if change is None or state == "lost" else counter
        values.append(told)
        one = seen(0, state)
        assert one is not None
        with_meter.observe(sample(wire_with(one, energy_joules_total=told), at_ms=hands.wall_ms), INFO)
    with_meter.flush()
    hands.pass_ms(1)
    with_meter._end(None)
    rows, _ = all_rows(with_meter)
    with_meter.close()
    grown = sum(two - one for one, two in pairwise(values) if one is not None and two is not None and two >= one)
    assert sum(row.energy_joules or 0 for row in rows) == pytest.approx(grown, abs=0.0011)
    assert {row.energy_source for row in rows} <= {None, "counter"}


def wire_with(one: wire.Gpu, **fields: object) -> wire.Gpu:
    """Without power: only the counter can tell."""
    import msgspec

    return msgspec.structs.replace(one, power_watts=None, **fields)


KILLED = """
import os, random, signal, sys, time
from datetime import datetime, timezone
sys.path.insert(0, {root!r})
import agent.meter as metering
from agent import wire
from agent.meter import Meter
from agent.meter_claims import Claim
metering.SETTLE_MS = 0
path, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
info = wire.NodeInfo(node="n1", gpus=())
people = [wire.Process(pid=n, user=name) for n, name in enumerate(("ann", "bob", "eve"))]

def meter_until_killed(say):
    meter = Meter.open(path, "n1", row_seconds=0.02)
    number = 0
    while True:
        number += 1
        now = datetime.now(timezone.utc)
        gpus = tuple(
            wire.Gpu(index=place, uuid=f"GPU-{{place}}", state="ok", processes=tuple(people[: (number // 3 + place) % 4]))
            for place in range(4)
        )
        reports = (wire.SensorReport(name="nvml", ok=True, taken_at=now),)
        meter.observe(wire.Sample(node="n1", sequence=number, taken_at=now, gpus=gpus, sensors=reports), info)
        meter.claim({{"GPU-1": (Claim("ann", None, "j1", 1 + number % 1_000_000),)}} if number % 5 else {{}})
        os.write(say, b".")
        time.sleep(0.002)

def seen_by_a_client():
    meter = Meter.open(path, "n1")
    page = meter.usage(0, 10000)
    meter.close()
    return {{row.sequence: row for row in page.rows}}

random.seed(seed)
client = {{}}
for _ in range(rounds):
    hear, say = os.pipe()
    child = os.fork()
    if not child:
        meter_until_killed(say)
    os.close(say)
    for _ in range(random.choice((0, 1, 4, 7, 8, 9))):  # however slow the machine is
        assert os.read(hear, 1), "it ended by itself"
    time.sleep(random.uniform(0.005, 0.01))
    for sequence, row in seen_by_a_client().items() if os.path.exists(path) and os.path.getsize(path) else ():
        assert client.setdefault(sequence, row) == row, (sequence, client[sequence], row)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(hear)
after = seen_by_a_client()
assert all(after[sequence] == row for sequence, row in client.items())
print(len(after), len(client))
"""


@pytest.mark.parametrize("seed", [random.randrange(1 << 30)], ids=["random"])
def test_a_meter_that_is_killed_fifty_times_leaves_no_gap_and_reuses_no_sequence(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "usage.db"
    command = [sys.executable, "-W", "error", "-c", KILLED.format(root=str(ROOT)), str(path), "50", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    meter = Meter.open(path, "n1")
    rows, placements = all_rows(meter)
    meter.close()
    check_sequences(rows)
    check_cover(rows, placements)
    for index in range(4):
        check_gpu_tiles(rows, f"GPU-{index}")
    assert sum(row.kind == "down" for row in rows) > 4 * 10, "most restarts found rows of the run before"

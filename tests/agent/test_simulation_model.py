"""The load model: pure, seeded, consistent with the boards' facts and with itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from agent import wire
from agent.simulation import faults, people
from agent.simulation.boards import BOARDS
from agent.simulation.curves import KINDS, NOISE, curve
from agent.simulation.demo import LOST_NODE, STALLING_NODE, plan_demo
from agent.simulation.fleet import last_time_of_day, plan_fleet, plan_preset
from agent.simulation.model import NodeModel, NodePlan
from agent.simulation.schedule import PROFILES, draw_week

MONDAY_NOON = 1_790_596_800 + 12 * 3600  # Monday 28 September 2026, UTC
HOUR_MS = 3_600_000
NOON_MS = MONDAY_NOON * 1000


def model(profile: str = "busy", board: str = "A100", gpus: int = 8, seed: int = 3, **changes: object) -> NodeModel:
    return NodeModel(NodePlan(name="n1", board=board, gpus=gpus, profile=profile, **changes), seed)  # type: ignore[arg-type]


def busy_moments(node: NodeModel, count: int = 200, step_ms: int = 613_000) -> list[tuple[int, wire.Gpu]]:
    return [(at, gpu) for at in range(NOON_MS, NOON_MS + count * step_ms, step_ms) for gpu in node.gpus_at(at)]


def test_two_models_with_one_seed_read_the_same_in_any_order() -> None:
    one, two = model(), model()
    moments = [NOON_MS + k * 977_000 for k in range(50)]
    forward = [one.gpus_at(at) for at in moments]
    backward = [two.gpus_at(at) for at in reversed(moments)]
    assert forward == backward[::-1]
    assert one.host_at(NOON_MS) == two.host_at(NOON_MS)
    assert one.inventory == two.inventory


def test_another_seed_gives_another_fleet() -> None:
    assert model(seed=3).inventory != model(seed=4).inventory
    one, two = ([model(seed=seed).gpus_at(NOON_MS + k * HOUR_MS) for k in range(9)] for seed in (3, 4))
    assert [[gpu.utilization_ratio for gpu in gpus] for gpus in one] != [[gpu.utilization_ratio for gpu in gpus] for gpus in two]


def test_readings_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    program = (
        "from agent import wire; from agent.simulation.model import NodeModel;"
        "from agent.simulation.demo import plan_demo;"
        f"print([wire.encoder.encode(NodeModel(p, 5).gpus_at({NOON_MS})) for p in plan_demo({MONDAY_NOON})])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True, check=True,
        ).stdout
        for seed in ("0", "12345")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("board", sorted(BOARDS))
def test_readings_stay_inside_what_the_board_can_do(board: str) -> None:
    facts = BOARDS[board]
    for _, gpu in busy_moments(model(board=board)):
        assert gpu.state == "ok"
        assert 0.0 <= gpu.utilization_ratio <= 1.0
        assert 0 < gpu.memory_used_bytes <= facts.memory_total_bytes - facts.memory_reserved_bytes + 4 * 1024 * 1024
        assert 0.8 * facts.idle_watts <= gpu.power_watts <= 1.02 * facts.power_limit_watts
        assert facts.idle_celsius - 4 <= gpu.temperature_celsius <= facts.busy_celsius + 5
        assert facts.clock_sm_idle_hertz <= gpu.clock_sm_hertz <= facts.clock_sm_max_hertz
        assert gpu.memory_total_bytes == facts.memory_total_bytes and gpu.power_limit_watts == facts.power_limit_watts


def test_an_idle_gpu_has_no_process_no_load_and_little_power() -> None:
    idle = [gpu for _, gpu in busy_moments(model("idle")) if not gpu.processes]
    assert len(idle) > 500
    for gpu in idle:
        assert gpu.utilization_ratio == 0.0 and gpu.power_watts < 55 and gpu.throttle_reasons == ("gpu_idle",)


def test_a_notebook_holds_memory_but_computes_little() -> None:
    held = [gpu for _, gpu in busy_moments(model("desk"), 600) if any("kernel" in (p.command or "") for p in gpu.processes or ())]
    assert len(held) > 300
    assert sum(gpu.utilization_ratio for gpu in held) / len(held) < 0.2
    assert min(gpu.memory_used_bytes for gpu in held) > 400 * 1024 * 1024


def test_training_keeps_a_gpu_busy_and_dips_at_checkpoints() -> None:
    training = curve("train", 0)
    assert 0.8 < training.mean < 0.97
    assert max(training.levels) > 0.9 and min(training.levels) < 0.2


@pytest.mark.parametrize("board", ["A100", "T4"])
def test_the_energy_counter_is_the_integral_of_power(board: str) -> None:
    node = model(board=board)
    start, step, seconds = NOON_MS + 1_234, 1000, 3600
    readings = [node.gpus_at(start + k * step) for k in range(seconds + 1)]
    for index in range(8):
        track = [reading[index] for reading in readings]
        integrated = sum((a.power_watts + b.power_watts) / 2 for a, b in zip(track, track[1:], strict=False))
        counted = track[-1].energy_joules_total - track[0].energy_joules_total
        assert counted == pytest.approx(integrated, rel=0.01)


def test_the_energy_counter_only_grows_until_the_weekly_reboot() -> None:
    node = model()
    boot = node.boot_seconds(MONDAY_NOON)
    moments = [int((boot + 60 + k * 1800) * 1000) for k in range(330)]
    for index in range(8):
        counters = [node.gpus_at(at)[index].energy_joules_total for at in moments]
        assert all(a < b for a, b in zip(counters, counters[1:], strict=False))
    assert node.gpus_at(int((boot + 7 * 86_400 + 1) * 1000))[0].energy_joules_total < 1000
    assert node.host_at(NOON_MS).boot_at.timestamp() == int(boot)


def test_jobs_of_a_lane_never_overlap_and_all_gpus_have_a_lane() -> None:
    for profile in PROFILES:
        for gpus in (1, 2, 3, 4, 8, 16):
            lanes = draw_week(f"{profile}/{gpus}", MONDAY_NOON, gpus, profile)
            assert {index for lane in lanes for index in lane.gpus} == set(range(gpus))
            for lane in lanes:
                assert all(a.ended < b.started for a, b in zip(lane.jobs, lane.jobs[1:], strict=False))
                assert all(job.started < job.ended <= MONDAY_NOON + people.WEEK for job in lane.jobs)


def test_the_processes_of_a_job_have_its_user_project_and_distinct_pids() -> None:
    for _, gpu in busy_moments(model("mixed"), 60):
        for process in gpu.processes or ():
            assert people.PROJECTS[process.user] == process.project
            assert process.job.startswith(process.project)
            assert process.started_at.timestamp() <= NOON_MS / 1000 + 60 * 613
    one = [gpu for gpu in model("busy").gpus_at(NOON_MS + HOUR_MS) if gpu.processes]
    pids = [process.pid for gpu in one for process in gpu.processes]
    assert len(pids) == len(set(pids))


def test_two_people_can_share_one_gpu_without_exceeding_it() -> None:
    node = model("desk")
    shared = [gpu for _, gpu in busy_moments(node, 400) if len(gpu.processes or ()) == 2]
    assert shared
    for gpu in shared:
        assert sum(process.utilization_ratio for process in gpu.processes) <= 1.04
        assert sum(process.memory_used_bytes for process in gpu.processes) <= gpu.memory_used_bytes


def test_more_people_start_work_in_office_hours_than_at_night_or_on_sunday() -> None:
    starts: Counter[str] = Counter()
    for seed in range(40):
        for lane in draw_week(f"w{seed}", float(people.MONDAY + 2700 * people.WEEK), 8, "desk"):
            for job in lane.jobs:
                hour = people.hour_of_week(job.started)
                starts["office" if hour < 120 and 8 <= hour % 24 < 17 else "night" if hour % 24 < 5 else "other"] += 1
                starts["sunday" if hour >= 144 else "wednesday" if 48 <= hour < 72 else "rest"] += 1
    assert starts["office"] > 4 * starts["night"]
    assert starts["wednesday"] > 1.5 * starts["sunday"]


def test_the_flicker_has_no_mean_and_every_curve_stays_within_a_gpu() -> None:
    assert sum(NOISE) == pytest.approx(0, abs=1e-9)
    for kind in KINDS:
        assert all(0.0 <= level <= 1.0 for level in curve(kind, 1).levels)


@pytest.mark.parametrize("kind", KINDS)
def test_the_area_of_a_curve_is_the_integral_of_its_level(kind: str) -> None:
    shape, slot, step = curve(kind, 2), 7.0, 0.5
    end = slot * len(shape.levels[:300]) + slot * 0.5
    summed = sum(shape.level(k * step, slot) * step for k in range(int(end / step)))
    assert shape.area(end, slot) == pytest.approx(summed, rel=1e-6)


def test_a_lost_gpu_keeps_its_index_and_uuid_and_says_why() -> None:
    node = model(faults=faults.Faults(lost=(faults.Lost(gpu=5, since=MONDAY_NOON + 10),)))
    before, after = node.gpus_at(NOON_MS + 9_999)[5], node.gpus_at(NOON_MS + 10_000)[5]
    assert (before.state, after.state) == ("ok", "lost")
    assert (after.index, after.uuid) == (before.index, before.uuid) == (5, node.inventory[5].uuid)
    assert after.reason and after.xid_last == 79 and after.xid_last_at.timestamp() == MONDAY_NOON + 10
    assert after.utilization_ratio is None and after.power_watts is None and after.energy_joules_total is None
    assert after.processes is None and after.memory_used_bytes is None


def test_a_lost_gpu_comes_back_when_its_node_reboots() -> None:
    node = model(faults=faults.Faults(lost=(faults.Lost(gpu=0, since=MONDAY_NOON, until=MONDAY_NOON + 60),)))
    assert [node.gpus_at(NOON_MS + s * 1000)[0].state for s in (-1, 0, 59, 60)] == ["ok", "lost", "lost", "ok"]


def test_a_gpu_with_poor_cooling_throttles_only_when_it_works() -> None:
    node = model(faults=faults.Faults(hot=(2,)))
    readings = [gpu for _, gpu in busy_moments(node) if gpu.index == 2]
    throttled = [gpu for gpu in readings if gpu.throttle_reasons == ("sw_thermal_slowdown",)]
    assert throttled and len(throttled) < len(readings)
    for gpu in throttled:
        assert gpu.temperature_celsius >= 80 and gpu.clock_sm_hertz < 1_000_000_000
        assert gpu.processes


def test_a_filling_disk_fills_and_is_never_more_than_full() -> None:
    node = model(faults=faults.Faults(filling=faults.Filling()))
    used = [next(f for f in node.host_at(NOON_MS + k * HOUR_MS).filesystems if f.mount == "/scratch") for k in range(8)]
    assert all(0.9 < f.used_bytes / f.total_bytes < 1.0 and f.available_bytes > 0 for f in used)
    assert used[0].used_bytes < used[7].used_bytes


def test_a_failed_job_leaves_its_xid_and_the_count_never_falls() -> None:
    seen = 0
    for seed in range(12):
        node = model(seed=seed)
        boot = node.boot_seconds(MONDAY_NOON)
        counts = [sum(node.gpus_at(int((boot + k * 7200 + 1) * 1000))[0].xid_counts.values()) for k in range(83)]
        assert counts == sorted(counts)
        seen += counts[-1]
    assert seen > 0


def test_a_stall_comes_once_a_period_for_twenty_to_forty_seconds() -> None:
    stall = faults.Stall(key="x")
    down = [second for second in range(MONDAY_NOON, MONDAY_NOON + 2400) if stall.remaining(second) > 0]
    runs = [second for second in down if second - 1 not in down]
    assert 9 <= len(runs) <= 11
    assert 9 * 19 <= len(down) <= 11 * 41
    assert faults.Stall(key="x").window(MONDAY_NOON) == stall.window(MONDAY_NOON)


def test_a_flapping_node_is_up_and_down_in_turn() -> None:
    flap = faults.Flap(up=3, down=2)
    assert [flap.is_down(s) for s in (0, 2.9, 3, 4.9, 5)] == [False, False, True, True, False]
    assert flap.remaining(3.5) == pytest.approx(1.5) and flap.remaining(1) == 0.0


def test_the_demo_is_twelve_nodes_of_all_kinds_with_real_gpu_counts() -> None:
    plans = plan_demo(MONDAY_NOON)
    assert len(plans) == 12 == len({plan.name for plan in plans})
    assert {plan.board for plan in plans} == {"H100", "A100", "V100", "T4", "L4", None}
    assert {"on_demand", "spot", "reserved_1y"} <= {plan.purchase for plan in plans}
    counts = {plan.instance_type: plan.gpus for plan in plans}
    assert counts["p4d.24xlarge"] == counts["p3.16xlarge"] == counts["p5.48xlarge"] == counts["a2-highgpu-8g"] == 8
    assert counts["g4dn.12xlarge"] == 4 and counts["p3.2xlarge"] == counts["g4dn.xlarge"] == counts["g2-standard-4"] == 1
    assert len({plan.tags["team"] for plan in plans}) >= 3
    assert next(plan for plan in plans if plan.purchase == "reserved_1y").usd_per_hour
    assert next(plan for plan in plans if plan.name == STALLING_NODE).faults.stall
    assert all(plan.usd_per_hour or plan.on_premises or plan.zone for plan in plans)


def test_the_demo_has_one_gpu_that_fell_off_the_bus_within_the_last_hours() -> None:
    for hour in range(24):
        now = MONDAY_NOON + hour * 3600
        lost = [
            (plan.name, gpu) for plan in plan_demo(now) for gpu in NodeModel(plan, 1).gpus_at(now * 1000) if gpu.state == "lost"
        ]
        assert [name for name, _ in lost] == [LOST_NODE]
        assert 7200 <= now - lost[0][1].xid_last_at.timestamp() <= 14 * 3600


@pytest.mark.parametrize("weekday", range(7))
def test_a_day_of_the_demo_is_neither_dead_nor_full(weekday: int) -> None:
    now = MONDAY_NOON + weekday * 86_400
    used = idle = 0.0
    total = 0
    for plan in plan_demo(now):
        node = NodeModel(plan, 7)
        for k in range(96):
            for gpu in node.gpus_at((now - k * 900) * 1000):
                total += 1
                used += gpu.utilization_ratio or 0.0
                idle += gpu.processes == ()
    assert 0.30 < used / total < 0.75
    assert 0.10 < idle / total < 0.50


def test_a_fleet_cycles_over_places_and_all_nodes_have_the_asked_gpus() -> None:
    plans = plan_fleet(200, 8, 1, MONDAY_NOON)
    assert [plans[0].name, plans[199].name] == ["node-0001", "node-0200"]
    assert {plan.gpus for plan in plans} == {8}
    assert len({(plan.instance_type, plan.region, plan.purchase) for plan in plans}) >= 8
    assert {plan.board for plan in plans} == {"A100", "H100", "V100", "T4"}
    assert any(plan.faults.lost for plan in plans) and any(plan.faults.stall for plan in plans)
    assert plans == plan_fleet(200, 8, 1, MONDAY_NOON)


def test_a_time_of_day_lies_in_the_past_but_not_long_ago() -> None:
    for hour in range(24):
        now = MONDAY_NOON + hour * 3600.0
        assert 7200 <= now - last_time_of_day(now, 5 * 3600) < 7200 + 86_400


def test_a_node_without_gpus_says_so_and_still_has_a_host() -> None:
    node = NodeModel(plan_preset("none", "head"), 1)
    assert node.gpus_at(NOON_MS) == () and node.inventory == ()
    host = node.host_at(NOON_MS)
    assert 0 < host.cpu_utilization_ratio < 1 and host.memory_used_bytes > 0
    info = node.node_info(host.boot_at)
    assert info.gpu_reason and info.simulated and info.driver_version is None


def test_memory_of_the_host_is_never_more_than_there_is() -> None:
    for plan in plan_demo(MONDAY_NOON):
        host = NodeModel(plan, 2).host_at(NOON_MS)
        assert 0 < host.memory_used_bytes < host.memory_total_bytes
        assert 0 < host.memory_available_bytes <= host.memory_total_bytes - host.memory_used_bytes


def test_xids_from_before_the_agent_was_started_are_not_told() -> None:
    plan = NodePlan(name="n1", board="A100", gpus=8, profile="busy", faults=faults.Faults(lost=(faults.Lost(gpu=5, since=MONDAY_NOON),)))
    for seed in range(12):
        told = NodeModel(plan, seed, watched_since=MONDAY_NOON + 1.0).gpus_at(NOON_MS + 1000)
        assert all(not gpu.xid_counts and gpu.xid_last is None for gpu in told)
    assert NodeModel(plan, 1, watched_since=MONDAY_NOON).gpus_at(NOON_MS)[5].xid_counts == {"79": 1}


def test_launchers_stand_above_the_processes_of_their_jobs_and_links_follow_the_work() -> None:
    model = NodeModel(plan_preset("8xA100", "tree"), 3)
    found = 0
    for hour in range(0, 96, 3):
        at_ms = 1_780_000_000_000 + hour * 3_600_000
        above = {one.pid: one for one in model.ancestors_at(at_ms)}
        for gpu in model.gpus_at(at_ms):
            assert (gpu.nvlinks, gpu.nvlinks_down) == (12, ()) and gpu.links_at is not None
            assert 0 <= at_ms / 1000 - gpu.links_at.timestamp() + gpu.index <= 20
            assert gpu.pcie_receive_bytes_per_second and gpu.pcie_receive_bytes_per_second < 16 * 1.97e9
            for process in gpu.processes or ():
                found += 1
                assert above[process.parent_pid or 0].job == process.job and process.cpu_ratio is not None
    assert found > 20
    assert model.gpus_at(at_ms) == NodeModel(plan_preset("8xA100", "tree"), 3).gpus_at(at_ms)

"""Alerts: what fires, after how long, what it says, and when it ends."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from agent import wire
from agent.alert_xids import XIDS
from agent.alerts import Thresholds
from tests.support.alerting import START, Watch, at
from tests.support.metering import ANN, BOB, gpu, lost

GB = 1_000_000_000
XORG = wire.Process(pid=1, user="root", kind="graphics")


def idle(*processes: wire.Process, busy: float | None = 0.04) -> wire.Gpu:
    return gpu(0, *(processes or (ANN,)), utilization_ratio=busy)


# gpu_idle_held


def test_a_gpu_held_and_idle_for_ten_minutes_fires_once_with_its_reading_and_cost() -> None:
    watch = Watch(price="3.00")
    watch.see(0, idle(), gpu(1))
    assert watch.keep(590, idle(), gpu(1)) == []
    (alert,) = watch.see(10, idle(), gpu(1))
    assert alert.key == "gpu_idle_held:GPU-0" and alert.severity == "warning" and alert.gpu == "GPU-0"
    assert (alert.since, alert.fired_at, alert.ended_at) == (START, at(600), None)
    assert (alert.reading, alert.threshold, alert.holders) == ("4 %", "under 20 % for 10 min", ("ann",))
    assert alert.usd_per_hour == "1.5"
    assert alert.message == (
        "GPU 0 (Tesla T4) is held by ann (pid 11) but was less than 20 % busy for 10 min: "
        "end what is not needed, or let others share the GPU."
    )
    assert watch.see(10, idle(), gpu(1)) == [] and watch.engine.active() == (alert,)


def test_a_gpu_that_a_job_has_and_does_not_use_is_named_with_the_job() -> None:
    given = wire.GpuAllocation(job="abc123", user="ann", share=Decimal(1))
    unused = msgspec.structs.replace(gpu(0, utilization_ratio=0.0), processes=(), allocations=(given,))
    watch = Watch()
    watch.keep(590, unused)
    (alert,) = watch.see(20, unused)
    assert alert.rule == "gpu_idle_held" and alert.holders == ("ann",)
    assert "held by ann (job abc123) but was less than 20 % busy" in alert.message


def test_one_busy_reading_begins_the_ten_minutes_anew() -> None:
    watch = Watch()
    watch.keep(590, idle())
    watch.see(10, idle(busy=0.21))
    assert watch.keep(600, idle()) == [] and watch.active == []
    assert [alert.since for alert in watch.see(10, idle())] == [at(610)]


def test_an_idle_alert_ends_only_above_the_hysteresis() -> None:
    watch = Watch()
    watch.keep(610, idle())
    assert watch.see(10, idle(busy=0.24)) == [] and watch.active == ["gpu_idle_held"]
    (ended,) = watch.see(10, idle(busy=0.25))
    assert ended.ended_at == at(630) and watch.active == [] and watch.engine.recent() == (ended,)


def test_an_alert_ends_when_the_gpu_is_given_back() -> None:
    watch = Watch()
    watch.keep(610, idle())
    assert [alert.ended_at is not None for alert in watch.see(10, gpu(0, utilization_ratio=0.0))] == [True]


@pytest.mark.parametrize(
    "reading",
    [
        gpu(0, ANN, utilization_ratio=None),
        gpu(0, processes=None, utilization_ratio=0.0),
        gpu(0, utilization_ratio=0.0),
        gpu(0, XORG, utilization_ratio=0.0),
    ],
    ids=["utilisation not known", "processes not known", "nobody holds it", "only a display server"],
)
def test_what_is_not_known_or_not_held_is_never_idle(reading: wire.Gpu) -> None:
    watch = Watch()
    assert watch.keep(7200, reading) == []


def test_unknown_readings_neither_reset_nor_count_towards_the_ten_minutes() -> None:
    watch = Watch()
    watch.keep(310, idle())
    watch.keep(200, idle(busy=None))
    assert watch.keep(300, idle()) == [], "300 + 290 known seconds"
    assert len(watch.see(10, idle())) == 1


def test_unknown_readings_keep_an_alert_for_five_minutes_and_then_end_it() -> None:
    watch = Watch()
    watch.keep(610, idle())
    assert watch.keep(300, idle(busy=None)) == [] and watch.active == ["gpu_idle_held"]
    assert [alert.ended_at for alert in watch.see(10, idle(busy=None))] == [at(920)]


def test_a_gap_in_the_samples_is_no_time_that_was_idle() -> None:
    watch = Watch()
    watch.see(0, idle())
    assert watch.see(3600, idle()) == [] and watch.see(590, idle()) == []


def test_other_users_begin_their_own_ten_minutes() -> None:
    watch = Watch()
    watch.keep(610, idle(ANN))
    (ended,) = watch.see(10, idle(BOB))
    assert ended.holders == ("ann",) and ended.ended_at is not None
    assert watch.keep(590, idle(BOB)) == []
    assert [alert.holders for alert in watch.see(10, idle(BOB))] == [("bob",)]


def test_a_user_who_joins_changes_the_alert_and_keeps_its_start() -> None:
    watch = Watch()
    watch.keep(610, idle(ANN))
    (changed,) = watch.see(10, idle(ANN, BOB))
    assert changed.holders == ("ann", "bob") and changed.fired_at == at(610) and "ann and bob" in changed.message


# gpu_lost


def test_a_lost_gpu_fires_at_once_and_names_who_was_on_it() -> None:
    watch = Watch(price="98.32")
    watch.see(0, gpu(0, ANN), gpu(1))
    (alert,) = watch.see(1, lost(0), gpu(1))
    assert alert.rule == "gpu_lost" and alert.severity == "critical" and alert.usd_per_hour == "49.16" and alert.holders == ("ann",)
    assert "GPU 0 (Tesla T4) is lost: fallen off the bus. What ann ran on it has failed." in alert.message
    assert [one.ended_at for one in watch.see(1, gpu(0), gpu(1))] == [at(2)]


def test_a_gpu_that_is_not_listed_any_more_is_lost_after_a_moment() -> None:
    watch = Watch()
    watch.see(0, gpu(0), gpu(1))
    assert watch.keep(10, gpu(1), step=1) == []
    (alert,) = watch.see(1, gpu(1))
    assert (alert.rule, alert.gpu) == ("gpu_lost", "GPU-0") and "does not list it any more" in alert.message


def test_a_driver_that_is_gone_loses_every_gpu_with_its_reason() -> None:
    watch = Watch()
    watch.see(0, gpu(0), gpu(1))
    alerts = [alert for _ in range(12) for alert in watch.see(1, reason="The driver was unloaded.")]
    assert sorted(alert.gpu or "" for alert in alerts) == ["GPU-0", "GPU-1"] and "The driver was unloaded." in alerts[0].message


def test_a_node_that_never_had_a_gpu_has_lost_none() -> None:
    report = wire.SensorReport(name="nvml", ok=False, error="no driver")
    watch = Watch()
    assert [watch.see(30, reason="no driver", reports=(report,)) for _ in range(9)] == [[]] * 9


# gpu_hot, gpu_throttled


def test_a_hot_gpu_fires_at_its_threshold_and_ends_below_the_hysteresis() -> None:
    watch = Watch()
    assert watch.see(1, gpu(0, temperature_celsius=84.9)) == []
    (alert,) = watch.see(1, gpu(0, temperature_celsius=85.0))
    assert (alert.rule, alert.reading, alert.threshold) == ("gpu_hot", "85 °C", "85 °C, until below 80 °C")
    assert watch.see(1, gpu(0, temperature_celsius=80.0)) == []
    assert watch.see(1, gpu(0, temperature_celsius=79.9))[0].ended_at == at(4)


def test_readings_of_an_active_alert_are_brought_up_to_date_once_a_minute() -> None:
    watch = Watch()
    watch.see(0, gpu(0, temperature_celsius=90.0))
    told = [alert for second in range(1, 121) for alert in watch.see(1, gpu(0, temperature_celsius=90.0 + second / 10))]
    assert [alert.reading for alert in told] == ["96 °C", "102 °C"] and {alert.fired_at for alert in told} == {START}


@pytest.mark.parametrize(
    ("bit", "cause", "severity", "words"),
    [
        ("sw_power_cap", "power", "warning", "it is at its power limit of 70 W"),
        ("hw_power_brake_slowdown", "power", "critical", "check the supplies"),
        ("sw_thermal_slowdown", "heat", "warning", "airflow"),
        ("hw_thermal_slowdown", "heat", "critical", "airflow"),
        ("hw_slowdown", "heat", "warning", "it is at 91 °C"),
    ],
)
def test_a_gpu_throttled_for_a_minute_says_by_what(bit: str, cause: str, severity: str, words: str) -> None:
    watch = Watch()
    reading = gpu(0, throttle_reasons=(bit, "gpu_idle"), power_limit_watts=70.0, temperature_celsius=82.0 if bit != "hw_slowdown" else 91.0)
    fired = [alert for alert in watch.keep(70, reading) if alert.rule == "gpu_throttled"]
    assert [(one.key, one.severity, one.reading) for one in fired] == [(f"gpu_throttled:GPU-0:{cause}", severity, bit)]
    assert words in fired[0].message and f"because of {cause}, for 60 s" in fired[0].message


def test_throttling_that_comes_and_goes_does_not_flap() -> None:
    watch = Watch()
    hot, cool = gpu(0, throttle_reasons=("sw_thermal_slowdown",)), gpu(0, throttle_reasons=())
    watch.keep(70, hot)
    assert watch.keep(20, cool) == [] and watch.keep(20, hot) == [] and watch.keep(20, cool) == []
    assert [alert.ended_at is not None for alert in watch.see(10, cool)] == [True]


def test_throttle_reasons_that_are_not_known_or_harmless_fire_nothing() -> None:
    watch = Watch()
    assert watch.keep(600, gpu(0, throttle_reasons=None)) == []
    assert watch.keep(600, gpu(0, throttle_reasons=("gpu_idle", "sync_boost", "display_clock_setting"))) == []


# gpu_xid


def test_an_xid_fires_when_its_count_goes_up_and_is_held_for_an_hour() -> None:
    watch = Watch()
    seen = gpu(0, ANN, xid_counts={"79": 1}, xid_last=79, xid_last_at=at(-5))
    (alert,) = watch.see(0, seen)
    assert (alert.key, alert.severity, alert.since) == ("gpu_xid:GPU-0:79", "critical", at(-5))
    assert "XID 79, the GPU has fallen off the bus, once" in alert.message and alert.holders == ("ann",)
    watch.keep(3600, gpu(0, xid_counts={"79": 1}), step=60)
    assert watch.active == ["gpu_xid"]
    assert watch.see(60, gpu(0, xid_counts={"79": 1}))[-1].ended_at is not None


def test_an_xid_of_a_gpu_that_fell_off_the_bus_stays() -> None:
    watch = Watch()
    watch.see(0, gpu(0, xid_counts={"79": 1}))
    for _ in range(30):
        watch.see(60, lost(0))
    assert watch.active == ["gpu_xid", "gpu_lost"]
    for _ in range(20):
        watch.see(60, gpu(1))
    assert watch.active == ["gpu_xid", "gpu_lost"]


def test_each_code_is_an_alert_of_its_own_and_a_second_one_renews_it() -> None:
    watch = Watch(xid_hold_seconds=100)
    assert [a.severity for a in watch.see(0, gpu(0, xid_counts={"13": 1, "48": 2}))] == ["warning", "critical"]
    watch.see(90, gpu(0, xid_counts={"13": 2, "48": 2}))
    assert [alert.key for alert in watch.see(20, gpu(0, xid_counts={"13": 2, "48": 2}))] == ["gpu_xid:GPU-0:48"]
    assert watch.active == ["gpu_xid"]


def test_counts_that_begin_anew_fire_when_they_go_up_again() -> None:
    watch = Watch(xid_hold_seconds=10)
    watch.see(0, gpu(0, xid_counts={"31": 5}))
    watch.see(60, gpu(0))
    assert watch.active == []
    watch.see(10, gpu(0, xid_counts={"31": 1}))
    assert watch.active == []
    assert [alert.reading for alert in watch.see(10, gpu(0, xid_counts={"31": 2}))] == ["XID 31, 2 times"]


def test_a_code_that_is_not_in_the_table_is_reported_all_the_same() -> None:
    (alert,) = Watch().see(0, gpu(0, xid_counts={"999": 1, "rubbish": 3}))
    assert "XID 999" in alert.message and "NVIDIA's XID catalogue" in alert.message


def test_the_well_known_codes_are_in_the_table() -> None:
    assert {13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120} <= XIDS.keys()


# the host


def disk(used: int, available: int, mount: str = "/data") -> wire.Host:
    return wire.Host(filesystems=(wire.Filesystem(mount=mount, total_bytes=100 * GB, used_bytes=used * GB, available_bytes=available * GB),))


def test_a_disk_is_full_by_what_is_available_not_by_what_is_unused() -> None:
    watch = Watch()
    assert watch.see(0, host=disk(89, 11)) == []
    (alert,) = watch.see(1, host=disk(86, 9))
    assert (alert.key, alert.reading, alert.threshold, alert.gpu) == ("disk_full:/data", "91 %", "90 % used", None)
    assert "/data is 91 % full, 9.0 GB are left" in alert.message and alert.severity == "warning" and alert.usd_per_hour is None
    (worse,) = watch.see(1, host=disk(94, 1))
    assert worse.severity == "critical" and worse.fired_at == alert.fired_at
    assert watch.see(1, host=disk(89, 11))[0].severity == "warning"
    assert watch.see(1, host=disk(50, 50))[0].ended_at == at(4)


def test_a_disk_of_no_size_is_not_full() -> None:
    assert Watch().see(0, host=disk(0, 0)) == []


def test_memory_nearly_full_for_a_minute_fires() -> None:
    watch = Watch()
    full = wire.Host(memory_total_bytes=100 * GB, memory_available_bytes=4 * GB)
    told = [alert for _ in range(8) for alert in watch.see(10, host=full)]
    assert [(alert.rule, alert.reading) for alert in told] == [("memory_full", "96 %")]
    assert watch.see(10, host=wire.Host()) == []


def test_a_sensor_that_fails_for_a_minute_fires_and_one_failure_does_not() -> None:
    watch = Watch()
    bad, good = (wire.SensorReport(name="nvml", ok=ok, error=None if ok else "driver unresponsive for 61 s") for ok in (False, True))
    assert watch.see(0, gpu(0), reports=(bad,)) == [] and watch.see(30, gpu(0), reports=(good,)) == []
    told = [alert for _ in range(7) for alert in watch.see(10, gpu(0), reports=(bad,))]
    assert [alert.key for alert in told] == ["sensor_failing:nvml"] and "driver unresponsive for 61 s" in told[0].message


def test_readings_of_a_driver_that_hangs_fire_nothing() -> None:
    watch = Watch()
    for second in range(0, 1300, 10):
        report = wire.SensorReport(name="nvml", ok=True, taken_at=at(min(second, 300)))
        watch.second = 0
        watch.see(second, idle(), reports=(report,))
    assert watch.active == []


# settings and the engine


def test_a_rule_that_is_disabled_never_fires() -> None:
    assert Watch(disabled=("gpu_lost",)).see(0, lost(0)) == []


@pytest.mark.parametrize(
    "bad", ['{"gpu_hot_celsius": 900}', '{"held_idle_ratio": 1.5}', '{"disk_full_ratio": -1}', '{"held_idle_seconds": -1}',
            '{"gpu_hot": 3}', '{"disabled": ["gpu_cold"]}'],
)  # fmt: skip
def test_thresholds_out_of_range_and_unknown_names_are_refused(bad: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(bad, type=Thresholds)


def test_every_threshold_can_be_set() -> None:
    values = msgspec.to_builtins(Thresholds())
    assert msgspec.convert(values, Thresholds) == Thresholds()
    watch = Watch(gpu_hot_celsius=60, gpu_hot_seconds=20)
    assert watch.keep(20, gpu(0, temperature_celsius=61.0)) == [] and len(watch.keep(10, gpu(0, temperature_celsius=61.0))) == 1


@pytest.mark.parametrize("price", [None, "", "zero", "0", "-1", "NaN", "Infinity"])
def test_a_price_that_is_not_known_gives_no_cost(price: str | None) -> None:
    assert Watch(price=price).see(0, lost(0))[0].usd_per_hour is None


def test_a_price_is_divided_without_a_trail_of_digits() -> None:
    assert Watch(price="10").see(0, lost(0), gpu(1), gpu(2))[0].usd_per_hour == "3.3333"
    assert Watch(price="1000").see(0, lost(0))[0].usd_per_hour == "1000"


def test_ended_alerts_are_remembered_for_an_hour() -> None:
    watch = Watch()
    watch.see(0, lost(0))
    watch.see(1, gpu(0))
    watch.see(3599, gpu(0))
    assert len(watch.engine.recent()) == 1
    watch.see(2, gpu(0))
    assert watch.engine.recent() == ()


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    watch = Watch()
    watch.keep(610, idle())
    assert watch.see(-3600, idle()) == [] and watch.active == ["gpu_idle_held"]

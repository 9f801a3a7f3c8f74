"""Random readings: what holds of every alert, whatever a node goes through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from tests.support.alerting import Watch
from tests.support.metering import ANN, gpu, lost

READINGS = st.one_of(
    st.none(),
    st.builds(
        lambda busy, degrees, reasons, held: gpu(
            0, utilization_ratio=busy, temperature_celsius=degrees, throttle_reasons=reasons,
            processes=None if held is None else (ANN,) if held else (),
        ),
        st.one_of(st.none(), st.floats(0, 1)), st.one_of(st.none(), st.floats(20, 110)),
        st.sampled_from([None, (), ("sw_power_cap",), ("hw_slowdown", "sw_power_cap")]), st.sampled_from([None, True, False]),
    ),
    st.just(lost(0)),
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 400), READINGS), max_size=40))
def test_every_alert_fires_before_it_ends_and_the_active_ones_are_those_that_did_not(acts: list[tuple[int, wire.Gpu | None]]) -> None:
    watch = Watch(held_idle_seconds=300)
    open_now: dict[str, wire.Alert] = {}
    for wait, reading in acts:
        for alert in watch.see(wait, *([reading] if reading else [])):
            assert alert.since <= alert.fired_at <= (alert.ended_at or alert.fired_at) and alert.message.endswith(".")
            if alert.ended_at is None:
                open_now[alert.key] = alert
            else:
                assert open_now.pop(alert.key).fired_at == alert.fired_at
        assert {alert.key: alert for alert in watch.engine.active()} == open_now


@given(st.lists(st.integers(0, 400), max_size=60))
def test_nothing_that_is_unknown_ever_fires(waits: list[int]) -> None:
    watch = Watch(held_idle_seconds=0, throttle_seconds=0, memory_full_seconds=0)
    blank = wire.Gpu(index=0, uuid="GPU-0", state="ok")
    assert all(watch.see(wait, blank, host=wire.Host()) == [] for wait in waits)

"""The cloud's notices in the usage record: kept at once, told on every page, withdrawn when nothing happened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from agent import wire
from agent.meter_interruptions import SURVIVED_MS
from tests.support.metering import ANN, INFO, T0_MS, HandClock, Node, gpu, ms, sample, utc

BOOT_MS = T0_MS - 600_000
MINUTE = 60_000


class SpotNode(Node):
    """A node that knows when it started; `boot` tells one run of the machine from the next."""

    def __init__(self, path: str | Path = ":memory:", hands: HandClock | None = None, boot: str = "first") -> None:
        super().__init__(path, hands)
        self.info = msgspec.structs.replace(INFO, boot_id=boot)
        self.booted_ms = BOOT_MS

    def run(self, *waits_ms: int) -> None:
        for wait_ms in waits_ms:
            self.hands.pass_ms(wait_ms)
            host = wire.Host(boot_at=utc(self.booted_ms))
            read = msgspec.structs.replace(sample(gpu(0, ANN), at_ms=self.hands.wall_ms), host=host)
            self.meter.observe(read, self.info)

    def tell(self, kind: str = "terminate", in_ms: int | None = 120_000, ended: bool = False) -> None:
        now = self.hands.wall_ms
        self.meter.notice(
            wire.Notice(
                cloud="aws", kind=kind, at=None if in_ms is None else utc(now + in_ms), noticed_at=utc(now), id=f"spot-{kind}",  # type: ignore[arg-type]
                message="it goes", ended_at=utc(now) if ended else None,
            )
        )  # fmt: skip

    @property
    def told(self) -> tuple[wire.Interruption, ...]:
        page = msgspec.json.decode(wire.encoder.encode(self.meter.usage()), type=wire.UsagePage)
        return page.interruptions


@contextmanager
def spot_node(path: str | Path = ":memory:", hands: HandClock | None = None, boot: str = "first") -> Iterator[SpotNode]:
    node = SpotNode(path, hands, boot)
    try:
        yield node
    finally:
        node.meter.close()


def test_a_notice_is_told_with_who_ends_the_node_and_when_it_had_started() -> None:
    with spot_node() as node:
        node.run(0, 1000)
        assert node.told == ()
        node.tell()
        (one,) = node.told
        assert (one.number, one.cloud, one.kind, one.withdrawn) == (1, "aws", "terminate", False)
        assert (ms(one.at), ms(one.booted_at or one.at)) == (node.hands.wall_ms + 120_000, BOOT_MS)


def test_a_notice_is_on_the_disk_before_anything_else_is_written(tmp_path: Path) -> None:
    with spot_node(tmp_path / "usage.db") as node:
        node.run(0, 1000)
        node.tell()
        with sqlite3.connect(tmp_path / "usage.db") as reader:
            assert reader.execute("SELECT cloud, kind, withdrawn FROM interruption").fetchall() == [("aws", "terminate", 0)]
        reader.close()


@pytest.mark.parametrize("kind", ["rebalance", "maintenance"])
def test_what_does_not_end_the_node_is_no_interruption(kind: str) -> None:
    with spot_node() as node:
        node.run(0, 1000)
        node.tell(kind)
        assert node.told == ()


def test_one_that_the_cloud_took_back_is_told_as_withdrawn() -> None:
    with spot_node() as node:
        node.run(0, 1000)
        node.tell()
        node.run(30_000)
        node.tell(ended=True)
        (one,) = node.told
        assert one.withdrawn and ms(one.at) == T0_MS + 1000 + 120_000


def test_a_notice_that_is_told_again_or_moved_stays_one() -> None:
    with spot_node() as node:
        node.run(0, 1000)
        node.tell()
        node.run(10_000)
        node.tell(in_ms=150_000)
        (one,) = node.told
        assert (ms(one.noticed_at), ms(one.at)) == (T0_MS + 1000, T0_MS + 11_000 + 150_000)


def test_a_node_that_simply_goes_on_was_not_taken_back() -> None:
    with spot_node() as node:
        node.run(0, 1000)
        node.tell()
        node.run(*[10_000] * ((120_000 + SURVIVED_MS) // 10_000 - 1))
        assert not node.told[0].withdrawn
        node.run(10_000, 10_000)
        assert node.told[0].withdrawn


def test_a_machine_that_was_stopped_and_started_again_was_taken_back(tmp_path: Path) -> None:
    path, hands = tmp_path / "usage.db", HandClock()
    with spot_node(path, hands) as node:
        node.run(0, 1000)
        node.tell("stop")
        node.run(100_000)
    hands.pass_ms(50 * MINUTE)
    with spot_node(path, hands, boot="second") as node:
        node.booted_ms = hands.wall_ms - 5000
        node.run(0, *[10_000] * 100)
        assert [(one.kind, one.withdrawn, ms(one.booted_at or one.at)) for one in node.told] == [("stop", False, BOOT_MS)]
        node.tell("stop")
        assert [one.number for one in node.told] == [1, 2]


def test_an_agent_that_was_restarted_meanwhile_hears_the_same_notice_and_keeps_one(tmp_path: Path) -> None:
    path, hands = tmp_path / "usage.db", HandClock()
    with spot_node(path, hands) as node:
        node.run(0, 1000)
        node.tell()
    hands.pass_ms(15_000)
    with spot_node(path, hands) as node:
        node.tell(in_ms=104_000)  # before its first reading
        assert [(one.number, ms(one.booted_at or one.at)) for one in node.told] == [(1, BOOT_MS)]
        node.run(0, *[20_000] * 40)
        assert node.told[0].withdrawn  # the same machine, and it runs on


def test_a_node_that_was_hibernated_wakes_as_if_nothing_had_happened_and_was_taken_back_all_the_same() -> None:
    with spot_node() as node:
        node.run(0, 1000)
        node.tell("hibernate", in_ms=None)
        node.run(300 * MINUTE, *[10_000] * 100)
        assert [one.withdrawn for one in node.told] == [False]


def test_a_notice_heard_before_the_first_reading_learns_when_the_machine_started() -> None:
    with spot_node() as node:
        node.tell()
        assert node.told[0].booted_at is None
        node.run(0, 1000)
        node.meter.flush()
        assert ms(node.told[0].booted_at or utc(0)) == BOOT_MS


def test_a_full_disk_keeps_the_notice_until_it_can_be_written(tmp_path: Path) -> None:
    with spot_node(tmp_path / "usage.db") as node:
        node.run(0, 1000)
        node.meter._store._db.execute("PRAGMA query_only = ON")
        node.tell()
        assert node.meter.problem and "an interruption cannot be written now" in node.meter.problem
        assert node.told == ()
        node.meter._store._db.execute("PRAGMA query_only = OFF")
        node.run(10_000)
        node.meter.flush()
        assert len(node.told) == 1


def test_a_record_of_an_older_agent_is_taken_over(tmp_path: Path) -> None:
    path, hands = tmp_path / "usage.db", HandClock()
    with spot_node(path, hands) as node:
        node.run(0, 1000)
    with sqlite3.connect(path) as older:
        older.execute("DROP TABLE interruption")
        older.execute("DROP TABLE cpu")
        older.execute("PRAGMA user_version = 1")
    older.close()
    with spot_node(path, hands) as node:
        node.run(1000, 1000)
        node.tell()
        assert len(node.told) == 1 and node.rows()[0].sequence == 1


def test_times_are_whole_milliseconds() -> None:
    with spot_node() as node:
        node.run(0, 1000)
        node.meter.notice(wire.Notice(cloud="aws", kind="stop", noticed_at=utc(T0_MS) + timedelta(microseconds=7), message="it goes"))
        assert ms(node.told[0].noticed_at) == T0_MS == ms(node.told[0].at)

"""The drill's own metadata service is read by the real watch, cloud by cloud."""

from __future__ import annotations

import queue

import pytest

from agent import wire
from agent.interruption.drill_server import LEAD_SECONDS, DrillServer
from agent.interruption.watch import NoticeWatch


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_the_notice_is_there_only_once_it_is_given_and_leaves_the_time_it_says(cloud: str) -> None:
    heard: queue.Queue[wire.Notice] = queue.Queue()
    with DrillServer(cloud, LEAD_SECONDS[cloud]) as server:
        watch = NoticeWatch(cloud, heard.put, base_urls={cloud: server.url}, pace=0.02, problem_seconds=0.0)
        watch.start()
        try:
            with pytest.raises(queue.Empty):
                heard.get(timeout=0.3)
            assert watch.problem is None and watch.current is None
            given = server.give()
            told = heard.get(timeout=60)
            left = watch.seconds_left(told)
        finally:
            watch.close()
    assert told.kind == "terminate" and told.noticed_at >= given
    assert left is not None and LEAD_SECONDS[cloud] - 15 < left <= LEAD_SECONDS[cloud]

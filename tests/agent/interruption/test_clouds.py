"""One poll step per cloud against the stand-in service: what is announced, what is not, and what counts as no answer."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from agent.interruption.aws import TOKEN_SECONDS, Ec2
from agent.interruption.azure import Azure
from agent.interruption.gcp import Gcp
from agent.interruption.service import Service, Unanswered, parse_time
from tests.support.imds import MetadataService, metadata_service

AT = datetime(2026, 11, 30, 12, 2, 0, tzinfo=UTC)
ACTION = json.dumps({"action": "terminate", "time": "2026-11-30T12:02:00Z"})


class Hands:
    """A clock moved by hand, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ec2(service: MetadataService, clock: Hands | None = None) -> Ec2:
    return Ec2(Service(service.url, 30.0), clock or Hands())


@pytest.mark.parametrize(
    "text",
    ["2026-11-30T12:02:00Z", "Mon, 30 Nov 2026 12:02:00 GMT", "30 Nov 2026 12:02:00 GMT", "2026-11-30T14:02:00+02:00"],
)
def test_the_times_of_all_clouds_are_read(text: str) -> None:
    assert parse_time(text) == AT


@pytest.mark.parametrize("text", ["", "  ", "soon", "2026-13-40T99:00:00Z", None, 7, "0 0 0 0"])
def test_what_is_no_time_is_none(text: object) -> None:
    assert parse_time(text) is None


# EC2


def test_ec2_tells_a_spot_interruption_with_its_time() -> None:
    with metadata_service("ec2", {"spot/instance-action": ACTION}) as service:
        (found,) = ec2(service).interruption()
    assert (found.kind, found.at, found.id) == ("terminate", AT, "spot-terminate")
    assert "terminated at 2026-11-30 12:02:00 UTC" in found.message and found.said_at is not None


def test_nothing_announced_is_404_and_one_token_serves_all_questions() -> None:
    with metadata_service("ec2") as service:
        cloud = ec2(service)
        assert [source.poll() for source in cloud.sources()] == [(), (), ()] and cloud.interruption() == ()
        assert service.requests.count("PUT /latest/api/token") == 1


def test_a_token_is_renewed_before_it_is_old_and_replaced_when_it_is_refused() -> None:
    hands = Hands()
    with metadata_service("ec2", {"spot/instance-action": ACTION}) as service:
        cloud = ec2(service, hands)
        cloud.interruption()
        hands.now = 0.95 * TOKEN_SECONDS
        cloud.interruption()
        assert len(service.tokens) == 2
        service.tokens.clear()
        assert len(cloud.interruption()) == 1 and len(service.tokens) == 1


def test_hibernation_leaves_no_time() -> None:
    action = json.dumps({"action": "hibernate", "time": "2026-11-30T12:02:00Z"})
    with metadata_service("ec2", {"spot/instance-action": action}) as service:
        (found,) = ec2(service).interruption()
    assert (found.kind, found.at, found.lead_seconds) == ("hibernate", None, 0.0) and "at once" in found.message


def test_a_rebalance_recommendation_is_told_without_a_time() -> None:
    with metadata_service("ec2", {"events/recommendations/rebalance": '{"noticeTime": "2026-11-30T12:00:00Z"}'}) as service:
        (found,) = ec2(service).rebalance()
    assert (found.kind, found.at, found.lead_seconds) == ("rebalance", None, None)


def test_only_active_scheduled_events_are_told() -> None:
    events = [
        {"Code": "system-reboot", "EventId": "ev-1", "NotBefore": "30 Nov 2026 12:02:00 GMT", "State": "active"},
        {"Code": "instance-stop", "EventId": "ev-2", "NotBefore": "30 Nov 2026 12:02:00 GMT", "State": "completed"},
        {"Code": "instance-stop", "EventId": "ev-3", "State": "canceled"},
        "garbage",
    ]
    with metadata_service("ec2", {"events/maintenance/scheduled": json.dumps(events)}) as service:
        (found,) = ec2(service).maintenance()
        service.values["events/maintenance/scheduled"] = "[]"
        assert ec2(service).maintenance() == ()
    assert (found.id, found.kind, found.at) == ("ev-1", "maintenance", AT) and "rebooted" in found.message


BAD = ['{"action": "terminate"', "[]", "null", '{"time": "x"}', '{"action": "explode", "time": "2026-11-30T12:02:00Z"}']


@pytest.mark.parametrize("text", BAD)
def test_an_interruption_that_cannot_be_read_is_no_answer(text: str) -> None:
    with metadata_service("ec2", {"spot/instance-action": text}) as service, pytest.raises(Unanswered, match="instance-action"):
        ec2(service).interruption()


def test_an_interruption_without_a_readable_time_happens_at_once() -> None:
    with metadata_service("ec2", {"spot/instance-action": '{"action": "stop", "time": "soon"}'}) as service:
        (found,) = ec2(service).interruption()
    assert (found.kind, found.at) == ("stop", None) and "at once" in found.message


@pytest.mark.parametrize("fault", [503, 500, 403, "drop", "hang"])
@pytest.mark.parametrize("path", ["/latest/api/token", "/latest/meta-data/spot"])
def test_a_fault_of_the_service_is_a_clause_and_nothing_announced(fault: Any, path: str) -> None:
    with metadata_service("ec2", {"spot/instance-action": ACTION}, faults={path: fault}) as service:
        asked = Service(service.url, 0.5 if fault == "hang" else 30.0)
        cloud = Ec2(asked, Hands())
        with pytest.raises(Unanswered, match="127.0.0.1"):
            cloud.interruption()
        service.faults.clear()
        asked._timeout = 30.0
        assert len(cloud.interruption()) == 1


def test_a_login_page_instead_of_a_token_is_no_answer() -> None:
    with metadata_service("ec2", faults={"/latest/api/token": "garbage"}) as service, pytest.raises(Unanswered, match="token"):
        ec2(service).interruption()


def test_nobody_there_is_a_clause() -> None:
    with pytest.raises(Unanswered, match="cannot be asked"):
        Ec2(Service("http://127.0.0.1:9", 0.5)).interruption()
    with pytest.raises(Unanswered, match="cannot be asked"):
        Ec2(Service("ftp://127.0.0.1", 0.5)).interruption()


# GCP


def test_gcp_answers_at_once_first_and_then_when_the_node_is_preempted() -> None:
    with metadata_service("gcp") as service:
        cloud = Gcp(Service(service.url, 30.0), poll_seconds=300.0)
        assert cloud.preempted() == ()
        threading.Timer(0.1, lambda: service.values.update({"instance/preempted": "TRUE"})).start()
        begun = time.monotonic()
        (found,) = cloud.preempted()
        assert time.monotonic() - begun < 60
    assert (found.kind, found.at, found.lead_seconds) == ("terminate", None, 30.0)


def test_a_change_between_two_questions_is_answered_at_once() -> None:
    with metadata_service("gcp") as service:
        cloud = Gcp(Service(service.url, 30.0), poll_seconds=60.0)
        cloud.preempted()
        service.values["instance/preempted"] = "TRUE"
        assert len(cloud.preempted()) == 1


def test_without_a_change_the_question_ends_by_itself() -> None:
    with metadata_service("gcp") as service:
        cloud = Gcp(Service(service.url, 30.0), poll_seconds=1.0)
        assert (cloud.preempted(), cloud.preempted()) == ((), ())


@pytest.mark.parametrize(("machine", "lead"), [("projects/1/machineTypes/a3-highgpu-8g", 3600.0), ("projects/1/machineTypes/n1-standard-8", 60.0)])
def test_a_stop_for_maintenance_is_told_an_hour_before_where_the_machine_has_gpus_of_its_own(machine: str, lead: float) -> None:
    values = {"instance/maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE", "instance/machine-type": machine}
    with metadata_service("gcp", values) as service:
        (found,) = Gcp(Service(service.url)).maintenance()
    assert (found.kind, found.lead_seconds) == ("maintenance", lead)


@pytest.mark.parametrize("event", ["NONE", "MIGRATE_ON_HOST_MAINTENANCE"])
def test_a_node_that_is_only_moved_is_not_taken_away(event: str) -> None:
    with metadata_service("gcp", {"instance/maintenance-event": event}) as service:
        assert Gcp(Service(service.url)).maintenance() == ()


@pytest.mark.parametrize("fault", [503, 404, "drop", "hang", "garbage"])
def test_what_is_not_gcps_answer_is_none(fault: Any) -> None:
    with metadata_service("gcp", faults={"/computeMetadata": fault}) as service:
        cloud = Gcp(Service(service.url, 0.3), poll_seconds=0.3)
        for question in (cloud.preempted, cloud.maintenance):
            with pytest.raises(Unanswered):
                question()


def test_another_clouds_machine_answers_gcps_questions_not_at_all() -> None:
    with metadata_service("azure") as service, pytest.raises(Unanswered):
        Gcp(Service(service.url)).preempted()


# Azure


def event(**fields: Any) -> dict[str, Any]:
    return {
        "EventId": "A1", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["node-1"],
        "EventStatus": "Scheduled", "NotBefore": "Mon, 30 Nov 2026 12:02:00 GMT", "EventSource": "Platform", **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "told"), [("Preempt", "terminate"), ("Terminate", "terminate"), ("Reboot", "maintenance"), ("Redeploy", "maintenance")]
)
def test_azure_tells_what_ends_this_machine(kind: str, told: str) -> None:
    with metadata_service("azure") as service:
        service.events = [event(EventType=kind, Resources=["other", "NODE-1"])]
        (found,) = Azure(Service(service.url)).events()
    assert (found.id, found.kind, found.at) == ("A1", told, AT)


@pytest.mark.parametrize("fields", [{"Resources": ["node-10", "other"]}, {"Resources": None}, {"EventType": "Freeze"}, {"EventId": 7}])
def test_what_does_not_end_this_machine_is_not_told(fields: dict[str, Any]) -> None:
    with metadata_service("azure") as service:
        service.events = [event(**fields)]
        assert Azure(Service(service.url)).events() == ()


def test_until_the_service_tells_the_machines_name_its_host_name_counts() -> None:
    with metadata_service("azure", faults={"/metadata/instance/compute/name": 503}) as service:
        service.events = [event()]
        cloud = Azure(Service(service.url), "other")
        assert cloud.events() == () and len(Azure(Service(service.url), "Node-1").events()) == 1
        service.faults.clear()
        assert len(cloud.events()) == 1


def test_a_document_is_read_again_only_when_it_has_changed() -> None:
    with metadata_service("azure") as service:
        service.events = [event()]
        cloud = Azure(Service(service.url))
        first = cloud.events()
        service.events = []
        assert cloud.events() is first
        service.incarnation += 1
        assert cloud.events() == () and service.requests.count("GET /metadata/instance/compute/name") == 1


def test_an_event_that_has_started_happens_at_once() -> None:
    with metadata_service("azure") as service:
        service.events = [event(EventStatus="Started", NotBefore="")]
        (found,) = Azure(Service(service.url)).events()
    assert found.at is None and "at once" in found.message


def test_an_event_is_approved_once() -> None:
    with metadata_service("azure", faults={"/metadata/scheduledevents": 500}) as service:
        cloud = Azure(Service(service.url))
        with pytest.raises(Unanswered, match="approval"):
            cloud.approve(["A1"])
        service.faults.clear()
        cloud.approve(["A1"])
        cloud.approve(["A1", "A2"])
        assert service.approved == ["A1", "A2"]


@pytest.mark.parametrize("fault", [503, 400, "drop", "hang", "garbage"])
def test_what_is_not_azures_document_is_no_answer(fault: Any) -> None:
    with metadata_service("azure", faults={"/metadata/scheduledevents": fault}) as service, pytest.raises(Unanswered):
        Azure(Service(service.url, 0.3)).events()


def test_a_document_without_events_is_no_answer() -> None:
    with metadata_service("azure") as service, pytest.raises(Unanswered, match="list"):
        service.events = None  # type: ignore[assignment]
        Azure(Service(service.url)).events()


def test_a_call_that_waits_is_ended_by_interrupt() -> None:
    with metadata_service("gcp", faults={"/": "hang"}) as service:
        one = Service(service.url, 300.0)
        threading.Timer(0.1, one.interrupt).start()
        begun = time.monotonic()
        with pytest.raises(Unanswered):
            one.ask("/x", {})
        with pytest.raises(Unanswered):
            one.ask("/x", {})
        assert time.monotonic() - begun < 60

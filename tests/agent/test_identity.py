"""`agent.identity` on our own metadata services: configuration first, one cloud's answers, and never late."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from agent import identity, wire
from agent.config import NodeConfig
from agent.identity import Identity, configured, machine_hint, resolve
from tests.support.imds import Cloud, MetadataService, metadata_service

NOTHING: dict[str, str] = {}
CLOUDS = ("aws", "gcp", "azure")


def ask(service: MetadataService, node: NodeConfig | None = None, *, timeout_seconds: float = 60.0) -> Identity:
    """As on a machine of which nothing is known: all three are asked, at one address."""
    endpoints = dict.fromkeys(CLOUDS, service.url)
    return resolve(node or NodeConfig(), endpoints=endpoints, timeout_seconds=timeout_seconds, environ=NOTHING)


def firmware(root: Path, **files: str) -> Path:
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return root


@pytest.fixture
def deaf() -> Iterator[str]:
    """A base URL where connections are taken and nothing is ever said."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("cloud", "fields"),
    [
        ("ec2", ("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot", "i-0123456789abcdef0")),
        ("gcp", ("gcp", "us-central1", "us-central1-a", "a2-highgpu-8g", "on_demand", "1234567890123456789")),
        ("azure", ("azure", "eastus", "1", "Standard_ND96asr_v4", "spot", "02aab8a4-74ef-476e-8182-f6d2ba4166a6")),
    ],
)
def test_each_cloud_tells_all_fields(cloud: Cloud, fields: tuple[str, ...]) -> None:
    with metadata_service(cloud) as service:
        found = ask(service)
    assert (found.cloud, found.region, found.zone, found.instance_type, found.purchase, found.instance_id) == fields
    assert {found.sources[name] for name in identity.METADATA_FIELDS} == {f"{cloud} metadata"}
    assert found.sources["node"] == "hostname"


@pytest.mark.parametrize(
    ("lifecycle", "purchase"),
    [
        ("on-demand", "on_demand"),
        ("spot", "spot"),
        ("scheduled", "on_demand"),
        ("capacity-block", "capacity_block"),
        ("new", None),
    ],
)
def test_the_life_cycle_of_an_ec2_instance_is_its_purchase_option(lifecycle: str, purchase: str | None) -> None:
    with metadata_service("ec2", {"instance-life-cycle": lifecycle}) as service:
        found = ask(service)
    assert found.purchase == purchase
    assert ("purchase" in found.sources) == (purchase is not None)


@pytest.mark.parametrize(
    ("values", "purchase"),
    [
        ({"instance/scheduling/preemptible": "TRUE"}, "spot"),
        ({"instance/scheduling/preemptible": "FALSE"}, "on_demand"),
        ({"instance/scheduling/provisioning-model": "STANDARD"}, "on_demand"),
        ({"instance/scheduling/provisioning-model": "SPOT"}, "spot"),
        ({"instance/scheduling/provisioning-model": "RESERVATION_BOUND"}, None),
        ({"instance/scheduling/preemptible": None}, None),
    ],
)
def test_the_scheduling_of_a_gcp_instance_is_its_purchase_option(values: dict[str, str], purchase: str | None) -> None:
    with metadata_service("gcp", values) as service:
        assert ask(service).purchase == purchase


@pytest.mark.parametrize(
    ("priority", "purchase"), [("Regular", "on_demand"), ("", "on_demand"), ("Spot", "spot"), ("Low", "spot"), (None, None)]
)
def test_the_priority_of_an_azure_machine_is_its_purchase_option(priority: str | None, purchase: str | None) -> None:
    with metadata_service("azure", {"priority": priority}) as service:
        assert ask(service).purchase == purchase


def test_an_azure_machine_outside_all_zones_has_none() -> None:
    with metadata_service("azure", {"zone": ""}) as service:
        found = ask(service)
    assert found.zone is None
    assert "zone" not in found.sources


def test_a_zone_without_an_id_goes_by_its_name() -> None:
    with metadata_service("ec2", {"placement/availability-zone-id": None}) as service:
        assert ask(service).zone == "us-east-1a"


def test_the_configuration_wins_field_by_field() -> None:
    node = NodeConfig(name="gpu-01", purchase="capacity_block", zone="use1-az9")
    with metadata_service("ec2") as service:
        found = ask(service, node)
    assert (found.name, found.purchase, found.zone) == ("gpu-01", "capacity_block", "use1-az9")
    assert (found.instance_type, found.region) == ("p4d.24xlarge", "us-east-1")
    assert found.sources == {
        "node": "configuration",
        "purchase": "configuration",
        "zone": "configuration",
        "cloud": "ec2 metadata",
        "region": "ec2 metadata",
        "instance_type": "ec2 metadata",
    }


def test_fields_of_two_clouds_are_never_mixed() -> None:
    with metadata_service("ec2") as service:
        found = ask(service, NodeConfig(cloud="gcp"))
    assert (found.cloud, found.region, found.instance_type) == ("gcp", None, None)
    assert not any("latest" in request for request in service.requests)


def test_a_fully_configured_node_asks_nobody() -> None:
    node = NodeConfig(cloud="aws", region="r", zone="z", instance_type="t", purchase="spot")
    with metadata_service("ec2") as service:
        ask(service, node)
    assert service.requests == []


def test_an_owned_node_is_on_premises_and_asks_nobody() -> None:
    owned = wire.OnPremises(purchase_usd=Decimal(250000), years=Decimal(4))
    with metadata_service("ec2") as service:
        found = ask(service, NodeConfig(on_premises=owned))
    assert (found.cloud, found.on_premises) == ("on_premises", owned)
    assert service.requests == []


def test_metadata_can_be_switched_off() -> None:
    with metadata_service("ec2") as service:
        endpoints = {"aws": service.url}
        resolve(NodeConfig(metadata=False), endpoints=endpoints, environ=NOTHING)
        resolve(NodeConfig(), endpoints=endpoints, environ={"RACKRATE_METADATA": "off"})
    assert service.requests == []


def test_the_environment_names_the_services_and_only_those_are_asked() -> None:
    with metadata_service("gcp") as service:
        found = resolve(NodeConfig(), timeout_seconds=60, environ={"RACKRATE_GCP_METADATA_URL": service.url + "/"})
    assert found.cloud == "gcp"


def test_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with metadata_service("ec2") as service, metadata_service(None) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert ask(service).cloud == "aws"
    assert proxy.requests == []


def test_a_machine_in_no_cloud_stays_unknown_and_takes_the_name_of_its_host() -> None:
    with metadata_service(None) as service:
        found = ask(service)
    assert found == Identity(name=identity.clean_name(socket.gethostname()), sources={"node": "hostname"})


def test_a_login_page_is_no_cloud() -> None:
    with metadata_service(None, faults={"/": "garbage"}) as service:
        assert ask(service).cloud is None


@pytest.mark.parametrize("fault", [500, 403, 301, "drop"])
def test_a_service_that_fails_is_no_answer(fault: int) -> None:
    with metadata_service("ec2", faults={"/": fault}) as service:
        assert ask(service).cloud is None


def test_text_that_is_no_name_is_not_taken() -> None:
    with metadata_service("azure", {"location": "east\x1b[31mus", "zone": "<b>1</b>"}) as service:
        found = ask(service)
    assert (found.cloud, found.region, found.zone) == ("azure", None, None)


def test_one_field_that_hangs_does_not_take_the_others_with_it() -> None:
    with metadata_service("ec2", faults={"/latest/meta-data/instance-life-cycle": "hang"}) as service:
        found = ask(service, timeout_seconds=4.0)
    assert (found.instance_type, found.region, found.purchase) == ("p4d.24xlarge", "us-east-1", None)


def test_a_cloud_that_answered_is_not_kept_waiting_for_the_others() -> None:
    with metadata_service("azure", faults={"/latest": "hang", "/computeMetadata": "hang"}) as service:
        begin = time.monotonic()
        assert ask(service, timeout_seconds=600).cloud == "azure"
    assert time.monotonic() - begin < 60


def test_services_that_never_answer_cost_the_limit_and_no_more(deaf: str) -> None:
    begin = time.monotonic()
    found = resolve(NodeConfig(), endpoints=dict.fromkeys(CLOUDS, deaf), timeout_seconds=0.2, environ=NOTHING)
    assert found.cloud is None
    assert time.monotonic() - begin < 60


def test_a_resolver_that_hangs_does_not_hold_up_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        release.wait(600)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    begin = time.monotonic()
    try:
        found = resolve(NodeConfig(), endpoints={"aws": "http://metadata.invalid"}, timeout_seconds=0.2, environ=NOTHING)
        assert found.cloud is None
        assert time.monotonic() - begin < 60
    finally:
        release.set()
        for thread in threading.enumerate():
            if thread.name == "identity":
                thread.join(5)


async def test_it_can_be_called_where_an_event_loop_runs() -> None:
    with metadata_service("gcp") as service:
        assert ask(service).cloud == "gcp"


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        ({"sys_vendor": "Amazon EC2"}, "aws"),
        ({"sys_vendor": "Xen", "bios_version": "4.11.amazon"}, "aws"),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gcp"),
        ({"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({"sys_vendor": "Microsoft Corporation"}, None),
        ({"sys_vendor": "Alibaba Cloud"}, "alibaba"),
        ({"sys_vendor": "Supermicro"}, "plain"),
        ({"sys_vendor": "Dell Inc."}, "plain"),
        ({"sys_vendor": "QEMU"}, None),
        ({}, None),
    ],
)
def test_the_firmware_tells_whose_machine_it_is(tmp_path: Path, files: dict[str, str], hint: str | None) -> None:
    assert machine_hint(firmware(tmp_path, **files)) == hint


@pytest.mark.parametrize(
    ("vendor", "asked"),
    [("Amazon EC2", ["aws"]), ("Dell Inc.", []), ("Alibaba Cloud", []), ("QEMU", ["aws", "gcp", "azure"])],
)
def test_only_services_that_may_be_there_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, asked: list[str]
) -> None:
    called: list[str] = []
    monkeypatch.setattr(identity, "ask_all", lambda endpoints, seconds: called.extend(endpoints) or {})
    resolve(NodeConfig(), environ=NOTHING, root=firmware(tmp_path, sys_vendor=vendor))
    assert called == asked


def test_the_firmware_names_the_cloud_where_the_service_is_silent(tmp_path: Path) -> None:
    root = firmware(tmp_path, sys_vendor="Amazon EC2")
    with metadata_service(None) as service:
        found = resolve(NodeConfig(), endpoints={"aws": service.url}, environ=NOTHING, root=root)
    assert (found.cloud, found.sources["cloud"], found.instance_type) == ("aws", "firmware", None)


@pytest.mark.parametrize(
    ("hostname", "name"),
    [("gpu-01", "gpu-01"), ("gpu 01/b", "gpu-01-b"), ("-x", "x"), ("", "localhost"), ("a.ec2.internal.", "a.ec2.internal")],
)
def test_a_host_name_becomes_a_node_name(hostname: str, name: str) -> None:
    assert identity.clean_name(hostname) == name


def test_an_identity_is_put_into_the_nodes_description() -> None:
    info = wire.NodeInfo(node="old", started_at=datetime(2026, 1, 1, tzinfo=UTC), gpus=(), kernel="6.1")
    node = NodeConfig(name="gpu-01", cloud="aws", usd_per_hour="3.10", tags={"team": "vision"})
    described = configured(node).describe(info)
    assert (described.node, described.cloud, described.usd_per_hour) == ("gpu-01", "aws", "3.10")
    assert described.tags == {"team": "vision"}
    assert described.identity_sources["usd_per_hour"] == "configuration"
    assert described.kernel == "6.1"

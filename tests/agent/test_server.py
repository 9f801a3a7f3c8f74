"""`agent.server` and `agent.routes` through the real server: every route, every refusal, streams, prefixes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from agent import wire
from agent.errors import ConfigurationError, ListenRefused, StateFull
from agent.listener import Listener, bind, bind_unix
from agent.routes import MOST_LISTENERS, Health, create_routes
from agent.server import Fleet, create_app
from tests.support.agents import TOKEN, FakeAlerts, FakeMeter, alert, gpu, node_agent, sample, serving

BEARER = {"authorization": f"Bearer {TOKEN}"}
ROUTES = ("/healthz", "/v1/node", "/v1/sample", "/v1/stream", "/v1/history", "/v1/usage", "/v1/alerts", "/metrics", "/schema")
JOB_ROUTES = (
    "/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/{id}/signal", "/v1/jobs/{id}/start", "/v1/jobs/{id}/log", "/v1/jobs/{id}/curves", "/v1/uploads/{sha256}",
    "/v1/mps/{gpu}",
)  # fmt: skip
NODE_ROUTES = ("/v1/drain", "/v1/alerts/pauses", "/v1/alerts/pauses/{id}")


@contextlib.asynccontextmanager
async def client_of(url: str, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, headers={**BEARER, **headers}, trust_env=False, timeout=200) as client:
        yield client


def problem_of(response: httpx.Response) -> wire.Problem:
    assert response.headers["content-type"] == "application/json"
    problem = msgspec.json.decode(response.content, type=wire.Problem)
    assert problem.status == response.status_code
    return problem


async def test_each_route_answers_its_struct() -> None:
    alerts = FakeAlerts()
    alerts.fire(alert())
    agent = node_agent(meter=FakeMeter(), alerts=alerts)
    agent.step(sample(1))
    async with serving(agent) as url, client_of(url) as client:
        for path, kind in (
            ("/healthz", Health),
            ("/v1/node", wire.NodeInfo),
            ("/v1/sample", wire.Sample),
            ("/v1/history?seconds=60", wire.History),
            ("/v1/usage", wire.UsagePage),
            ("/v1/alerts", wire.AlertList),
        ):
            response = await client.get(path)
            assert response.status_code == 200, response.text
            assert response.headers["content-type"] == "application/json"
            assert response.headers["cache-control"] == "no-store"
            msgspec.json.decode(response.content, type=kind)
        assert msgspec.json.decode((await client.get("/v1/sample")).content, type=wire.Sample) == agent.sample
        assert msgspec.json.decode((await client.get("/v1/node")).content, type=wire.NodeInfo) == agent.info


async def test_unknown_values_are_absent_and_decimals_are_strings() -> None:
    agent = node_agent(meter=FakeMeter())
    agent.step(sample(1))
    async with serving(agent) as url, client_of(url) as client:
        assert "power_watts" not in (await client.get("/v1/sample")).text
        assert '"share":"0.333333"' in (await client.get("/v1/usage")).text


async def test_there_is_a_clear_answer_before_the_first_sample() -> None:
    async with serving(node_agent()) as url, client_of(url) as client:
        response = await client.get("/v1/sample")
        assert response.status_code == 503 and "no reading yet" in problem_of(response).error
        assert (await client.get("/healthz")).json()["status"] == "starting"


async def test_usage_is_paged() -> None:
    agent = node_agent(meter=FakeMeter())
    for sequence in range(5):
        agent.step(sample(sequence))
    async with serving(agent) as url, client_of(url) as client:
        page = msgspec.json.decode((await client.get("/v1/usage?after=1&limit=2")).content, type=wire.UsagePage)
        assert [row.sequence for row in page.rows] == [2, 3] and page.last_sequence == 5


@pytest.mark.parametrize(
    "query",
    [
        "/v1/usage?limit=0", "/v1/usage?limit=10001", "/v1/usage?limit=many", "/v1/usage?after=-1", "/v1/usage?after=1.5",
        "/v1/usage?after=99999999999999999999", "/v1/history?seconds=0", "/v1/history?seconds=", "/v1/history?seconds=1e999",
        "/v1/jobs?ended=-1", "/v1/jobs?ended=all", "/v1/jobs/00000000000a/log?offset=-1", "/v1/jobs/00000000000a/log?limit=0",
    ],
)  # fmt: skip
async def test_a_bad_value_is_named_with_what_is_allowed(query: str) -> None:
    async with serving(node_agent()) as url, client_of(url) as client:
        response = await client.get(query)
        assert response.status_code == 400
        assert problem_of(response).error.startswith(query.split("?")[1].split("=")[0] + " has to be a whole number from ")


async def test_wrong_paths_and_methods_are_problems() -> None:
    async with serving(node_agent()) as url, client_of(url) as client:
        for path in ("/", "/v2/node", "/v1/node/x", "/schema/x", "/.schema", "/.schema/openapi.json", "/nodes/x/v1/node"):
            response = await client.get(path)
            assert response.status_code == 404 and "/schema" in problem_of(response).error
        for method in ("POST", "PUT", "DELETE"):
            response = await client.request(method, "/v1/node")
            assert response.status_code == 405 and method in problem_of(response).error


async def test_nothing_but_health_is_answered_without_a_token() -> None:
    wrong = ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": f"Basic {TOKEN}"}, {"authorization": TOKEN})
    async with serving(node_agent(), failures_a_minute=1000) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for path in (*ROUTES[1:], *NODE_ROUTES, "/nope", "/"):
            for headers in wrong:
                for method in ("GET", "POST", "OPTIONS", "DELETE"):
                    response = await client.request(method, path, headers=headers)
                    assert response.status_code == 401, (method, path, headers)
                    assert response.headers["www-authenticate"].startswith("Bearer")
                    assert "token" in problem_of(response).error
        assert (await client.get("/healthz")).status_code == 200


async def test_five_wrong_tokens_a_minute_and_no_more_but_the_right_one_always_passes() -> None:
    async with serving(node_agent()) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        statuses = [(await client.get("/v1/node", headers={"authorization": "Bearer no"})).status_code for _ in range(7)]
        assert statuses == [401] * 5 + [429] * 2
        assert (await client.get("/v1/node")).status_code == 401
        limited = await client.get("/v1/node", headers={"authorization": "Bearer no"})
        assert limited.status_code == 429 and 0 < int(limited.headers["retry-after"]) <= 60
        problem_of(limited)
        assert (await client.get("/v1/node", headers=BEARER)).status_code == 200


async def test_a_forwarded_header_does_not_change_who_is_counted() -> None:
    async with serving(node_agent()) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for number in range(6):
            headers = {"authorization": "Bearer no", "x-forwarded-for": f"10.0.0.{number}"}
            response = await client.get("/v1/node", headers=headers)
        assert response.status_code == 429


async def test_pages_of_a_browser_are_refused_everywhere() -> None:
    async with serving(node_agent(), allowed_hosts=["gpu-01.example"]) as url, client_of(url) as client:
        for path in ROUTES:
            assert (await client.get(path, headers={"origin": "http://127.0.0.1"})).status_code == 403
            refused = await client.get(path, headers={"host": "rebound.example"})
            assert refused.status_code == 403 and "rebound.example" in problem_of(refused).error
        for host in ("localhost", "127.0.0.1:9477", "[::1]:9477", "gpu-01.example:9477"):
            assert (await client.get("/v1/node", headers={"host": host})).status_code == 200


async def test_the_stream_is_ndjson_and_ends_with_the_agent() -> None:
    agent = node_agent()
    agent.step(sample(1))
    async with serving(agent) as url, client_of(url) as client, client.stream("GET", "/v1/stream") as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        assert response.headers["cache-control"] == "no-store"
        lines = response.aiter_lines()
        async with asyncio.timeout(60):
            first, second = [wire.event_decoder.decode(await anext(lines)) for _ in range(2)]
            assert isinstance(first, wire.NodeEvent) and isinstance(second, wire.SampleEvent)
            agent.step(sample(2))
            third = wire.event_decoder.decode(await anext(lines))
            assert isinstance(third, wire.SampleEvent) and third.sample.sequence == 2
            agent.close_streams()
            assert [line async for line in lines] == []


async def test_the_stream_speaks_server_sent_events_where_asked() -> None:
    agent = node_agent()
    agent.step(sample(1))
    async with serving(agent) as url, client_of(url, accept="text/event-stream") as client:
        async with client.stream("GET", "/v1/stream") as response:
            assert response.headers["content-type"] == "text/event-stream"
            lines = response.aiter_lines()
            async with asyncio.timeout(60):
                got = [await anext(lines) for _ in range(4)]
    assert got[1] == got[3] == ""
    decoded = [wire.event_decoder.decode(line.removeprefix("data: ")) for line in (got[0], got[2])]
    assert [type(event) for event in decoded] == [wire.NodeEvent, wire.SampleEvent]


async def test_a_listener_that_went_away_is_noticed_without_a_sample() -> None:
    agent = node_agent()
    async with serving(agent) as url, client_of(url) as client:
        async with client.stream("GET", "/v1/stream") as response:
            await anext(response.aiter_raw())
            assert agent.listeners == 1
        async with asyncio.timeout(60):
            while agent.listeners:
                await asyncio.sleep(0.01)


async def test_a_connection_that_reads_nothing_costs_bounded_memory() -> None:
    agent = node_agent()
    async with serving(agent) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]), limit=1024)
        writer.write(f"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        await reader.readline()
        big = sample(1, *[gpu()] * 400)
        for _ in range(400):
            agent.step(big)
            await asyncio.sleep(0)
        (subscription,) = agent._subscriptions
        assert len(subscription._samples) <= 8
        writer.transport.abort()


async def test_closing_does_not_wait_for_open_streams() -> None:
    agent = node_agent()
    listener = Listener(create_app(agent), bind("127.0.0.1", 0))
    await listener.start()
    async with client_of(listener.url) as client, client.stream("GET", "/v1/stream") as response:
        await anext(response.aiter_raw())
        async with asyncio.timeout(60):
            await listener.close()


async def test_many_nodes_share_one_address() -> None:
    agents = {name: node_agent(name, token=f"{TOKEN}{name}") for name in ("a", "b")}
    agents["a"].step(sample(1, node="a"))
    async with serving(agents, failures_a_minute=100) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for name in agents:
            headers = {"authorization": f"Bearer {TOKEN}{name}"}
            assert (await client.get(f"/nodes/{name}/v1/node", headers=headers)).json()["node"] == name
            assert (await client.get(f"/nodes/{name}/v1/node", headers=BEARER)).status_code == 401
            assert (await client.get(f"/nodes/{name}/healthz")).status_code == 200
            fleet = msgspec.json.decode((await client.get("/", headers=headers)).content, type=Fleet)
            assert [(one.node, one.url) for one in fleet.nodes] == [("a", "/nodes/a/"), ("b", "/nodes/b/")]
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/healthz")).json() == {"status": "ok", "nodes": 2}
        missing = await client.get("/nodes/c/v1/node")
        assert missing.status_code == 404 and "'c'" in problem_of(missing).error
        assert (await client.get("/v1/node", headers={"authorization": f"Bearer {TOKEN}a"})).status_code == 404
        assert (await client.post("/", headers={"authorization": f"Bearer {TOKEN}a"})).status_code == 405
        for path in ("/nodes/a", "/nodes/a/", "/nodes/a/v2"):
            response = await client.get(path, headers={"authorization": f"Bearer {TOKEN}a"})
            assert response.status_code == 404 and path in problem_of(response).error


async def test_the_schema_describes_every_route_and_the_wires_structs() -> None:
    async with serving(node_agent()) as url, client_of(url) as client:
        schema = (await client.get("/schema")).json()
    assert schema["openapi"].startswith("3.1")
    assert sorted(schema["paths"]) == sorted(ROUTES + JOB_ROUTES + NODE_ROUTES)
    structs = schema["components"]["schemas"]
    assert {"NodeInfo", "Sample", "UsagePage", "UsageRow", "AlertList", "History", "Problem", "SampleEvent"} <= set(structs)
    assert structs["UsageRow"]["properties"]["share"]["type"] == "string"
    assert structs["UsageRow"]["description"].startswith("Who held which GPU")
    assert set(structs["Sample"]["properties"]) == set(wire.Sample.__struct_fields__)
    limit = next(one for one in schema["paths"]["/v1/usage"]["get"]["parameters"] if one["name"] == "limit")
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"]) == (1, 10_000)
    assert list(schema["paths"]["/v1/stream"]["get"]["responses"]["200"]["content"]) == ["application/x-ndjson"]
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


async def test_metrics_come_in_the_format_that_was_asked_for() -> None:
    agent = node_agent()
    agent.step(sample(1))
    async with serving(agent) as url, client_of(url) as client:
        plain = await client.get("/metrics")
        openmetrics = await client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert openmetrics.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert openmetrics.text.endswith("# EOF\n") and "# EOF" not in plain.text


async def test_health_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    meter = FakeMeter()
    agent = node_agent(meter=meter)
    async with serving(agent) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        agent.step(sample(1))
        assert (await client.get("/healthz")).json()["status"] == "ok"
        meter.fault = StateFull("no space is left on the device")
        agent.step(sample(2))
        health = (await client.get("/healthz")).json()
    assert health["status"] == "degraded" and "no space is left" in health["problems"][0]
    capsys.readouterr()


async def test_health_names_a_sensor_that_fails() -> None:
    agent = node_agent()
    failing = wire.SensorReport(name="nvml", ok=False, error="driver unresponsive for 7 s")
    agent.step(sample(1, sensors=(wire.SensorReport(name="host", ok=True), failing)))
    async with serving(agent) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        health = (await client.get("/healthz")).json()
    assert health["status"] == "degraded" and health["problems"] == ["nvml: driver unresponsive for 7 s"]


async def test_the_number_of_streams_is_bounded() -> None:
    agent = node_agent()
    held = [agent.subscribe() for _ in range(MOST_LISTENERS)]
    async with serving(agent) as url, client_of(url) as client:
        response = await client.get("/v1/stream")
        assert response.status_code == 503 and "streams of this node are open" in problem_of(response).error
        held[0].close()
        async with client.stream("GET", "/v1/stream") as opened:
            assert opened.status_code == 200


async def test_a_failure_inside_is_a_problem_without_its_details(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(FakeMeter):
        def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage:
            raise RuntimeError("secret detail")

    async with serving(node_agent(meter=Broken())) as url, client_of(url) as client:
        response = await client.get("/v1/usage")
    assert response.status_code == 500 and "secret" not in problem_of(response).error
    assert "secret detail" in capsys.readouterr().err


async def test_a_unix_socket_serves_its_group_and_is_replaced_when_stale(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    bind_unix(path).close()
    listener = Listener(create_app(node_agent()), bind_unix(path))
    await listener.start()
    assert path.stat().st_mode & 0o777 == 0o660 and listener.url == f"unix:{path}"
    with pytest.raises(ListenRefused, match="another process answers"):
        bind_unix(path)
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=BEARER) as client:
        assert (await client.get("/v1/node")).json()["node"] == "n1"
        assert [(await client.get("/v1/node", headers={"authorization": "Bearer x"})).status_code for _ in range(6)][-1] == 429
    await listener.close()
    assert not path.exists()


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    path.write_text("mine")
    with pytest.raises(ListenRefused, match="is no socket"):
        bind_unix(path)
    assert path.read_text() == "mine"


def test_a_port_that_is_taken_names_who_to_look_for() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenRefused, match=f"port {port} on 127.0.0.1 is taken by .*process") as refused:
            bind("127.0.0.1", port)
    assert refused.value.exit_code == 1 and "--listen" in str(refused.value)


async def test_an_answer_in_two_writes_is_not_held_back() -> None:
    """Head and body are two writes: with Nagle's algorithm each answer waits 40 ms for a delayed acknowledgement."""
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        seen.put_nowait(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    server = await asyncio.start_server(note, sock=(bound := bind("127.0.0.1", 0)))
    _, writer = await asyncio.open_connection(*bound.getsockname())
    assert await seen.get() == 1
    writer.close()
    server.close()


def test_an_address_that_others_reach_needs_tls() -> None:
    with pytest.raises(ListenRefused) as refused:
        bind("0.0.0.0", 0)
    assert refused.value.exit_code == 2
    bind("0.0.0.0", 0, tls=True).close()


def test_an_address_that_is_not_here_is_one_sentence() -> None:
    with pytest.raises(ListenRefused, match="cannot listen on 192.0.2.1"):
        bind("192.0.2.1", 0, tls=True)


def test_a_certificate_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    with bind("127.0.0.1", 0) as bound, pytest.raises(ConfigurationError, match="wrong.pem"):
        Listener(create_app(node_agent()), bound, certificate=wrong, key=wrong)


def test_the_framework_brings_nothing_of_what_else_is_installed() -> None:
    """Pydantic and attrs come with Ray and with what tests the schema: their plugins would cost each start a tenth of a second."""
    used = {type(plugin).__name__ for plugin in create_routes().plugins}
    assert "MsgspecDIPlugin" in used and not [name for name in used if name.startswith(("Pydantic", "Attrs"))], used

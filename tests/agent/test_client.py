"""`agent.client` against the real server and against things that are no agent; each error is a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import httpx
import msgspec
import pytest
import trustme

from agent import client as client_module
from agent import client_reading, wire
from agent.client import (
    AgentClient,
    AgentRefused,
    ClientError,
    NotAnAgent,
    Unauthorized,
    Unreachable,
    UnsafeToken,
    WireTooNew,
    WrongCertificate,
    fingerprint_of,
    peer_certificate,
    same_fingerprint,
)
from agent.client_tls import pinned_context
from agent.version import VERSION_HEADER, installed
from tests.support.agents import TOKEN, FakeAlerts, FakeMeter, alert, node_agent, sample, serving
from tests.support.raw_server import answering


def mocked(answer: Callable[[httpx.Request], httpx.Response], url: str = "http://127.0.0.1:9477", **options: str) -> AgentClient:
    return AgentClient(url, TOKEN, client=httpx.AsyncClient(transport=httpx.MockTransport(answer)), **options)


def says(content: bytes, status: int = 200, kind: str = "application/json") -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(status, content=content, headers={"content-type": kind})


def streams(*chunks: bytes) -> Callable[[httpx.Request], httpx.Response]:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return lambda request: httpx.Response(200, content=body(), headers={"content-type": "application/x-ndjson"})


def certificate_files(folder: Path, name: str = "own") -> tuple[Path, Path]:
    authority = trustme.CA()
    issued = authority.issue_cert("some-other-name.example")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    return certificate, key


async def test_each_call_gives_what_the_agent_has() -> None:
    meter, alerts = FakeMeter(), FakeAlerts()
    alerts.fire(alert())
    agent = node_agent(meter=meter, alerts=alerts)
    agent.step(sample(1))
    async with serving(agent) as url, AgentClient(url, TOKEN) as client:
        assert await client.node() == agent.info
        assert await client.sample() == agent.sample
        assert await client.usage(0, 10) == agent.usage(0, 10)
        assert await client.alerts() == agent.alert_list()
        assert await client.history(60) == agent.history_of(60)


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_node_may_live_under_a_path(slash: str) -> None:
    agents = {name: node_agent(name) for name in ("a", "b")}
    async with serving(agents) as url, AgentClient(f"{url}/nodes/b{slash}", TOKEN) as client:
        assert (await client.node()).node == "b"
        async with aclosing(client.stream()) as events:
            first = await anext(events)
        assert isinstance(first, wire.NodeEvent) and first.node.node == "b"


async def test_the_stream_brings_events_as_they_happen_and_ends_with_the_agent() -> None:
    alerts = FakeAlerts()
    agent = node_agent(alerts=alerts)
    agent.step(sample(1))
    seen: list[wire.Event] = []
    async with serving(agent) as url, AgentClient(url, TOKEN) as client:
        async with asyncio.timeout(60):
            async for event in client.stream():
                seen.append(event)
                if len(seen) == 2:
                    alerts.fire(alert())
                    agent.step(sample(2))
                if len(seen) == 4:
                    agent.close_streams()
    assert [type(event) for event in seen] == [wire.NodeEvent, wire.SampleEvent, wire.AlertEvent, wire.SampleEvent]


def lines_of(count: int) -> bytes:
    events = [wire.NodeEvent(node=node_agent().info), *(wire.SampleEvent(sample=sample(number)) for number in range(count))]
    return b"".join(wire.encode_event(event) for event in events)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_events_survive_any_cut_of_the_bytes(size: int) -> None:
    whole = lines_of(5)
    chunks = [whole[start : start + size] for start in range(0, len(whole), size)]
    events = [event async for event in mocked(streams(*chunks)).stream()]
    assert [type(event) for event in events] == [wire.NodeEvent] + [wire.SampleEvent] * 5


async def test_events_and_fields_of_a_newer_agent_are_left_out() -> None:
    newer = b'{"event":"mystery","job":{"id":1}}\n' + wire.encode_event(wire.SampleEvent(sample=sample(3))).replace(
        b'"sequence"', b'"mood":"fine","sequence"'
    )
    client = mocked(streams(lines_of(1) + newer, newer))
    events = [event async for event in client.stream()]
    assert [type(event) for event in events] == [wire.NodeEvent, wire.SampleEvent, wire.SampleEvent, wire.SampleEvent]
    assert client.left_out == 2


async def test_a_newer_wire_is_told_from_a_broken_one() -> None:
    info = msgspec.structs.replace(node_agent().info, version=2, agent_version="7.1.0")
    newer, ours = msgspec.json.encode(info), re.escape(f"Rackrate {installed()}")
    both = rf"9477/ \(Rackrate 7.1.0\) speaks version 2 of the wire, and this program \({ours}\) only 1; update this program"
    with pytest.raises(WireTooNew, match=both):
        await mocked(says(newer)).node()
    with pytest.raises(WireTooNew, match=both):
        [event async for event in mocked(streams(b'{"event":"node","node":' + newer + b"}\n")).stream()]
    with pytest.raises(WireTooNew, match=r"\(a Rackrate of unknown version\) speaks version 9"):
        await mocked(says(b'{"version":9,"quite":"different"}')).sample()


@pytest.mark.parametrize(
    "answer",
    [
        says(b"<html>hello</html>", kind="text/html"),
        says(b"<html>nothing here</html>", 404, "text/html"),
        says(b'{"detail":"Not Found"}', 404),
        says(b'{"error":"there is nothing","status":404}', 404),
        says(b"gone wrong", 502, "text/plain"),
        says(b'{"node":5}'),
        lambda request: httpx.Response(302, headers={"location": "http://127.0.0.1:1/"}),
    ],
)
async def test_something_else_behind_the_url_is_no_agent(answer: Callable[[httpx.Request], httpx.Response]) -> None:
    with pytest.raises(NotAnAgent, match="answers, but is not a Rackrate agent"):
        await mocked(answer).node()
    with pytest.raises(NotAnAgent, match="answers, but is not a Rackrate agent"):
        [event async for event in mocked(answer).stream()]


async def test_an_agent_tells_its_version_with_every_answer() -> None:
    agent = node_agent()
    async with serving(agent) as url, httpx.AsyncClient(trust_env=False) as http:
        for path in ("healthz", "v1/node", "nowhere"):
            assert (await http.get(f"{url}/{path}")).headers[VERSION_HEADER] == installed()


async def test_a_word_that_only_newer_agents_know_is_no_wrong_url() -> None:
    row = '{"sequence":1,"starts_at":"2026-03-01T00:00:00Z","ends_at":"2026-03-01T00:00:10Z","gpu":null,"kind":"new","share":1,"placement":1}'
    page = f'{{"node":"a","meter":"m","rows":[{row}],"placements":[],"last_sequence":1}}'
    sentence = rf"uses a word that this program \({re.escape(f'Rackrate {installed()}')}\) does not know: .*'new'.*; update this program"
    with pytest.raises(WireTooNew, match=sentence):
        await mocked(says(page.encode())).usage()
    told = [event async for event in mocked(streams(lines_of(1))).stream()]
    late = wire.encode_event(told[1]).replace(b'"event":"sample"', b'"event":"notice","notice":{"kind":"new","at":null}')
    with pytest.raises(WireTooNew, match=sentence):
        [event async for event in mocked(streams(lines_of(0), late)).stream()]


@pytest.mark.parametrize(("told", "named"), [("7.1.0", "Rackrate 7.1.0"), ("7\x1b[31m", "a Rackrate of unknown version")])
async def test_who_is_not_understood_is_named_by_the_version_that_he_tells(told: str, named: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b'{"version":9}', headers={"rackrate-agent": told})

    with pytest.raises(WireTooNew, match=re.escape(f"9477/ ({named}) speaks version 9")):
        await mocked(answer).usage()


async def test_a_redirect_is_not_followed_with_the_token() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(307, headers={"location": "http://127.0.0.1:1/v1/node"})

    with pytest.raises(NotAnAgent):
        await AgentClient(
            "http://127.0.0.1:2", TOKEN, client=httpx.AsyncClient(transport=httpx.MockTransport(answer), follow_redirects=True)
        ).node()
    assert asked == ["http://127.0.0.1:2/v1/node"]


async def test_a_server_that_speaks_no_http_is_no_agent() -> None:
    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()
        await reader.read(10_000)

    async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await ssh(reader, writer)

    async with answering(smtp) as url, AgentClient(url, TOKEN) as client:
        with pytest.raises(NotAnAgent, match="does not speak HTTP"):
            await client.node()
    async with answering(ssh) as url, AgentClient(url, TOKEN) as client:
        with pytest.raises(Unreachable, match="closed the connection without an answer"):
            await client.node()


async def test_a_wrong_token_names_the_files_to_compare() -> None:
    async with serving(node_agent()) as url:
        async with AgentClient(url, "wrong", token_file="/home/ann/gpu-01.token") as client:
            with pytest.raises(Unauthorized, match="/home/ann/gpu-01.token .*state directory"):
                await client.node()
            with pytest.raises(Unauthorized):
                await anext(client.stream())
        async with AgentClient(url) as client:
            with pytest.raises(Unauthorized, match="token_file in config.toml"):
                await client.node()


async def test_a_refusal_carries_status_and_the_agents_sentence() -> None:
    async with serving(node_agent()) as url, AgentClient(url, TOKEN) as client:
        with pytest.raises(AgentRefused) as refused:
            await client.sample()
        assert refused.value.status == 503 and "no reading yet" in refused.value.text and url in str(refused.value)
        with pytest.raises(AgentRefused, match="1 to 10000"):
            await client.usage(0, 0)


async def test_nobody_there_names_host_port_and_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with AgentClient(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(Unreachable, match=f"127.0.0.1 port {port} is not reachable: connection refused"):
            await client.node()
        with pytest.raises(Unreachable):
            await anext(client.stream())


async def test_an_agent_that_hangs_is_given_up() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        await reader.read(10_000)

    async with answering(hang) as url, AgentClient(url, TOKEN, timeout_seconds=1.0) as client:
        with pytest.raises(Unreachable, match="nothing came in time"):
            await client.node()


async def test_a_stream_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_module.SILENCE_SECONDS == 10
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 2.0)
    async with serving(node_agent()) as url, AgentClient(url, TOKEN) as client:
        events = client.stream()
        assert isinstance(await anext(events), wire.NodeEvent)
        with pytest.raises(Unreachable, match="nothing came in time"):
            await anext(events)


async def test_a_connection_that_breaks_is_unreachable() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        line = lines_of(0)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + f"{len(line):x}\r\n".encode() + line + b"\r\n")
        await writer.drain()

    async with answering(cut) as url, AgentClient(url, TOKEN) as client:
        events = client.stream()
        assert isinstance(await anext(events), wire.NodeEvent)
        with pytest.raises(Unreachable, match="the connection broke"):
            await anext(events)


async def test_an_endless_line_is_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_reading, "LONGEST_EVENT_BYTES", 1000)
    with pytest.raises(NotAnAgent, match="endless line"):
        [event async for event in mocked(streams(*[b"x" * 100] * 20)).stream()]


@pytest.mark.parametrize("url", ["gpu-01:9477", "ftp://gpu-01", "http://", "http://[::1", "http://h:port", "", "/nodes/a"])
async def test_what_is_no_url_is_said_without_asking_anybody(url: str) -> None:
    async with AgentClient(url, TOKEN) as client:
        with pytest.raises(NotAnAgent, match="it looks like http://HOST:9477"):
            await client.node()


async def test_a_token_never_travels_in_the_clear() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError("something was sent")

    for url in ("http://10.0.0.5:9477", "http://gpu-01.example:9477"):
        with pytest.raises(UnsafeToken, match="use https"):
            await mocked(answer, url).node()
        with pytest.raises(UnsafeToken):
            await anext(mocked(answer, url).stream())
    for url in ("http://localhost:9477", "http://[::1]:9477", "http://127.8.8.8:9477", "https://gpu-01.example:9477"):
        assert (await mocked(says(msgspec.json.encode(node_agent().info)), url).node()).node == "n1"


async def test_a_pinned_certificate_is_trusted_whatever_its_name_and_issuer(tmp_path: Path) -> None:
    certificate, key = certificate_files(tmp_path)
    agent = node_agent()
    agent.step(sample(1))
    async with serving(agent, certificate=certificate, key=key) as url:
        port = int(url.rsplit(":", 1)[1])
        fingerprint = fingerprint_of(await peer_certificate("127.0.0.1", port))
        async with AgentClient(url, TOKEN, fingerprint=fingerprint) as client:
            assert await client.node() == agent.info
            async with aclosing(client.stream()) as events:
                assert isinstance(await anext(events), wire.NodeEvent)
        async with AgentClient(url, TOKEN) as client:
            with pytest.raises(Unreachable, match="certificate is not trusted"):
                await client.node()


async def test_another_certificate_than_the_pinned_one_names_both(tmp_path: Path) -> None:
    certificate, key = certificate_files(tmp_path)
    pinned = "sha256:" + "ab" * 32
    async with serving(node_agent(), certificate=certificate, key=key) as url:
        found = fingerprint_of(await peer_certificate("127.0.0.1", int(url.rsplit(":", 1)[1])))
        async with AgentClient(url, TOKEN, fingerprint=pinned) as client:
            with pytest.raises(WrongCertificate, match=f"{found}.*{pinned}"):
                await client.node()


async def test_a_certificate_that_is_replaced_later_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = certificate_files(tmp_path, "first"), certificate_files(tmp_path, "second")
    async with serving(node_agent(), certificate=first[0], key=first[1]) as url:
        certificate = await peer_certificate("127.0.0.1", int(url.rsplit(":", 1)[1]))
    async with serving(node_agent(), certificate=second[0], key=second[1]) as url:
        client = AgentClient(url, TOKEN, fingerprint=fingerprint_of(certificate))
        context = pinned_context(certificate)
        client._client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(verify=context), trust_env=False)
        with pytest.raises(WrongCertificate):
            await client.node()
        await client.aclose()


async def test_plain_http_and_tls_are_told_apart(tmp_path: Path) -> None:
    certificate, key = certificate_files(tmp_path)
    async with serving(node_agent(), certificate=certificate, key=key) as url:
        async with AgentClient(url.replace("https", "http"), TOKEN) as client:
            with pytest.raises(ClientError):
                await client.node()
    async with serving(node_agent()) as url:
        secure = url.replace("http", "https")
        async with AgentClient(secure, TOKEN, fingerprint="sha256:00") as client:
            with pytest.raises(Unreachable, match="does not speak TLS"):
                await client.node()
        async with AgentClient(secure, TOKEN) as client:
            with pytest.raises(Unreachable, match="does not speak TLS"):
                await client.node()


def test_fingerprints_are_compared_whatever_their_spelling() -> None:
    assert same_fingerprint("sha256:AB:CD", "abcd")
    assert not same_fingerprint("sha256:abcd", "sha256:abce")


async def test_a_client_that_was_lent_stays_open() -> None:
    lent = httpx.AsyncClient(transport=httpx.MockTransport(says(msgspec.json.encode(node_agent().info))))
    async with AgentClient("http://127.0.0.1:9477", client=lent) as client:
        await client.node()
    assert not lent.is_closed
    await lent.aclose()


async def test_plain_http_makes_no_tls_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a TLS context was made")

    monkeypatch.setattr(ssl.SSLContext, "__new__", refuse)
    async with serving(node_agent()) as url, AgentClient(url, TOKEN) as client:
        assert (await client.node()).node == "n1"


async def test_a_connection_is_used_again_and_a_closed_one_replaced() -> None:
    accepted: list[int] = []
    closed: list[int] = []

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(1)
        body = msgspec.json.encode(node_agent().info)
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.append(1)

    async with answering(twice) as url, AgentClient(url, TOKEN) as client:
        for asked in range(1, 5):
            assert (await client.node()).node == "n1"
            while len(closed) < asked // 2:
                await asyncio.sleep(0.001)
    assert len(accepted) == 2


async def test_many_calls_at_once_share_a_few_connections() -> None:
    agent = node_agent()
    async with serving(agent) as url, AgentClient(url, TOKEN) as client:
        assert len(await asyncio.gather(*(client.node() for _ in range(50)))) == 50


async def test_an_answer_that_drips_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.client.WHOLE_SECONDS", 0.1)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"{")
                await writer.drain()
                await asyncio.sleep(0.02)

    async with answering(drip) as url, AgentClient(url, TOKEN, timeout_seconds=1.0) as client:
        with pytest.raises(Unreachable, match="its answer was not whole after"):
            await client.node()

"""`agent.client_jobs` against the real server with a stand-in for the manager."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import resource
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from agent import wire
from agent.client import AgentClient, AgentRefused, NotAnAgent, Unauthorized, Unreachable, fingerprint_of, peer_certificate
from tests.agent.test_client import answering, certificate_files, mocked, says
from tests.support.agents import TOKEN, node_agent, serving
from tests.support.job_service import GPU, JobService

SPEC = wire.JobSpec(command=("python", "train.py"), gpus=2, user="ada", budget_usd=Decimal("40"))


@contextlib.asynccontextmanager
async def asking(jobs: JobService | None) -> AsyncIterator[AgentClient]:
    agent = node_agent()
    agent.jobs = jobs
    async with serving(agent) as url, AgentClient(url, TOKEN) as client:
        yield client


async def test_each_call_gives_what_the_manager_has() -> None:
    jobs = JobService()
    async with asking(jobs) as client:
        plan = await client.dry_run(SPEC)
        assert plan.starts_now and jobs.kept == {}
        job = await client.submit(SPEC)
        assert jobs.specs[job.id] == SPEC
        assert await client.job(job.id) == job and (await client.jobs()).jobs == (job,)
        assert await client.signal(job.id, "USR1") == job
        jobs.write(job.id, "gr\u00fc\u00dfe\n".encode())
        page = await client.log(job.id)
        assert page.text == "gr\u00fc\u00dfe\n" and page.next_offset == 8
        assert (await client.log(job.id, 3, limit=1)).offset == 3
        ended = await client.cancel(job.id, force=True)
        assert ended.cause == "cancelled" and jobs.asked[-1][3] is True
        assert (await client.jobs(0)).jobs == ()
        part = await client.submit(msgspec.structs.replace(SPEC, gang=wire.Gang(id="g", nodes=2, least_nodes=2)), reserve=True)
        assert part.held_until and (await client.start(part.id, "h:29500")).state == "running"
        setting = wire.MpsSetting(active_thread_percentage=Decimal("12.5"))
        assert await client.mps_set(GPU, setting) == await client.mps(GPU)


async def test_what_the_agent_says_against_a_job_is_a_refusal_also_with_404() -> None:
    async with asking(JobService()) as client:
        for call, status, words in (
            (client.job("00000000000z"), 404, "there is no job 00000000000z"),
            (client.job("../../etc/passwd"), 404, "there is nothing at"),
            (client.job("a?b#c"), 404, "is no id of a job"),
            (client.submit(wire.JobSpec(command=())), 400, "the command is empty"),
            (client.mps("GPU-x"), 404, "there is no GPU GPU-x"),
        ):
            with pytest.raises(AgentRefused, match=words) as refused:
                await call
            assert refused.value.status == status
    async with asking(None) as client:
        assert "enabled" in ((await client.jobs()).problem or "")
        with pytest.raises(AgentRefused, match="not run on this node"):
            await client.submit(SPEC)


async def test_other_answers_are_told_apart() -> None:
    with pytest.raises(NotAnAgent):
        await mocked(says(b"<html>", 404, "text/html")).job("a")
    with pytest.raises(NotAnAgent):
        await mocked(says(b'{"id": 5}')).submit(SPEC)
    for status in (500, 502, 503):
        with pytest.raises(Unreachable, match=f"HTTP {status}"):
            await mocked(says(b"Internal Server Error", status, "text/plain")).log("00000000000a")
    async with serving(node_agent()) as url, AgentClient(url, "wrong") as client:
        with pytest.raises(Unauthorized):
            await client.submit(SPEC)


async def test_a_log_is_waited_for() -> None:
    jobs = JobService()
    async with asking(jobs) as client:
        job = await client.submit(SPEC)
        waiting = asyncio.ensure_future(client.log(job.id, wait=25))
        while not jobs.asked or jobs.asked[-1][0] != "wait":
            await asyncio.sleep(0.01)
        jobs.write(job.id, b"hello\n")
        async with asyncio.timeout(60):
            assert (await waiting).text == "hello\n"


def sparse(folder: Path, size: int) -> tuple[Path, str]:
    """A file of `size` zeros that needs no space, and its SHA-256."""
    path = folder / "large"
    with path.open("wb") as file:
        file.truncate(size)
    digest = hashlib.sha256()
    for _ in range(size // 1_048_576):
        digest.update(bytes(1_048_576))
    return path, digest.hexdigest()


@pytest.mark.parametrize("secure", [False, True])
async def test_a_large_upload_is_sent_in_pieces_over_plain_http_and_tls(tmp_path: Path, secure: bool) -> None:
    size = 100 * 1_048_576
    path, digest = sparse(tmp_path, size)
    agent = node_agent()
    agent.jobs = JobService()
    certificate, key = certificate_files(tmp_path) if secure else (None, None)
    async with serving(agent, certificate=certificate, key=key) as url:
        pinned = fingerprint_of(await peer_certificate("127.0.0.1", int(url.rsplit(":", 1)[1]))) if secure else None
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told: list[int] = []
        async with AgentClient(url, TOKEN, fingerprint=pinned) as client:
            sent = await client.upload(digest, path, sent=told.append)
            with pytest.raises(AgentRefused, match="SHA-256 is"):
                await client.upload("0" * 64, path)
            agent.jobs.max_upload_bytes = 1_000_000
            with pytest.raises(AgentRefused, match="larger than the 1,000,000 bytes"):
                await client.upload(digest, path)
    assert sent.bytes == size and told[-1] == size and told == sorted(told) and len(told) > 100
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < size / 2


async def test_an_upload_that_breaks_off_is_unreachable(tmp_path: Path) -> None:
    path, digest = sparse(tmp_path, 8 * 1_048_576)

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1_000)
        writer.transport.abort()

    async with answering(cut) as url, AgentClient(url, TOKEN) as client:
        with pytest.raises(Unreachable, match="not reachable"):
            await client.upload(digest, path)


async def test_an_answer_about_jobs_may_take_longer_than_a_reading() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(2.5)
        body = msgspec.json.encode(wire.JobList(node="n1", jobs=()))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    async with answering(slow) as url, AgentClient(url, TOKEN, timeout_seconds=2.0) as client:
        assert (await client.jobs()).node == "n1"

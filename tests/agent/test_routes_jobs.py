"""`agent.routes_jobs` and `agent.bodies` through the real server, with a stand-in for the manager."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from agent import bodies, wire
from agent.errors import IsolationFault, JobConflict, JobForbidden, JobRefused, JobUnknown, MpsFault
from agent.jobs.actor import Actor
from agent.runtime import NodeAgent
from agent.security import OWNER, Tokens, add_token, ensure_token
from tests.agent.test_server import client_of, problem_of
from tests.support.agents import TOKEN, node_agent, serving
from tests.support.job_service import GPU, JobService

SPEC = {"command": ["python", "train.py"], "gpus": 2, "user": "ada"}


@contextlib.asynccontextmanager
async def asking(jobs: JobService | None) -> AsyncIterator[httpx.AsyncClient]:
    agent = node_agent()
    agent.jobs = jobs
    async with serving(agent) as url, client_of(url) as client:
        yield client


def decoded(response: httpx.Response, kind: type[Any]) -> Any:
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    return msgspec.json.decode(response.content, type=kind)


async def test_a_job_is_submitted_listed_shown_signalled_and_cancelled() -> None:
    jobs = JobService()
    async with asking(jobs) as client:
        job = decoded(await client.post("/v1/jobs", json={**SPEC, "secrets": {"KEY": "hush"}}), wire.Job)
        assert jobs.specs[job.id].gpus == 2 and job.user == "ada" and job.secrets == ("KEY",)
        assert decoded(await client.get(f"/v1/jobs/{job.id}"), wire.Job) == job
        listed = await client.get("/v1/jobs")
        assert decoded(listed, wire.JobList).jobs == (job,) and "hush" not in listed.text
        assert decoded(await client.post(f"/v1/jobs/{job.id}/signal", json={"signal": "USR1"}), wire.Job) == job
        ended = decoded(await client.delete(f"/v1/jobs/{job.id}?force=true"), wire.Job)
        assert ended.cause == "cancelled"
        assert decoded(await client.get("/v1/jobs?ended=0"), wire.JobList).jobs == ()
        again = await client.delete(f"/v1/jobs/{job.id}")
        assert again.status_code == 409 and "has ended already" in problem_of(again).error
    actor = OWNER._replace(peer="127.0.0.1")
    assert jobs.asked == [("submit", job.id, actor), ("signal", job.id, "USR1", actor), ("cancel", job.id, actor, True)]


async def test_a_dry_run_does_nothing_and_a_reservation_waits_for_its_start() -> None:
    jobs = JobService(usd_per_hour=Decimal("1.10"))
    async with asking(jobs) as client:
        plan = decoded(await client.post("/v1/jobs?dry_run=true", json=SPEC), wire.JobPlan)
        assert plan.starts_now and plan.usd_per_hour == Decimal("2.20") and plan.argv == ("python", "train.py")
        assert jobs.kept == {}
        part = {**SPEC, "gang": {"id": "g", "nodes": 2, "least_nodes": 1}}
        job = decoded(await client.post("/v1/jobs?reserve=true", json=part), wire.Job)
        assert job.held_until is not None and job.gang == "g"
        started = decoded(await client.post(f"/v1/jobs/{job.id}/start", json={"endpoint": "h:29500"}), wire.Job)
        assert started.state == "running" and ("start", job.id, "h:29500") in jobs.asked
        both = await client.post("/v1/jobs?reserve=true&dry_run=true", json=part)
        assert both.status_code == 400 and "reserves nothing" in problem_of(both).error


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (JobRefused("9 GPUs are more than the 8 of this node"), 400), (JobForbidden("not as root"), 403),
        (JobUnknown("there is no upload sha256:ab"), 404), (JobConflict("the queue is full"), 409),
        (MpsFault("the daemon is silent"), 409), (IsolationFault("the cgroup cannot be made"), 409),
    ],
)  # fmt: skip
async def test_a_fault_is_answered_with_its_status_and_sentence(fault: Any, status: int) -> None:
    jobs = JobService()
    jobs.refuse = fault
    async with asking(jobs) as client:
        for query in ("", "?dry_run=true", "?reserve=true"):
            response = await client.post(f"/v1/jobs{query}", json=SPEC)
            assert response.status_code == status and problem_of(response).error == str(fault)
    assert jobs.kept == {}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({**SPEC, "gpu": 2}, "unknown key `gpu`; did you mean `gpus`?"),
        ({**SPEC, "zzz": 2}, "unknown key `zzz`; there are command, shell, name"),
        ({"gpus": 2}, "the key `command` is missing"),
        ({**SPEC, "gpus": "two"}, "`gpus`: expected `int`, got `str`"),
        ({**SPEC, "gpus": 1.5}, "`gpus`: expected `int`, got `float`"),
        ({**SPEC, "command": "python train.py"}, "`command`: expected `array`, got `str`"),
        ({**SPEC, "env": {"A": 1}}, "`env[...]`: expected `str`, got `int`"),
        ({**SPEC, "gpu_share": "half"}, "`gpu_share`: invalid decimal string"),
        ({**SPEC, "budget_usd": "NaN"}, "`budget_usd` has to be a number; it is NaN"),
        ({**SPEC, "gang": {"id": "g"}}, "the key `nodes` is missing in `gang`"),
        ([], "the body is wrong: expected `object`, got `array`"),
    ],
)
async def test_a_wrong_spec_is_one_sentence_that_names_the_key(body: Any, sentence: str) -> None:
    jobs = JobService()
    async with asking(jobs) as client:
        response = await client.post("/v1/jobs", json=body)
    assert response.status_code == 400 and problem_of(response).error.startswith(sentence), response.text
    assert jobs.kept == {}


async def test_a_body_has_to_be_json_of_its_kind_and_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobService()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65_536

    async with asking(jobs) as client:
        for content, kind, status, words in (
            (b"{}", "text/plain", 415, "has to be application/json; it is 'text/plain'"),
            (b"{}", "application/x-www-form-urlencoded", 415, "application/json"),
            (b"{", "application/json", 400, "the body is not JSON"),
            (b"\xff{}", "application/json", 400, "the body is not JSON"),
            (b"", "application/json", 400, "the body is not JSON"),
            (b'{"command": ["' + b"x" * 1024 * 1024 + b'"]}', "application/json", 413, "1,048,576 bytes"),
            (endless(), "application/json", 413, "1,048,576 bytes"),
        ):
            response = await client.post("/v1/jobs", content=content, headers={"content-type": kind})
            assert response.status_code == status and words in problem_of(response).error, response.text
        monkeypatch.setattr(bodies, "READ_SECONDS", 0.1)
        hanging = await client.post("/v1/jobs", content=_hang(), headers={"content-type": "application/json"})
        assert hanging.status_code == 408 and "did not come" in problem_of(hanging).error
    assert jobs.kept == {}


async def _hang() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(0.5)
    yield b"}"


@pytest.mark.parametrize(
    "id", ["x", "..%2f..%2fetc%2fpasswd", "ABCDEFGHJKMN", "00000000000a_", "00000000000a%0a", "٠" * 12, "0" * 300]
)
async def test_what_is_no_id_of_a_job_is_never_looked_up(id: str) -> None:
    class Careful(JobService):
        def job(self, id: str) -> wire.Job:
            raise AssertionError(f"{id!r} was looked up")

        log = cancel = signal = start_reserved = job  # type: ignore[assignment]

    async with asking(Careful()) as client:
        for method, path, body in (
            ("GET", "", None), ("DELETE", "", None), ("GET", "/log", None), ("POST", "/signal", {"signal": "USR1"}),
            ("POST", "/start", {"endpoint": "h:1"}),
        ):  # fmt: skip
            response = await client.request(method, f"/v1/jobs/{id}{path}", json=body)
            assert response.status_code in (400, 404), response.text
            problem_of(response)


async def test_a_log_is_read_by_offset() -> None:
    jobs = JobService()
    async with asking(jobs) as client:
        job = decoded(await client.post("/v1/jobs", json=SPEC), wire.Job)
        jobs.write(job.id, b"0123456789")
        page = decoded(await client.get(f"/v1/jobs/{job.id}/log?offset=2&limit=3"), wire.LogPage)
        assert (page.text, page.offset, page.next_offset, page.ended) == ("234", 2, 5, False)
        jobs.first_kept = 4
        page = decoded(await client.get(f"/v1/jobs/{job.id}/log"), wire.LogPage)
        assert (page.first_offset, page.offset, page.text) == (4, 4, "456789")
        for query in ("wait=31", "wait=-1", "wait=nan", "limit=1048577", "attempt=0"):
            wrong = await client.get(f"/v1/jobs/{job.id}/log?{query}")
            assert wrong.status_code == 400 and problem_of(wrong).error.startswith(query.split("=")[0] + " has to be "), (
                wrong.text
            )


class Patient(JobService):
    """Where nothing happens it waits far longer than it was asked to."""

    async def log_grew(self, id: str, attempt: int | None, offset: int, seconds: float) -> None:
        await super().log_grew(id, attempt, offset, seconds * 100 if seconds > 1 else seconds)


async def test_waiting_for_a_log_ends_when_it_grows_when_the_job_ends_and_when_the_client_goes() -> None:
    jobs = Patient()
    async with asking(jobs) as client, asyncio.timeout(120):
        job = decoded(await client.post("/v1/jobs", json=SPEC), wire.Job)
        path = f"/v1/jobs/{job.id}/log?wait=25"
        waiting = asyncio.ensure_future(client.get(path))
        await _until(lambda: ("wait", job.id, 2500.0) in jobs.asked)
        jobs.write(job.id, b"one\n")
        assert decoded(await waiting, wire.LogPage).text == "one\n"
        waiting = asyncio.ensure_future(client.get(path + "&offset=4"))
        await _until(lambda: jobs.asked.count(("wait", job.id, 2500.0)) == 2)
        jobs.end(job.id)
        page = decoded(await waiting, wire.LogPage)
        assert page.ended and page.text == ""
        jobs.change(job.id, state="running")
        waiting = asyncio.ensure_future(client.get(path + "&offset=4"))
        await _until(lambda: jobs.asked.count(("wait", job.id, 2500.0)) == 3)
        waiting.cancel()
        await _until(lambda: ("gone", job.id) in jobs.asked)
        short = decoded(await client.get(f"/v1/jobs/{job.id}/log?wait=0.05&offset=4"), wire.LogPage)
        assert short.text == "" and not short.ended


async def test_waiting_for_a_log_ends_with_the_agent() -> None:
    agent = node_agent()
    agent.jobs = jobs = JobService()
    async with serving(agent) as url, client_of(url) as client:
        job = decoded(await client.post("/v1/jobs", json=SPEC), wire.Job)
        waiting = asyncio.ensure_future(client.get(f"/v1/jobs/{job.id}/log?wait=25"))
        await _until(lambda: ("wait", job.id, 25.0) in jobs.asked)
        agent.close_streams()
        async with asyncio.timeout(60):
            assert not decoded(await waiting, wire.LogPage).ended


async def _until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_an_upload_streams_to_the_manager_and_is_checked() -> None:
    jobs = JobService()
    content = os.urandom(300_000)
    digest = hashlib.sha256(content).hexdigest()
    gzip = {"content-type": "application/gzip"}
    async with asking(jobs) as client:
        sent = decoded(await client.put(f"/v1/uploads/{digest}", content=content, headers=gzip), wire.Uploaded)
        assert sent.upload == f"sha256:{digest}" and sent.bytes == 300_000 and jobs.uploads[digest] == content
        other = await client.put(f"/v1/uploads/{'0' * 64}", content=content, headers=gzip)
        assert other.status_code == 400 and digest in problem_of(other).error
        kind = await client.put(f"/v1/uploads/{digest}", content=content)
        assert kind.status_code == 415 and "application/gzip" in problem_of(kind).error
        for name in ("abc", "Z" * 64, digest.upper(), "..%2f" + digest):
            wrong = await client.put(f"/v1/uploads/{name}", content=content, headers=gzip)
            assert wrong.status_code in (400, 404)
        jobs.max_upload_bytes = 200_000
        large = await client.put(f"/v1/uploads/{digest}", content=content, headers=gzip)
        assert large.status_code == 413 and "200,000 bytes" in problem_of(large).error


async def test_the_sharing_of_a_gpu_is_shown_and_set() -> None:
    async with asking(JobService()) as client:
        assert decoded(await client.get(f"/v1/mps/{GPU}"), wire.MpsState).state == "off"
        state = decoded(await client.put(f"/v1/mps/{GPU}", json={"active_thread_percentage": "50"}), wire.MpsState)
        assert state.active_thread_percentage == 50
        wrong = await client.put(f"/v1/mps/{GPU}", json={"active_thread_percentage": "150"})
        assert wrong.status_code == 400 and "at most 100" in problem_of(wrong).error
        missing = await client.get("/v1/mps/GPU-x")
        assert missing.status_code == 404 and "there is no GPU GPU-x" in problem_of(missing).error


async def test_a_node_that_runs_no_jobs_lists_none_and_says_why() -> None:
    agent = node_agent()
    for simulated, words in ((True, "jobs cannot run on a simulated node"), (False, "`enabled` is false in [jobs]")):
        agent.set_info(msgspec.structs.replace(agent.info, simulated=simulated))
        async with serving(agent) as url, client_of(url) as client:
            listed = decoded(await client.get("/v1/jobs"), wire.JobList)
            assert listed.jobs == () and words in (listed.problem or "")
            refused = await client.post("/v1/jobs", json=SPEC)
            assert refused.status_code == 409 and words in problem_of(refused).error


async def test_a_token_of_a_user_acts_as_that_user_alone(tmp_path: Path) -> None:
    own = ensure_token(tmp_path)
    _, token = add_token(tmp_path, "laptop", "ada")
    agent = node_agent(token=own)
    agent.token_check = Tokens(tmp_path).match
    agent.jobs = jobs = JobService()
    async with serving(agent) as url:
        async with client_of(url, authorization=f"Bearer {token}") as client:
            job = decoded(await client.post("/v1/jobs", json={"command": ["true"]}), wire.Job)
            other = await client.post("/v1/jobs", json={"command": ["true"], "user": "bob"})
            assert other.status_code == 403 and "jobs of ada alone" in problem_of(other).error
        async with client_of(url, authorization=f"Bearer {own}") as client:
            bobs = decoded(await client.post("/v1/jobs", json={"command": ["true"], "user": "bob"}), wire.Job)
        async with client_of(url, authorization=f"Bearer {token}") as client:
            forbidden = await client.delete(f"/v1/jobs/{bobs.id}")
            assert forbidden.status_code == 403 and "belongs to bob" in problem_of(forbidden).error
    assert jobs.asked[0] == ("submit", job.id, Actor("laptop", "ada", "127.0.0.1"))
    assert jobs.asked[1] == ("submit", bobs.id, Actor("node", None, "127.0.0.1"))


async def test_each_node_of_a_fleet_has_its_own_jobs() -> None:
    agents: dict[str, NodeAgent] = {name: node_agent(name) for name in ("a", "b")}
    for name, agent in agents.items():
        agent.jobs = JobService(name)
    async with serving(agents) as url, client_of(url) as client:
        job = decoded(await client.post("/nodes/b/v1/jobs", json=SPEC), wire.Job)
        assert decoded(await client.get("/nodes/a/v1/jobs"), wire.JobList).jobs == ()
        assert decoded(await client.get("/nodes/b/v1/jobs"), wire.JobList).jobs == (job,)
        assert (await client.get(f"/nodes/a/v1/jobs/{job.id}")).status_code == 404


async def test_the_methods_of_a_path_are_named() -> None:
    async with asking(JobService()) as client:
        response = await client.put("/v1/jobs", json=SPEC)
        assert (
            response.status_code == 405
            and problem_of(response).error == "PUT is not answered at /v1/jobs; only GET and POST are"
        )


async def test_the_schema_says_what_is_sent() -> None:
    async with asking(JobService()) as client:
        schema = (await client.get("/schema")).json()
    sent = schema["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert sent == {"$ref": "#/components/schemas/JobSpec"}
    spec = schema["components"]["schemas"]["JobSpec"]
    assert set(spec["properties"]) == set(wire.JobSpec.__struct_fields__) and spec["required"] == ["command"]
    assert spec["additionalProperties"] is False and "Gang" in schema["components"]["schemas"]
    assert list(schema["paths"]["/v1/uploads/{sha256}"]["put"]["requestBody"]["content"]) == ["application/gzip"]
    assert TOKEN not in str(schema)

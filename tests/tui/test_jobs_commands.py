"""`run`, `jobs`, `job …` in this process, against real servers with stand-in managers on loopback."""

from __future__ import annotations

import os
import signal
import tarfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from agent.errors import JobForbidden
from agent.security import OWNER
from tests.support.cli import Done, rackrate, rackrate_here
from tests.support.job_service import START, JobService
from tests.support.job_site import Site, job_site
from tui.commands import follow

KEYS = {
    "id", "name", "state", "cause", "exit_code", "signal", "gpus", "user", "project", "submitted_at", "started_at", "ended_at",
    "cost", "attempt",
}  # fmt: skip


Command = Callable[..., Done]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    services = (JobService("dear", usd_per_hour=Decimal("4")), JobService("cheap", usd_per_hour=Decimal("2.5")))
    with job_site(tmp_path_factory.mktemp("home"), *services, prices={"dear": "32.00", "cheap": "20.00"}) as site:
        yield site


@pytest.fixture
def site(shared: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same two nodes for every test, empty at its start."""
    monkeypatch.setenv("RACKRATE_HOME", str(shared.home))
    shared.empty()
    return shared


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    return lambda *arguments: rackrate_here(capfdbinary, *arguments)


def add(site: Site, node: str = "cheap", **fields: Any) -> wire.Job:
    spec = wire.JobSpec(command=tuple(fields.pop("command", ("python", "train.py"))), name=fields.pop("name", None), gpus=1, user="ada")
    jobs = site.jobs[node]

    def make() -> wire.Job:
        job = jobs.submit(spec, OWNER)
        return jobs.change(job.id, **fields)

    return site.do(make)


def untouched(site: Site) -> bool:
    return not any(jobs.kept or jobs.asked or jobs.uploads for jobs in site.jobs.values())


def test_a_job_goes_where_it_would_start_now_cheapest_first(site: Site, command: Command) -> None:
    done = command("run", "--gpus", "2", "--", "python", "train.py", "--json", "--", "-f")
    assert done.code == 0 and "cheap starts it now, $5.00 an hour: the cheapest of 2 of 2 asked that would" in done.err
    [job] = site.jobs["cheap"].kept.values()
    assert done.out == f"{job.id}\n" and site.jobs["dear"].kept == {}
    spec = site.jobs["cheap"].specs[job.id]
    assert spec.command == ("python", "train.py", "--json", "--", "-f")
    assert spec.node_usd_per_hour == Decimal("20.00") and spec.user


def test_a_node_that_is_taken_is_passed_over_and_one_waits_where_all_are(site: Site, command: Command) -> None:
    site.jobs["cheap"].taken = "job x holds all GPUs"
    done = command("run", "--gpus", "1", "--", "x")
    assert done.code == 0 and "dear starts it now, $4.00 an hour: the only one of 2" in done.err
    site.jobs["dear"].taken = "a foreign process holds GPU 0"
    done = command("run", "--gpus", "1", "--json", "--", "x")
    assert "none of 2 nodes would start it now; it waits on cheap" in done.err and "job x holds all GPUs" in done.err
    record = done.json()
    assert record["state"] == "queued" and record["node"] == "cheap" and record.keys() >= KEYS


def test_a_node_or_a_query_narrows_the_choice(site: Site, command: Command) -> None:
    assert command("run", "--node", "dear", "--", "x").code == 0
    assert command("run", "--on", "node:dear", "--", "x").code == 0
    assert len(site.jobs["dear"].kept) == 2 and not site.jobs["cheap"].kept
    for arguments, words in (
        (("--node", "nobody"), "There is no node named `nobody`"),
        (("--on", "gpu:H100"), "no node is selected by 'gpu:H100'"),
        (("--on", "colour:red"), "unknown key `colour`"),
    ):
        done = command("run", *arguments, "--", "x")
        assert (done.code, done.out) == (2, "") and words in done.err


def test_a_dry_run_prints_everything_and_does_nothing(site: Site, command: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    options = ("--gpus", "2", "--io-weight", "50", "--env", "MODE=offline", "--workdir", str(tmp_path), "--dry-run")
    done = command("run", *options, "--", "python", "train.py", "two words")
    assert done.code == 0 and untouched(site)
    for words in (
        "node           cheap", "starts         now", "its GPUs are on one NUMA node", "0 (GPU-0), 1 (GPU-1)", "0-7",
        "command        python train.py 'two words'", "environment    PATH MODE", "isolation      v2", "$5.0000 an hour",
        "write /sys/fs/cgroup/rackrate/job-x-1/memory.max 1024", "not enforced: io: this host has no io controller", "sends          sha256:",
    ):  # fmt: skip
        assert words in done.out, done.out
    assert "offline" not in done.out
    record = command("run", *options, "--json", "--", "python", "train.py").json()
    assert record["node"] == "cheap" and record["starts_now"] is True and record["usd_per_hour"] == "5.0"
    assert [step["kind"] for step in record["steps"]] == ["mkdir", "write"] and record["workdir"] is None and untouched(site)
    assert record["quote"]["usd_per_hour"] == "5.00" and record["quote"]["expected_usd"] is None


def test_a_dry_run_quotes_what_the_job_would_cost_by_its_limit_and_by_runs_of_before(site: Site, command: Command) -> None:
    options = ("--gpus", "2", "--time-limit", "3h", "--dry-run")
    done = command("run", *options, "--", "python", "train.py")
    assert done.code == 0 and "would run on   cheap: 2 of" in done.out and "at most        $15.00, by its time limit of 3h00m" in done.out
    before = add(site, gpus_wanted=2, state="ended", cause="exit:0", started_at=START, ended_at=START + timedelta(hours=2))
    assert before.state == "ended"
    done = command("run", *options, "--", "python", "train.py")
    assert "expected       $10.00: the run before took 2h00m" in done.out
    found = command("run", *options, "--json", "--", "python", "train.py").json()["quote"]
    assert (found["expected_usd"], found["expected_from"], found["measured"]["runs"]) == ("10.00", "measured", 1)


def test_a_file_says_what_a_job_is(site: Site, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('command = ["python", "train.py"]\ngpus = 2\nname = "tune"\nnode = "dear"\n')
    assert command("run", str(file), "--gpus", "3").code == 0
    [spec] = site.jobs["dear"].specs.values()
    assert (spec.gpus, spec.name, spec.command) == (3, "tune", ("python", "train.py"))
    file.write_text("gpu = 2\n")
    done = command("run", str(file))
    assert done.code == 2 and "job.toml: unknown key `gpu`; did you mean `gpus`?" in done.err


def test_files_go_along_and_secrets_are_never_shown(site: Site, command: Command, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)")
    (tmp_path / "src" / ".rackrateignore").write_text("*.bin\n")
    (tmp_path / "src" / "x.bin").write_text("")
    (tmp_path / "key").write_text("hush-hush")
    done = command("run", "--workdir", str(tmp_path / "src"), "--secret", f"KEY={tmp_path / 'key'}", "--json", "--", "x")
    assert done.code == 0 and "2 files" in done.err
    assert "hush-hush" not in done.out + done.err and done.json()["secrets"] == ["KEY"]
    [(digest, archive)] = site.jobs["cheap"].uploads.items()
    [spec] = site.jobs["cheap"].specs.values()
    assert spec.upload == f"sha256:{digest}" and spec.secrets == {"KEY": "hush-hush"}
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        assert tar.getnames() == [".rackrateignore", "train.py"]


BAD = [
    (("run",), "there is no command to run; it goes after --"),
    (("run", "--"), "there is nothing behind --"),
    (("run", "python"), "python: no such file; a command goes after --"),
    (("run", "python", "train.py"), "unrecognized arguments"),
    (("run", "--gpu", "2", "--", "x"), "unrecognized arguments"),
    (("run", "--gpus", "two", "--", "x"), "--gpus: 'two' is no whole number"),
    (("run", "--gpu-share", "1.5", "--", "x"), "a share is above 0 and below 1"),
    (("run", "--memory", "lots", "--", "x"), "'lots' is no size"),
    (("run", "--time-limit", "soon", "--", "x"), "'soon' is no length of time"),
    (("run", "--budget", "40eur", "--", "x"), "US dollars"),
    (("run", "--workdir", "/nonexistent", "--", "x"), "/nonexistent does not exist"),
    (("run", "--secret", "KEY=/nonexistent", "--", "x"), "/nonexistent is no file"),
    (("run", "--env", "NOT_SET_ANYWHERE", "--", "x"), "it is not set here"),
    (("run", "--after", "nothing-of-this-name", "--", "x"), "--after nothing-of-this-name: there is no job nothing-of-this-name"),
    (("run", "--after", "../../etc", "--", "x"), "that is no job"),
    (("run", "--array", "3", "-f", "--", "x"), "-f follows one log"),
    (("run", "--nodes", "3", "--", "torchrun", "x"), "only 2 of the 3 nodes that are needed would start it now"),
    (("job",), "what about the job?"),
    (("job", "show"), "the following arguments are required: JOB"),
    (("job", "show", "../../../etc/passwd"), "is no id or name of a job"),
    (("job", "cancel", "a/b"), "is no id or name of a job"),
    (("job", "logs", "x", "--tail", "many"), "--tail: 'many' is no whole number"),
    (("job", "signal", "LOUD", "x"), "there is no such signal"),
    (("jobs", "colour:red"), "unknown key `colour`"),
    (("jobs", "run<long"), "`long` is no number"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_wrong_usage_is_one_sentence_and_nothing_is_sent(site: Site, command: Command, arguments: tuple[str, ...], words: str) -> None:
    done = command(*arguments)
    assert done.code == 2 and done.out == "" and words in done.err, done
    assert untouched(site)


def test_what_an_agent_refuses_is_its_sentence(site: Site, command: Command) -> None:
    done = command("run", "--gpus", "9", "--", "x")
    assert done.code == 2 and done.err == "rackrate: dear, cheap: 9 GPUs are more than the 8 of this node.\n"
    for jobs in site.jobs.values():
        jobs.refuse = JobForbidden("root is not allowed to run jobs here\x1b[2J")
    done = command("run", "--node", "dear", "--", "x")
    assert done.code == 1 and done.err == "rackrate: dear: root is not allowed to run jobs here?[2J.\n"
    assert not any(jobs.kept for jobs in site.jobs.values())


def test_a_job_that_waits_for_another_goes_to_its_node(site: Site, command: Command) -> None:
    first, other = add(site, "dear", name="prepare"), add(site, "cheap", name="else")
    assert command("run", "--after", "any:prepare", "--", "x").code == 0
    assert list(site.jobs["dear"].specs.values())[-1].after == (f"any:{first.id}",)
    done = command("run", "--after", first.id, "--after", other.id, "--", "x")
    assert done.code == 2 and "these are on cheap and dear" in done.err


def test_jobs_lists_what_runs_and_waits_on_all_nodes(site: Site, command: Command) -> None:
    running, waiting = add(site, name="tune"), add(site, "dear", state="queued", reason="waits for 2 GPUs\x1b[2J", gpus=())
    ended = add(site, "dear")
    site.do(lambda: site.jobs["dear"].end(ended.id, exit_code=0, cause="oom", evidence="3 kills"))
    done = command("jobs")
    assert done.code == 0 and "tune" in done.out and "waits for 2 GPUs?[2J" in done.out and ended.id not in done.out
    records = command("jobs", "--all", "--json").json()
    assert {record["id"] for record in records} == {running.id, waiting.id, ended.id}
    assert all(record.keys() >= KEYS and set(wire.Job.__struct_fields__) == set(record) for record in records)
    assert {record["node"] for record in records} == {"dear", "cheap"}
    assert next(record for record in records if record["id"] == running.id)["cost"] == "1.25"
    for query, ids in (
        (("state:running",), {running.id}), (("user:ada", "node:dear"), {waiting.id}), (("cause:oom",), {ended.id}),
        (("name:tune",), {running.id}), (("!state:running",), {waiting.id, ended.id}),
    ):  # fmt: skip
        assert {record["id"] for record in command("jobs", "--json", *query).json()} == ids, query
    assert "no jobs run or wait" in command("jobs", "user:bob").err


def test_a_job_is_found_by_id_beginning_and_name(site: Site, command: Command) -> None:
    job, other = add(site, name="tune", warnings=("beware\x1b[2J",), left_behind=("a cgroup",)), add(site, "dear", name="eval")
    for text in (job.id, job.id[:6], "tune"):
        assert command("job", "show", "--json", text).json()["id"] == job.id
    shown = command("job", "show", "tune").out
    for words in (f"id             {job.id}", "state          running", "command        python train.py", "cost           $1.2500",
                  "warning: beware?[2J", "left behind: a cgroup"):  # fmt: skip
        assert words in shown, shown
    twin = add(site, "dear", name="tune")
    done = command("job", "show", "tune")
    assert done.code == 2 and f"tune could be 2 jobs: {twin.id} (tune, running on dear), {job.id} (tune, running on cheap)" in done.err
    site.do(lambda: site.jobs["cheap"].end(job.id))
    assert command("job", "show", "--json", "tune").json()["id"] == twin.id, "the only one that has not ended"
    assert command("job", "show", "--json", "eval").json()["id"] == other.id
    missing = command("job", "show", "nothing")
    assert missing.code == 1 and "there is no job nothing; `rackrate jobs --all` lists them." in missing.err
    site.jobs["cheap"].jobs = lambda ended_limit=200: wire.JobList(node="cheap", jobs=())  # type: ignore[method-assign]
    assert command("job", "show", "--json", job.id).json()["id"] == job.id, "older than what is listed"


def test_a_job_with_everything_is_shown(site: Site, command: Command) -> None:
    attempts = (
        wire.Attempt(number=1, started_at=START, ended_at=START + timedelta(hours=1), cause="oom", evidence="3 kills", cost=Decimal("4.5")),
        wire.Attempt(number=2, started_at=START),
    )
    job = add(
        site, attempts=attempts, attempt=2, limits={"memory": "64.0 GiB"}, enforcement="v2", not_enforced=("io: none here",),
        usage=wire.JobUsage(cpu_seconds=7_300, memory_peak_bytes=2**30, energy_joules=3.6e6, pids_peak=12),
        retries=3, log_bytes=4096, log_dropped_lines=7,
    )  # fmt: skip
    shown = command("job", "show", job.id).out
    for words in ("oom", "$4.50", "3 kills", "runs", "memory        64.0 GiB", "not enforced: io: none here", "cpu time", "2h01m",
                  "memory peak", "1.0G", "1.000 kWh", "pids peak", "2 (3 retries allowed)", "4.0K, 7 lines dropped"):  # fmt: skip
        assert words in shown, (words, shown)


def test_a_job_is_cancelled_and_signalled(site: Site, command: Command) -> None:
    job, other = add(site), add(site, "dear", name="other")
    assert command("job", "signal", "sigusr1", job.id[:5]).out == f"{job.id}  cheap  running\n"
    assert site.jobs["cheap"].asked[-1][:3] == ("signal", job.id, "USR1")
    done = command("job", "cancel", "--force", job.id, "other", "--json")
    assert done.code == 0 and [record["cause"] for record in done.json()] == ["cancelled"] * 2
    assert site.jobs["cheap"].asked[-1][3] is True
    again = command("job", "cancel", other.id)
    assert again.code == 1 and f"dear: job {other.id} has ended already" in again.err
    third = add(site)
    both = command("job", "cancel", other.id, third.id)
    assert both.code == 4 and third.id in both.out


def test_all_parts_of_a_run_over_several_nodes_are_cancelled_by_its_id(site: Site, command: Command) -> None:
    parts = [add(site, node, gang="0gang0000000") for node in ("dear", "cheap")]
    assert command("job", "show", "--json", parts[0].id).json()["gang"] == "0gang0000000"
    over = add(site, "dear", gang="0gang0000000")
    site.do(lambda: site.jobs["dear"].end(over.id, exit_code=1))
    done = command("job", "cancel", "0gang0000000")
    assert done.code == 0 and all(part.id in done.out for part in parts)
    assert all(jobs.asked[-1][0] == "cancel" for jobs in site.jobs.values())


def test_a_run_over_several_nodes_is_one_also_by_the_beginning_of_its_id_and_by_its_name(site: Site, command: Command) -> None:
    parts = [add(site, node, gang="0gang0000000", name="pair") for node in ("dear", "cheap")]
    for text in ("0gang", "pair"):
        shown = command("job", "show", "--json", text)
        assert shown.code == 0 and {one["id"] for one in shown.json()} == {part.id for part in parts}
    add(site, name="pair")
    assert "pair could be 3 jobs" in command("job", "show", "pair").err


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"exit_code": 0, "cause": "exit:0"}, 0), ({"exit_code": 3}, 3), ({"exit_code": None, "cause": "signal:9", "signal": 9}, 137),
        ({"exit_code": 0, "cause": "oom"}, 1), ({"exit_code": None, "cause": "lost"}, 1), ({"exit_code": 0, "cause": "cancelled"}, 1),
    ],
)  # fmt: skip
def test_waiting_ends_with_the_jobs_exit_code(site: Site, command: Command, fields: dict[str, Any], code: int) -> None:
    well, job = add(site), add(site, "dear")
    site.do(lambda: (site.jobs["cheap"].end(well.id, exit_code=0, cause="exit:0"), site.jobs["dear"].end(job.id, **fields)))
    done = command("job", "wait", well.id, job.id)
    assert done.code == code and f"job {job.id} on dear ended" in done.err


def test_a_log_is_printed_whole_or_from_its_end(site: Site, command: Command) -> None:
    job = add(site)
    text = "".join(f"line {number} \u00fc\n" for number in range(50_000))
    site.do(lambda: site.jobs["cheap"].write(job.id, text.encode()))
    assert command("job", "logs", job.id).out == text
    assert command("job", "logs", "--tail", "2", job.id).out == "line 49998 \u00fc\nline 49999 \u00fc\n"
    assert command("job", "logs", "--tail", "0", job.id).out == ""
    assert command("job", "logs", "--tail", "40000", job.id).out == "".join(text.splitlines(keepends=True)[-40_000:])
    assert command("job", "logs", "--tail", "90000", job.id).out == text
    site.do(lambda: site.jobs["cheap"].write(job.id, b"no end\x1b[31m\x1b[2J\xff"))
    assert command("job", "logs", "--tail", "1", job.id).out == "no end\x1b[31m\x1b[2J\ufffd", "no terminal: as it is"
    site.jobs["cheap"].first_kept = 100
    done = command("job", "logs", job.id)
    assert "100 bytes of the log are no longer kept" in done.err and done.out.encode() == (text + "no end\x1b[31m\x1b[2J\ufffd").encode()[100:]
    waiting = add(site, state="queued", attempt=0, reason="waits for 2 GPUs")
    done = command("job", "logs", waiting.id)
    assert (done.code, done.out) == (0, "") and "has not started yet: waits for 2 GPUs" in done.err


def test_on_a_terminal_a_log_can_only_colour(site: Site, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    job = add(site)
    site.do(lambda: site.jobs["cheap"].write(job.id, b"\x1b[31mred\x1b]0;title\x07\x1b[2J\n"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert command("job", "logs", job.id).out == "\x1b[31mred\n\x1b[0m"
    assert command("job", "logs", "--raw", job.id).out == "\x1b[31mred\x1b]0;title\x07\x1b[2J\n"


def later(site: Site, node: str, *steps: Callable[[], Any]) -> threading.Thread:
    """Does each step where the agents live, each once somebody waits for more of a log since the one before."""
    asked = site.jobs[node].asked

    def waits() -> int:
        return sum(one[0] == "wait" for one in asked)

    def run() -> None:
        seen = waits()
        for step in steps:
            site.until(lambda: waits() > seen)
            seen = waits()
            site.do(step)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_following_goes_over_retries_and_ends_with_the_exit_code(site: Site, command: Command) -> None:
    jobs = site.jobs["cheap"]
    logs: dict[int, bytes] = {1: b"one\n", 2: b""}

    def log(id: str, *, attempt: int | None = None, offset: int = 0, limit: int = 65536) -> wire.LogPage:
        whole, job = logs[attempt or 1], jobs.job(id)
        text = whole[offset : offset + limit].decode()
        over = job.state == "ended" or job.attempt > (attempt or 1)
        return wire.LogPage(job=id, attempt=attempt or 1, first_offset=0, offset=offset, next_offset=offset + len(text),
                            text=text, ended=over and offset + len(text) == len(whole))  # fmt: skip

    jobs.log = log  # type: ignore[method-assign]

    def grow(attempt: int, text: bytes) -> Callable[[], None]:
        def do() -> None:
            logs[attempt] += text
            jobs._wake()

        return do

    def retry() -> None:
        jobs.change(next(iter(jobs.kept)), attempt=2)

    def end() -> None:
        jobs.end(next(iter(jobs.kept)), exit_code=7)

    thread = later(site, "cheap", grow(1, b"two\n"), retry, grow(2, b"three\n"), end)
    done = command("run", "--node", "cheap", "-f", "--", "x")
    thread.join()
    assert done.code == 7 and done.out == "one\ntwo\nthree\n" and "attempt 2 begins" in done.err
    assert "ended (exit:7, $1.25)" in done.err


def test_ctrl_c_leaves_cancels_or_goes_on(site: Site, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = site.jobs["cheap"]
    main_thread = threading.main_thread().ident or 0
    job = add(site)
    site.do(lambda: jobs.write(job.id, b"one\n"))

    def interrupt() -> None:
        signal.pthread_kill(main_thread, signal.SIGINT)

    thread = later(site, "cheap", interrupt)
    done = command("job", "logs", "-f", job.id)
    thread.join()
    assert done.code == 130 and done.out == "one\n" and f"left running; `rackrate job logs -f {job.id}`" in done.err

    answers = iter(["go on", "cancel"])
    monkeypatch.setattr(follow, "_ask_person", lambda: next(answers))
    thread = later(site, "cheap", interrupt, lambda: jobs.write(job.id, b"two\n"), interrupt)
    done = command("job", "logs", "-f", job.id)
    thread.join()
    assert done.out == "one\ntwo\n" and done.code == 1 and jobs.kept[job.id].cause == "cancelled"


def test_following_survives_an_agent_that_goes_and_comes_back(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from tui import job_follow

    missed, waits = threading.Event(), job_follow.Follower._wait

    async def noticed(follower: job_follow.Follower, error: Any) -> None:
        missed.set()
        await waits(follower, error)

    monkeypatch.setattr(job_follow, "RETRY_SECONDS", (0.05,))
    monkeypatch.setattr(job_follow.Follower, "_wait", noticed)
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    with job_site(tmp_path, JobService("solo")) as site:
        job = add(site, "solo")
        jobs = site.jobs["solo"]
        site.do(lambda: jobs.write(job.id, b"one\n"))

        def restart() -> None:
            site.until(lambda: any(asked[0] == "wait" for asked in jobs.asked))
            port = site.stop_node("solo")
            assert missed.wait(60), "nobody asked it meanwhile"
            site.do(lambda: jobs.write(job.id, b"two\n"))
            monkeypatch.setattr("tests.support.job_site.bind", lambda host, _: bind_again(port))
            site.config()
            site.do(lambda: jobs.write(job.id, b"three\n"))
            site.do(lambda: jobs.end(job.id, exit_code=0, cause="exit:0"))

        from agent.listener import bind

        def bind_again(port: int) -> Any:
            return bind("127.0.0.1", port)

        thread = threading.Thread(target=restart)
        thread.start()
        done = command("job", "logs", "-f", job.id)
        thread.join()
    assert done.code == 0 and done.out == "one\ntwo\nthree\n", done
    assert "trying again" in done.err and "it answers again" in done.err


def test_a_node_that_does_not_answer_is_said(site: Site, command: Command) -> None:
    job = add(site)
    site.config('[[nodes]]\nname = "gone"\nurl = "http://127.0.0.1:1"\n')
    try:
        done = command("jobs", "--json")
        assert done.code == 4 and [record["id"] for record in done.json()] == [job.id] and "gone: 127.0.0.1 port 1" in done.err
        assert command("job", "show", "--json", job.id).json()["id"] == job.id
        missing = command("job", "show", "nothing")
        assert missing.code == 4 and "there is no job nothing on the nodes that answered; gone did not." in missing.err
        done = command("run", "--", "x")
        assert done.code == 0 and "gone: 127.0.0.1 port 1 is not reachable" in done.err
        done = command("run", "--node", "gone", "--", "x")
        assert done.code == 3 and "no node answered" in done.err
    finally:
        site.config()


def test_commands_run_as_processes_too(site: Site) -> None:
    done = rackrate(site.home, "run", "--node", "dear", "--json", "--", "true")
    assert done.code == 0 and done.json()["node"] == "dear"
    assert rackrate(site.home, "job", "wait", "nothing").code == 1
    assert "--gpu-share" in rackrate(site.home, "run", "--help").out
    assert os.fspath(site.home) not in done.out

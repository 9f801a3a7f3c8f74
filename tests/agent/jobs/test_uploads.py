"""Uploads: kept by their hash alone, unpacked below the job's folder alone, whoever packed them; secrets beside them."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.errors import JobRefused, JobUnknown, StateDirectoryError
from agent.jobs import secrets, users
from agent.jobs.uploads import Uploads
from agent.jobs.users import RunAs
from tests.support.job_node import job_node, sh

ME = RunAs(name="me", uid=os.geteuid(), gid=os.getegid(), groups=(), home="/", shell="/bin/sh", switch=False)


def archive(*members: tuple[str, bytes | str | None], kind: bytes | None = None) -> bytes:
    """(name, content) is a file, (name, "-> target") a link, (name, None) a folder; `kind` makes all something else."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o4755
            if kind is not None:
                info.type = kind
            elif content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content.removeprefix("-> ")
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


async def pieces(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def sent(uploads: Uploads, data: bytes) -> str:
    return (await uploads.receive(hashlib.sha256(data).hexdigest(), pieces(data))).upload


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "uploads", 1_000_000)


async def test_an_archive_comes_back_as_it_was_sent(uploads: Uploads, tmp_path: Path) -> None:
    data = archive(("src", None), ("src/train.py", b"print()"), ("latest", "-> src/train.py"))
    received = await uploads.receive(hashlib.sha256(data).hexdigest(), pieces(data))
    assert (received.files, received.bytes) == (2, len(data))
    uploads.unpack(received.upload, tmp_path / "work", ME)
    assert (tmp_path / "work/latest").read_text() == "print()"
    assert not stat.S_IMODE((tmp_path / "work/src/train.py").stat().st_mode) & stat.S_ISUID


async def test_what_is_not_what_was_said_is_not_kept(uploads: Uploads, tmp_path: Path) -> None:
    data = archive(("a", b"x"))
    for hash, sent_data, sentence in [
        ("0" * 64, data, "not 0000"),
        (hashlib.sha256(b"junk").hexdigest(), b"junk", "no whole tar.gz"),
        (hashlib.sha256(data[:-20]).hexdigest(), data[:-20], "no whole tar.gz"),
        (hashlib.sha256(b"x" * 1_000_001).hexdigest(), b"x" * 1_000_001, "larger than"),
    ]:
        with pytest.raises(JobRefused, match=sentence):
            await uploads.receive(hash, pieces(sent_data, 100_000))
    with pytest.raises(JobUnknown, match="is no upload"):
        await uploads.receive("../../x", pieces(data))
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        archive(("../out", b"x")),
        archive(("/etc/out", b"x")),
        archive(("a/../../out", b"x")),
        archive(("way", "-> .."), ("way/out", b"x")),
        archive(("way", "-> /etc"), ("b", b"x")),
        archive(("in", "-> here"), ("in", b"x")),
        archive(("d", None), ("d/way", "-> ../../x")),
        archive(("pipe", b""), kind=tarfile.FIFOTYPE),
        archive(("disk", b""), kind=tarfile.BLKTYPE),
        archive(("hard", b""), kind=tarfile.LNKTYPE),
    ],
    ids=["up", "absolute", "up-again", "link-up", "link-absolute", "over-a-link", "deep-link", "fifo", "device", "hard-link"],
)
async def test_tricks_with_paths_are_refused(uploads: Uploads, tmp_path: Path, data: bytes) -> None:
    with pytest.raises(JobRefused):
        await sent(uploads, data)
    (tmp_path / "uploads" / f"{hashlib.sha256(data).hexdigest()}.tar.gz").write_bytes(data)  # as if the check had changed
    with pytest.raises(JobRefused):
        uploads.unpack(hashlib.sha256(data).hexdigest(), tmp_path / "jobs", ME)
    assert not (tmp_path / "out").exists() and not Path("/etc/out").exists()


async def test_a_bomb_is_refused_before_it_is_unpacked(uploads: Uploads) -> None:
    with pytest.raises(JobRefused, match="unpacks to more than 8000000 bytes"):
        await sent(uploads, archive(("zeros", bytes(9_000_000))))


async def test_what_nobody_used_for_a_day_goes(uploads: Uploads) -> None:
    kept, old = await sent(uploads, archive(("a", b"1"))), await sent(uploads, archive(("b", b"2")))
    assert uploads.prune([], time.time()) == 0
    assert uploads.prune([kept], time.time() + 90_000) == 1
    assert uploads.path(kept).exists()
    with pytest.raises(JobUnknown, match="send it again"):
        uploads.path(old)


async def test_a_job_runs_in_what_was_sent_as_its_own_user(tmp_path: Path) -> None:
    data = archive(("proj", None), ("proj/run.sh", b"pwd; id -un; touch here && ls; cat $CREDENTIALS_DIRECTORY/k"))
    async with job_node() as node:
        received = await node.jobs.upload(hashlib.sha256(data).hexdigest(), pieces(data))
        user = "daemon" if os.geteuid() == 0 else None
        job = await node.run(sh("sh run.sh"), upload=received.upload, workdir="proj", user=user, secrets={"k": "sesame"})
        words = node.jobs.log(job.id).text.split()
        assert words[0] == str(node.folder / "state/jobs" / job.id / "work/proj") and words[-1] == "sesame"
        assert words[1] == job.user and {"here", "run.sh"} <= set(words), job.evidence
        again = await node.run(sh("touch $RACKRATE_CHECKPOINT_DIR/x; id -G"), user=user)
        assert again.cause == "exit:0", node.jobs.log(again.id).text
        if user:
            assert words[1] == "daemon"
            assert node.jobs.log(again.id).text.split() == [str(gid) for gid in users.look_up(user).groups]


def test_secrets_are_closed_files_of_the_user(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    secrets.keep(job, {"token": "é", "key.pem": "x"})
    runtime = secrets.runtime_folder(tmp_path / "run", "job-0123456789ab-1", ME)
    placed = secrets.place(job, ["token"], runtime, ME)
    assert sorted(os.listdir(placed)) == ["token"] and (placed / "token").read_text() == "é"
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (job / "secrets", job / "secrets/key.pem", runtime, placed, placed / "token")
    ]
    assert modes == [0o700, 0o600, 0o700, 0o700, 0o600]
    secrets.remove_runtime(runtime)
    secrets.forget(job)
    assert not runtime.exists() and not (job / "secrets").exists()
    runtime = secrets.runtime_folder(tmp_path / "run", "job-0123456789ab-2", ME)
    with pytest.raises(StateDirectoryError, match="'token' cannot be given"):
        secrets.place(job, ["token"], runtime, ME)


def test_a_run_time_folder_that_was_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/job-0123456789ab-1").symlink_to(other)
    secrets.remove_runtime(tmp_path / "run/job-0123456789ab-1")
    assert (other / "precious").exists() and not (tmp_path / "run/job-0123456789ab-1").exists()

"""Data from S3 (moto's server): streamed once, kept for the next epoch, and a cut connection costs only what was cut off."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
boto3 = pytest.importorskip("boto3")
server = pytest.importorskip("moto.server", reason="moto[server] is not installed")

from agent.recipes import clicks, s3  # noqa: E402
from agent.recipes.clicks import ClickFolder  # noqa: E402
from agent.recipes.data import loader  # noqa: E402
from agent.recipes.faults import DataFault  # noqa: E402
from agent.recipes.files import files_of, read  # noqa: E402
from agent.recipes.s3 import Bucket  # noqa: E402
from agent.recipes.texts import TextFolder  # noqa: E402
from tests.agent.recipes.small import Watched  # noqa: E402
from tests.agent.recipes.test_language import begun  # noqa: E402
from tests.agent.recipes.test_recommender import write  # noqa: E402
from tests.support.cutting_proxy import CuttingProxy  # noqa: E402

TEXT = "she sells sea shells by the sea shore, " * 100
PLACE = "s3://sets/books"


@pytest.fixture(scope="module")
def moto_port() -> Iterator[int]:
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        yield running.get_host_and_port()[1]
    finally:
        running.stop()


@pytest.fixture
def bucket(moto_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A client of the server, with a bucket of texts and logs in it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{moto_port}", "RACKRATE_CACHE_DIR": str(tmp_path / "cache"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="sets")
    for name in ("one.txt", "deep/two.txt", "three.png"):
        client.put_object(Bucket="sets", Key=f"books/{name}", Body=(name + TEXT).encode())
    yield client
    for one in client.list_objects_v2(Bucket="sets").get("Contents", ()):
        client.delete_object(Bucket="sets", Key=one["Key"])
    client.delete_bucket(Bucket="sets")
    client.close()


def test_its_names_sizes_and_bytes_are_those_of_the_objects(bucket: Any) -> None:
    files = files_of(PLACE)
    assert files.names([".txt"]) == ["deep/two.txt", "one.txt"]
    assert files.size("one.txt") == len("one.txt" + TEXT)
    assert read(files, "one.txt", 3, 4) == b".txt" and read(files, "deep/two.txt") == ("deep/two.txt" + TEXT).encode()
    before = files.version(["one.txt"])
    bucket.put_object(Bucket="sets", Key="books/one.txt", Body=b"another text")
    assert before.startswith("s3-etags:") and files_of(PLACE).version(["one.txt"]) != before


def test_a_recipe_learns_from_it_and_the_second_epoch_comes_from_this_node(bucket: Any, tmp_path: Path) -> None:
    journal = Watched()
    trainer = begun(tmp_path / "kept", journal, data=PLACE, steps=40, held_out=10, learning_rate=0.02)
    trainer.run()
    files = trainer.task.source._files
    assert isinstance(files, Bucket)
    assert 40 * 16 > 2 * len(trainer.task.source), "more than two epochs"
    assert files.fetched_bytes == sum(map(files.size, files.names([".txt"]))), "each object once"
    assert files.hits > len(trainer.task.source) and journal.losses[40] < journal.losses[1] / 2
    assert journal.event("end")["dataset"].startswith("s3-etags:")
    again = Bucket(PLACE)
    assert read(again, "one.txt").startswith(b"one.txt") and again.fetched_bytes == 0, "another process finds it too"


def test_workers_fetch_too(bucket: Any) -> None:
    source = TextFolder(PLACE, 32, 0)
    plain = source.batch(range(8))["tokens"]
    (loaded,) = loader(TextFolder(PLACE, 32, 0), [list(range(8))], 1, pinned=False)
    assert torch.equal(loaded.batch["tokens"], plain)


def test_click_logs_are_streamed_and_the_first_step_needs_but_a_part_of_them(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "COUNTED_BYTES", 0)
    monkeypatch.setattr(s3, "SHORT_BYTES", 0)
    for name in ("a.csv", "b.csv"):
        write(tmp_path / "logs" / name, 20_000, start=len(name))
        bucket.upload_file(str(tmp_path / "logs" / name), "sets", f"clicks/{name}")
    there, here = (ClickFolder(place, 100, 1000, 10_000, 4) for place in ("s3://sets/clicks/", str(tmp_path / "logs")))
    files = there._files
    assert isinstance(files, Bucket)
    order, same = there.order(200, 0), here.order(200, 0)
    numbers = order.step(1)
    assert numbers == same.step(1) and there.samples is None
    assert all(torch.equal(value, there.batch(numbers)[name]) for name, value in here.batch(numbers).items())
    whole = sum(map(files.size, files.names([".csv"])))
    assert files.fetched_bytes < whole / 3
    steps = range(2, 200)
    assert [order.step(step) for step in steps] == [same.step(step) for step in steps]
    assert there.samples is not None and files.fetched_bytes < 1.6 * whole, "all of it once, and where blocks meet"
    fetched = files.fetched_bytes
    again = ClickFolder("s3://sets/clicks/", 100, 1000, 10_000, 4)
    assert again.order(200, 0).step(150) == same.step(150) and again._files.fetched_bytes == 0 and files.fetched_bytes == fetched  # type: ignore[attr-defined]


def test_what_several_ranks_want_at_once_is_fetched_once(bucket: Any) -> None:
    bucket.put_object(Bucket="sets", Key="large/a.bin", Body=bytes(3 << 20))
    ranks = [Bucket("s3://sets/large") for _ in range(4)]
    for one in ranks:
        one.names([".bin"])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: one.piece("a.bin", 5, 2 << 20), ranks))
    assert {len(piece) for piece in found} == {2 << 20} and sum(one.fetched_bytes for one in ranks) == 2 << 20
    for one in ranks:
        one._client.close()


def test_a_cut_connection_is_taken_up_where_it_broke(bucket: Any, moto_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "WAIT_SECONDS", 0.01)
    content = os.urandom(400_000)
    bucket.put_object(Bucket="sets", Key="large/a.bin", Body=content)
    with CuttingProxy(moto_port, cuts=3, after=100_000) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        files = Bucket("s3://sets/large")
        assert read(files, "a.bin") == content
        files._client.close()
        assert proxy.cut == 3
        assert files.fetched_bytes == len(content), "no byte came twice"


def test_a_connection_that_never_holds_ends_in_a_sentence(bucket: Any, moto_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(s3, "WAIT_SECONDS", 0.001)
    bucket.put_object(Bucket="sets", Key="large/a.bin", Body=bytes(200_000))
    with CuttingProxy(moto_port, cuts=99, after=2000) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        files = Bucket("s3://sets/large")
        with pytest.raises(OSError):
            read(files, "a.bin")
        files._client.close()
        assert proxy.cut >= s3.ATTEMPTS
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.name != s3.LOCK], "nothing half is left"


def test_an_object_that_was_replaced_meanwhile_is_an_error_and_never_a_mixture(bucket: Any) -> None:
    files = Bucket(PLACE)
    files.names([".txt"])
    bucket.put_object(Bucket="sets", Key="books/one.txt", Body=b"x" * len("one.txt" + TEXT))
    with pytest.raises(OSError, match="the object was replaced since the data were listed"):
        read(files, "one.txt")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_where_nothing_can_be_kept_it_is_streamed_each_time(bucket: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def full(source: Any, target: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(s3.os, "replace", full)
    files = Bucket(PLACE)
    assert read(files, "one.txt") == read(files, "one.txt") == ("one.txt" + TEXT).encode()
    assert files.hits == 0


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("s3://", "--data s3:// names no bucket: it is written s3://BUCKET/PREFIX."),
        ("s3://nothing/there", "--data s3://nothing/there cannot be listed: An error occurred (NoSuchBucket)"),
        ("s3://sets/empty", "has 0 texts (.txt, .md), which do not give two windows"),
    ],
)
def test_what_is_not_there_is_a_sentence(bucket: Any, data: str, sentence: str) -> None:
    with pytest.raises(DataFault) as wrong:
        TextFolder(data, 32, 0)
    assert sentence in str(wrong.value)


def test_each_user_of_a_node_has_a_folder_that_nobody_else_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACKRATE_CACHE_DIR", raising=False)
    monkeypatch.setattr(s3.tempfile, "gettempdir", lambda: str(tmp_path))
    assert Bucket(PLACE)._folder == tmp_path / f"rackrate-data-{os.getuid()}"
    assert Bucket(PLACE)._folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir()
    Bucket(PLACE)._folder.rmdir()
    (tmp_path / f"rackrate-data-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataFault, match="belongs to somebody else: name another folder for what is kept of S3, with --cache"):
        Bucket(PLACE)


def test_without_boto3_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(DataFault, match="needs boto3, which is not installed here: `pip install boto3`"):
        Bucket(PLACE).names([".txt"])

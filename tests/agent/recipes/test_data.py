"""Order, broken files and images of a folder; the batch that fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from agent.recipes import memory  # noqa: E402
from agent.recipes.data import BrokenFiles, Order, Steps, loader  # noqa: E402
from agent.recipes.faults import DataFault  # noqa: E402
from agent.recipes.images import ImageFolder, MadeImages  # noqa: E402
from agent.recipes.versions import version  # noqa: E402
from tests.agent.recipes.small import Watched, train  # noqa: E402


def test_each_epoch_has_every_sample_once_and_an_order_of_its_own() -> None:
    order = Order(10, 4, seed=1)
    taken = [number for step in range(1, 6) for number in order.step(step)]
    assert sorted(taken[:10]) == sorted(taken[10:]) == list(range(10)) and taken[:10] != taken[10:]
    assert Order(10, 4, seed=1).step(4) == order.step(4), "wherever it begins"
    assert Order(10, 4, seed=2).step(1) != order.step(1)


def test_the_parts_of_the_ranks_are_the_batch() -> None:
    order = Order(100, 8, seed=0)
    parts = [list(Steps(order, slice(4 * rank, 4 * rank + 4), 3, 5)) for rank in (0, 1)]
    assert [one + other for one, other in zip(*parts, strict=True)] == [order.step(step) for step in (3, 4, 5)]


def test_made_images_are_the_same_for_everybody_and_differ_by_class_and_number() -> None:
    one, other = MadeImages(100, 10, 4, 16, 0), MadeImages(100, 10, 4, 16, 0)
    assert torch.equal(one.batch([7, 8])["images"][1], other.batch([8])["images"][0])
    assert one.batch([1, 2, 5])["labels"].tolist() == [1, 2, 1]
    assert not torch.equal(one.batch([1])["images"], one.batch([5])["images"])
    assert MadeImages(100, 10, 4, 16, 1).version != one.version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of 30 images each: dark ones and light ones, in the two formats that need no other package."""
    chance = np.random.default_rng(0)
    for name, light in (("dark", 40), ("light", 200)):
        (tmp_path / "set" / name / "deep").mkdir(parents=True)
        for number in range(30):
            pixels = chance.integers(light - 30, light + 30, (20, 24, 3), dtype=np.uint8)
            if number % 2:
                np.save(tmp_path / "set" / name / f"{number}.npy", pixels)
            else:
                (tmp_path / "set" / name / "deep" / f"{number}.ppm").write_bytes(b"P6\n# made\n24 20\n255\n" + pixels.tobytes())
    return tmp_path / "set"


def test_it_learns_from_a_folder(folder: Path, tmp_path: Path) -> None:
    journal = Watched()
    train(tmp_path / "kept", journal, data=str(folder), steps=12, held_out=12)
    end = journal.event("end")
    assert end["accuracy"] == 1.0 and end["broken_files"] == 0 and end["dataset"].startswith("sha256:")


def test_broken_files_below_the_limit_are_named_and_others_taken_in_their_place(folder: Path, tmp_path: Path) -> None:
    (folder / "dark" / "deep" / "0.ppm").write_bytes(b"P6 24 20 255 too short")
    (folder / "light" / "1.npy").write_bytes(b"nothing of the kind")
    (folder / "light" / "3.npy").write_bytes(b"")
    journal = Watched()
    train(tmp_path / "kept", journal, data=str(folder), steps=8, held_out=12, max_broken=0.1)
    assert journal.event("end")["broken_files"] == 3
    told = sorted(line for line in journal.err.getvalue().splitlines() if "is broken" in line)
    assert told[0] == "rackrate: dark/deep/0.ppm is broken (it is cut off); another sample is taken in its place"
    assert len(told) == 3 and told[1].startswith("rackrate: light/1.npy is broken (") and told[2].startswith("rackrate: light/3.npy")


def test_broken_files_beyond_the_limit_end_it_with_their_names(folder: Path, tmp_path: Path) -> None:
    for file in (folder / "dark").glob("*.npy"):
        file.write_bytes(b"")
    with pytest.raises(DataFault, match=r"^\d of 60 samples (is|are) broken \(dark/\d+\.npy: it is no \.npy file of numbers.*\), and --max-broken 0\.01 allows none: repair or remove "):
        train(tmp_path / "kept", Watched(), data=str(folder), steps=8)


@pytest.mark.parametrize("workers", [0, 1])
def test_where_every_file_is_broken_it_ends(folder: Path, workers: int) -> None:
    for file in folder.glob("*/**/*.*"):
        file.write_bytes(b"")
    source = ImageFolder(str(folder), 16, 0)
    (loaded,) = loader(source, [[0, 1, 2]], workers, pinned=False)
    assert len(loaded.broken) == 60 and not loaded.batch
    with pytest.raises(DataFault, match="60 of 60 samples are broken"):
        BrokenFiles(source, 1.0).met(loaded.broken)


@pytest.mark.parametrize(
    ("inside", "sentence"),
    [
        (None, "does not exist on this node."),
        ("file", "is no folder on this node."),
        ("empty", "has images in no subfolders, and it needs two or more, one a class, with "),
        ("one", "has images in 1 subfolder, and it needs two or more"),
        ("jpeg", "has images that Pillow reads, and it is not installed here: `pip install pillow`."),
    ],
)
def test_a_folder_without_anything_to_learn_is_a_sentence(
    tmp_path: Path, inside: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    monkeypatch.setattr("agent.recipes.images._pillow", lambda: False)
    if inside == "file":
        folder.write_text("")
    elif inside is not None:
        folder.mkdir()
        for name in {"one": ("a/1.npy",), "jpeg": ("a/1.jpg", "b/1.jpg")}.get(inside, ()):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"")
    with pytest.raises(DataFault) as wrong:
        ImageFolder(str(folder), 16, 0)
    assert sentence in str(wrong.value)


def test_the_version_is_the_contents_or_the_dvc_revision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(folder.glob("*/*.npy"))
    before = version(folder, files)
    content = bytearray(files[0].read_bytes())
    content[-1] ^= 1
    files[0].write_bytes(content)
    assert version(folder, files) != before and version(folder, files[::-1]) == version(folder, files)
    monkeypatch.setattr("agent.recipes.versions.HASHED_BYTES", 10)
    assert version(folder, files).startswith("sha256-of-names-and-sizes:")
    noted = "outs:\n- md5: 22a1a2931c8370d3aeedd7183606fd7f.dir\n  size: 14445097\n  path: set\n"
    folder.with_name("set.dvc").write_text(noted)
    assert version(folder, files) == "dvc:22a1a2931c8370d3aeedd7183606fd7f.dir"


# The batch that fits


@pytest.mark.parametrize(("most", "capacity", "found"), [
    (100, 1000 + 100 * 10, 90), (300, None, 256), (1, None, 1), (0, None, 0), (0, 5000, 0), (511, 1000 + 5110, 480),
])  # fmt: skip
def test_the_batch_that_fits_has_been_tried(most: int, capacity: int | None, found: int) -> None:
    """A device on which `most` samples of 10 bytes fit beside 1,000 bytes."""
    tried = []

    def attempt(size: int) -> int | None:
        tried.append(size)
        return 1000 + 10 * size if size <= most else None

    assert memory.fitting(attempt, 512, 1000, capacity) == found
    assert not found or found in tried
    assert len(tried) <= 11


def test_what_fits_is_told_as_pieces_and_as_a_batch() -> None:
    told = memory.sentence(3, piece=128, ranks=2, accumulate=2, fits=50, where="a T4")
    assert told == (
        "out of memory in step 3: 128 samples at once on a T4 do not fit, 50 would: use --accumulate 8 (same result, slower),"
        " or --batch-size 200."
    )
    assert memory.sentence(1, 1, 1, 1, 0, "a T4").startswith("out of memory in step 1: 1 sample at once on a T4 do not fit, and not")


@pytest.mark.parametrize(("error", "is_one"), [
    (torch.OutOfMemoryError("CUDA out of memory"), True), (MemoryError(), True), (RuntimeError("shapes do not match"), False),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"), True),
])  # fmt: skip
def test_which_errors_mean_that_memory_is_out(error: BaseException, is_one: bool) -> None:
    assert memory.is_out_of_memory(error) is is_one

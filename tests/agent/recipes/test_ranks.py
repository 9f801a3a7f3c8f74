"""Which rank gets which device and which part of a batch."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from torch.distributed import elastic, run  # noqa: E402

from agent.recipes import entry, torchrun  # noqa: E402
from agent.recipes.faults import WrongSettings  # noqa: E402
from agent.recipes.ranks import Ranks, choose, ranks  # noqa: E402
from agent.recipes.vision import Vision  # noqa: E402


@pytest.mark.parametrize(("device", "local", "world", "gpus", "found"), [
    ("auto", 0, 1, 0, "cpu"), ("auto", 1, 2, 2, "cuda:1"), ("cpu", 3, 4, 2, "cpu"), ("cuda", 0, 1, 8, "cuda:0"),
])  # fmt: skip
def test_each_rank_has_a_device_of_its_own(device: str, local: int, world: int, gpus: int, found: str) -> None:
    assert str(choose(device, local, world, gpus)) == found


def test_more_ranks_than_gpus_is_a_sentence() -> None:
    with pytest.raises(WrongSettings) as wrong:
        choose("auto", 0, 4, 2)
    assert str(wrong.value) == (
        "there are 4 ranks on this node and 2 GPUs: a rank needs a GPU of its own; start 2 with --nproc-per-node, or use --device cpu."
    )
    with pytest.raises(WrongSettings, match="torch sees no GPU here"):
        choose("cuda", 0, 1, 0)


def test_a_batch_that_the_ranks_cannot_share_is_a_sentence() -> None:
    assert Ranks(2, 4, torch.device("cpu")).part(16) == slice(8, 12)
    assert [Ranks(rank, 4, torch.device("cpu"), tensor=2).part(16) for rank in range(4)] == [slice(0, 8)] * 2 + [slice(8, 16)] * 2
    with pytest.raises(WrongSettings, match="--batch-size 3 cannot be shared by 2 groups of 2 tensor ranks; make it a multiple of 2"):
        Ranks(0, 4, torch.device("cpu"), tensor=2).part(3)
    with pytest.raises(WrongSettings, match="--batch-size 16 cannot be shared by 3 ranks; make it a multiple of 3"):
        Ranks(0, 3, torch.device("cpu")).part(16)


def test_an_environment_that_is_not_torchruns_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(WrongSettings, match="the environment variable WORLD_SIZE is 'two'"), ranks("cpu"):
        pass


GONE = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.7]:32946: Connection reset by peer. This is"
    " typically caused by a remote worker hanging or bugs in the application."
)


def raising(error: Exception) -> Any:
    def call(*_: object) -> None:
        raise error

    return call


def test_a_rank_that_loses_another_says_so_in_one_sentence_without_its_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(entry, "_train", raising(RuntimeError(GONE)))
    assert entry.main(Vision, "vision", []) == 1
    assert capsys.readouterr().err == (
        "rackrate: recipe vision (rank 1): another rank has ended or does not answer, and its own log says why"
        " (Read error [10.0.0.7]:32946: Connection reset by peer).\n"
    )
    monkeypatch.setattr(entry, "_train", raising(RuntimeError("size mismatch")))
    with pytest.raises(RuntimeError, match="size mismatch"):
        entry.main(Vision, "vision", [])


@pytest.mark.parametrize(("error", "said"), [
    (elastic.rendezvous.RendezvousTimeoutError(), "RendezvousTimeoutError"),
    (elastic.rendezvous.RendezvousConnectionError("The connection to the C10d store has failed.\nSee inner"),
     "The connection to the C10d store has failed"),
    (torch.distributed.DistNetworkError("the client socket has timed out\nmore"), "the client socket has timed out"),
])  # fmt: skip
def test_nodes_that_do_not_meet_are_one_sentence(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("torch.distributed.elastic")
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(run, "main", raising(error))
    assert torchrun.main([]) == 1
    assert capsys.readouterr().err == f"rackrate: the nodes of the run did not meet, or have lost each other: {said}.\n"

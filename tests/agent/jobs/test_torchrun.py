"""Launchers of torch elastic are recognised, fit into the grace, and get the rendezvous of a run over nodes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from agent.jobs import torchrun
from agent.wire import Gang

GANG = Gang(id="run-1", nodes=2, least_nodes=1, endpoint="10.0.0.5:29400", host_here=True, processes_per_node=4)


@pytest.mark.parametrize(
    ("command", "name", "at"),
    [
        (("torchrun", "t.py"), "torchrun", 1),
        (("/opt/venv/bin/torchrun", "--nproc-per-node", "2", "t.py"), "torchrun", 1),
        (("python3.11", "-u", "-m", "torch.distributed.run", "t.py"), "torch.distributed.run", 4),
        (("python", "-X", "dev", "-m", "torch.distributed.launch", "t.py"), "torch.distributed.launch", 5),
        (("env", "A=1", "nohup", "torchrun", "t.py"), "torchrun", 4),
        (("uv", "run", "torchrun", "t.py"), "torchrun", 3),
        (("accelerate", "launch", "t.py"), "accelerate launch", 2),
    ],
)
def test_launchers_are_recognised(command: tuple[str, ...], name: str, at: int) -> None:
    assert torchrun.recognise(command) == torchrun.Launcher(name, at)


@pytest.mark.parametrize(
    "command",
    [
        ("python", "t.py", "torchrun"),
        ("echo", "torchrun"),
        ("python", "-m", "mymodule"),
        ("accelerate", "config"),
        ("./torchrun.sh",),
    ],
)
def test_what_only_mentions_a_launcher_is_none(command: tuple[str, ...]) -> None:
    assert torchrun.recognise(command) is None


def test_a_launcher_in_a_shell_text_is_recognised() -> None:
    assert torchrun.recognise(("cd x && torchrun t.py",), shell=True) == torchrun.Launcher("torchrun", None)
    assert torchrun.recognise(("accelerate   launch t.py",), shell=True) == torchrun.Launcher("accelerate launch", None)
    assert torchrun.recognise(("cat my-torchrun.log",), shell=True) is None


@pytest.mark.parametrize(("grace", "shutdown"), [(30.0, 25), (20.0, 15), (4.0, 3), (0.5, 1), (10_000.0, 600)])
def test_the_workers_time_fits_into_the_grace(grace: float, shutdown: int) -> None:
    assert torchrun.stop_environment(grace)["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == str(shutdown)


@pytest.mark.parametrize(
    ("command", "env", "warned"),
    [
        (("torchrun", "--shutdown_timeout=30", "t.py"), {}, True),
        (("torchrun", "--shutdown-timeout", "29", "t.py"), {}, False),
        (("torchrun", "t.py"), {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "60"}, True),
        (("torchrun", "t.py"), {"PET_SHUTDOWN_TIMEOUT": "10"}, False),
        (("python", "t.py", "--shutdown-timeout", "90"), {}, False),
        (("torchrun", "t.py"), {}, False),
    ],
)
def test_only_a_time_out_that_the_user_chose_too_long_is_warned_of(
    command: tuple[str, ...], env: dict[str, str], warned: bool
) -> None:
    said = torchrun.grace_warning(command, shell=False, env=env, grace_seconds=30.0)
    assert (said is not None) is warned


@pytest.mark.parametrize(
    ("command", "head", "tail"),
    [
        (("torchrun", "--nproc-per-node", "2", "t.py", "-x"), ("torchrun",), ("--nproc-per-node", "2", "t.py", "-x")),
        (("python", "t.py", "-x"), ("python", "-m", "torch.distributed.run"), ("t.py", "-x")),
        (("python", "-m", "pkg.train", "-x"), ("python", "-m", "torch.distributed.run"), ("-m", "pkg.train", "-x")),
        (("python", "-c", "print()"), ("python", "-m", "torch.distributed.run"), ("--no-python", "python", "-c", "print()")),
        (("./train.sh", "a"), ("torchrun",), ("--no-python", "./train.sh", "a")),
    ],
)
def test_the_rendezvous_stands_in_front_of_the_script(
    command: tuple[str, ...], head: tuple[str, ...], tail: tuple[str, ...]
) -> None:
    made = torchrun.gang_argv(command, GANG)
    assert made[: len(head)] == head and made[-len(tail) :] == tail
    options = made[len(head) : len(made) - len(tail)]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given == {
        "--nnodes": "1:2", "--nproc-per-node": "4", "--rdzv-backend": "c10d", "--rdzv-endpoint": "10.0.0.5:29400",
        "--rdzv-id": "run-1", "--rdzv-conf": "join_timeout=60,last_call_timeout=15,is_host=1", "--max-restarts": "3",
    }  # fmt: skip


def test_the_workers_of_a_launcher_are_counted() -> None:
    assert torchrun.processes_here(("torchrun", "--nproc-per-node=4", "t.py"), shell=False, gpus=0, gang=None) == 4
    assert torchrun.processes_here(("torchrun", "--nproc-per-node", "gpu", "t.py"), shell=False, gpus=8, gang=None) == 8
    assert torchrun.processes_here(("python", "t.py"), shell=False, gpus=8, gang=None) == 1
    assert torchrun.processes_here(("python", "t.py"), shell=False, gpus=0, gang=GANG) == 4


def test_torch_knows_the_options_and_the_variables_that_are_used_here() -> None:
    """Against the source of the torch that is installed: names change between releases (to import it takes long)."""
    found = find_spec("torch")
    assert found is not None and found.origin is not None
    folder = Path(found.origin).parent / "distributed"
    options = (folder / "run.py").read_text()
    for option in torchrun.gang_argv(("x",), GANG)[1::2]:
        assert option.startswith("--") and f'"{option}"' in options, option
    assert '"--signals-to-handle"' in options and '"--shutdown-timeout"' in options
    assert 'f"PET_{dest.upper()}"' in (folder / "argparse_util.py").read_text()
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in (folder / "launcher/api.py").read_text()
    assert "TORCHELASTIC_SIGNALS_TO_HANDLE" in (folder / "elastic/multiprocessing/api.py").read_text()


def test_a_run_over_nodes_without_torch_stays_as_it_is() -> None:
    plain = Gang(id="run-1", nodes=2, least_nodes=2, processes_per_node=0)
    command = ("python3", "-m", "agent.recipes.sweep", "sweep.json")
    assert torchrun.gang_argv(command, plain) == command
    assert torchrun.gang_faults(command, shell=False, gang=plain) == []
    assert torchrun.gang_faults(command, shell=False, gang=Gang(id="r", nodes=1, least_nodes=1, processes_per_node=0))
    assert torchrun.processes_here(command, shell=False, gpus=2, gang=plain) == 1

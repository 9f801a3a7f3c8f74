"""`rackrate run --recipe`: what is sent, what is refused, and a real one on a real agent."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.jobs.torchrun import gang_argv, gang_faults
from agent.wire import Gang
from tests.support.cli import ROOT, Done, rackrate_here, write_config
from tests.support.job_agent import JobAgent
from tui import recipes
from tui.errors import WrongUsage
from tui.jobspec import read
from tui.workdir import pack

TORCH = importlib.util.find_spec("torch")
TINY = {"model": "small", "width": 8, "image_size": 16, "classes": 4, "samples": 64, "batch_size": 16, "held_out": 16, "threads": 1}


def spec(options: dict[str, Any], file: str | None = None) -> Any:
    return read(options, [], file, environ={}, now=datetime(2026, 11, 30, tzinfo=UTC))


def test_a_recipe_is_a_command_and_its_settings_are_flags() -> None:
    wanted = spec({"recipe": "vision", "set": ["steps=50", "data=/data/a b", "flip=false", "learning-rate=1e-3"]})
    assert wanted.recipe == wanted.spec.name == "vision" and wanted.folder is None
    assert wanted.spec.command == (
        "python3", "-m", "agent.recipes.vision", "--steps=50", "--data=/data/a b", "--flip=false", "--learning-rate=1e-3",
    )  # fmt: skip
    assert spec({"recipe": "vision", "name": "mine"}).spec.name == "mine"


def test_more_gpus_on_one_node_are_ranks_and_of_more_nodes_the_agents_say_where_they_meet() -> None:
    many = spec({"recipe": "vision", "gpus": "4"}).spec.command
    assert many[:6] == ("python3", "-m", "agent.recipes.torchrun", "--standalone", "--nproc-per-node", "4")
    assert many[6:] == ("-m", "agent.recipes.vision")
    over = spec({"recipe": "vision", "gpus": "4", "nodes": "2"}).spec.command
    assert over == ("python3", "-m", "agent.recipes.torchrun", "-m", "agent.recipes.vision")
    gang = Gang(id="run-1", nodes=2, least_nodes=2, endpoint="10.0.0.5:29400", processes_per_node=4)
    assert gang_faults(over, shell=False, gang=gang) == []
    started = gang_argv(over, gang)
    assert started[:5] == (*over[:3], "--nnodes", "2:2") and started[-2:] == over[-2:]
    assert started.count("-m") == 2, "the launcher that ends in one sentence, and the recipe"
    assert spec({"recipe": "vision", "gpus": "1"}).spec.command == ("python3", "-m", "agent.recipes.vision")


def test_a_file_names_a_recipe_and_its_settings_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('recipe = "vision"\nset = { steps = 9, deterministic = true, momentum = 0.5 }\ngpus = 1\n')
    command = spec({}, str(tmp_path / "job.toml")).spec.command
    assert command[2:] == ("agent.recipes.vision", "--steps=9", "--deterministic=true", "--momentum=0.5")
    (tmp_path / "job.toml").write_text('recipe = "vision"\nset = { steps = [9] }\n')
    with pytest.raises(WrongUsage, match=r"job\.toml: `set` steps: '\[9\]' has to be a whole number"):
        spec({}, str(tmp_path / "job.toml"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recipe": "visoin"}, "--recipe visoin: there is no such recipe; did you mean vision?"),
        ({"recipe": "../vision"}, "--recipe ../vision: there is no such recipe; did you mean vision?"),
        ({"set": ["steps=4"]}, "--set goes with --recipe."),
        ({"recipe": "vision", "set": ["steps"]}, "--set steps: it is written KEY=VALUE, as in --set steps=5000."),
        ({"recipe": "vision", "set": ["stepz=4"]}, "--set stepz: the recipe vision has no such setting; did you mean steps?"),
        ({"recipe": "compress", "set": ["checkpoint-dir=/x"]}, "--set checkpoint-dir: the recipe compress has no such setting; did you mean out?"),
        ({"recipe": "vision", "set": ["steps=x"]}, "--set steps: 'x' has to be a whole number."),
        ({"recipe": "vision", "set": ["flip=perhaps"]}, "--set flip: 'perhaps' has to be true or false."),
        ({"recipe": "vision", "set": ["data=a\nb"]}, "--set data: 'a\\nb' has to be a text."),
        ({"recipe": "vision", "workdir": "."}, "--workdir does not go with --recipe, which brings its own program."),
        ({"recipe": "vision", "chdir": "x"}, "--chdir does not go with --recipe, which brings its own program."),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(WrongUsage) as wrong:
        spec(options)
    assert str(wrong.value) == sentence


def test_every_recipe_has_its_settings_beside_it_and_a_title() -> None:
    assert "vision" in recipes.names()
    for name in recipes.names():
        work = [recipes.FOLDER / f"{name}_{part}.py" for part in ("task", "run")]
        assert (recipes.FOLDER / f"{name}.py").is_file() and any(path.is_file() for path in work), name
        assert recipes.title(name).endswith(".") and "device" in recipes.defaults(name)


def test_what_is_sent_is_the_program_alone_and_always_the_same(tmp_path: Path) -> None:
    found = set()
    for number in (1, 2):
        with recipes.program() as folder:
            assert {path.name for path in folder.iterdir()} == {"agent"}
            assert {path.name for path in (folder / "agent").iterdir()} == {"__init__.py", "recipes"}
            found.add(pack(folder, tmp_path / f"{number}.tar.gz").sha256)
    assert len(found) == 1


def test_saying_what_there_is_imports_no_recipe_and_no_torch() -> None:
    script = (
        "import sys; from tui import recipes; recipes.show('list', as_json=True)\n"
        "assert not {'torch', 'agent.recipes'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)


# On a node


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobAgent]:
    with JobAgent(tmp_path_factory.mktemp("agent")) as made:
        yield made


@pytest.fixture
def command(
    agent: JobAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Done]:
    write_config(tmp_path / "home", agent.listed())
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path / "home"))
    return lambda *arguments: rackrate_here(capfdbinary, *arguments)


def python(folder: Path, *options: str) -> str:
    """A PATH on which `python3` is this one, with these options."""
    folder.mkdir()
    (folder / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(options)} "$@"\n')
    (folder / "python3").chmod(0o755)
    return f"PATH={folder}:{os.environ['PATH']}"


def test_the_list_and_the_settings_are_shown(command: Callable[..., Done]) -> None:
    assert "vision      An image classifier: " in command("run", "--recipe", "list").out
    assert command("run", "--recipe", "vision", "--set", "list").out == (recipes.FOLDER / "vision.toml").read_text()
    (vision,) = (one for one in command("run", "--recipe", "list", "--json").json() if one["recipe"] == "vision")
    assert vision["settings"]["flip"] is True
    wrong = command("run", "--set", "list")
    assert (wrong.code, wrong.err) == (2, "rackrate: --set goes with --recipe; `--recipe list` names the recipes.\n")


@pytest.mark.skipif(TORCH is None, reason="the extra `train` is not installed")
def test_a_recipe_runs_from_what_was_sent_and_keeps_its_checkpoints(
    command: Callable[..., Done], agent: JobAgent, tmp_path: Path
) -> None:
    sets = [word for key, value in {**TINY, "steps": 4}.items() for word in ("--set", f"{key}={value}")]
    assert TORCH is not None and TORCH.origin is not None
    packages = f"PYTHONPATH={Path(TORCH.origin).parents[1]}"  # with -S: torch is found, and an editable Rackrate is not
    environment = ("--env", python(tmp_path / "bin", "-S"), "--env", packages)
    done = command("run", "--recipe", "vision", *sets, *environment, "-f")
    assert done.code == 0, done
    lines = [json.loads(line) for line in done.out.splitlines() if not line.startswith("rackrate: ")]  # that torch is slow to load
    assert [line.get("event", line.get("step")) for line in lines] == ["start", 1, 2, 3, 4, "end"]
    job = agent.jobs()[0]
    assert job["name"] == "vision" and (job["cause"], job["exit_code"]) == ("exit:0", 0)
    assert len(list(agent.state.glob("jobs/*/**/step-000000004/state.pt"))) == 1


def test_a_node_without_torch_says_so_in_one_sentence(command: Callable[..., Done], tmp_path: Path) -> None:
    done = command("run", "--recipe", "vision", "--env", python(tmp_path / "bin", "-S"), "-f")
    assert done.code == 1 and "Traceback" not in done.out, done
    (line,) = (one for one in done.out.splitlines() if not one.endswith(" ..."))  # that torch is slow to load
    assert line.startswith("rackrate: recipe vision: ") and "has no torch (No module named 'torch'); install it there" in line

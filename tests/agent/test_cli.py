"""`rackrate-agent` as it is typed: what it prints where, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from agent import cli, config, security, state
from agent.client import AgentClient, Unauthorized
from agent.config import AgentConfig
from agent.errors import ListenRefused
from agent.jobs.actor import Actor
from agent.version import installed
from tests.support.imds import metadata_service

ROOT = Path(__file__).parents[2]
COMMANDS = [
    line.split()
    for line in ("run", "init", "token", "token add", "token list", "token revoke", "doctor", "simulate", "unit")
]
HEAVY = {"msgspec", "asyncio", "httpx", "litestar", "psutil", "cryptography", "importlib.metadata", "ssl", "json"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("RACKRATE_HOME", str(folder))
    monkeypatch.setenv("RACKRATE_METADATA", "off")
    return folder


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line; gives the exit code, stdout and stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        try:
            code = cli.main(argv)
        except SystemExit as end:
            code = int(end.code or 0)
        return (code, *capsys.readouterr())

    return run


Said = Callable[..., tuple[int, str, str]]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **functions: object) -> None:
    """A module that the command imports lazily, replaced as a whole."""
    module = ModuleType(name)
    module.__dict__.update(functions)
    monkeypatch.setitem(sys.modules, name, module)
    parent, _, child = name.rpartition(".")
    monkeypatch.setattr(sys.modules[parent], child, module, raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[AgentConfig]:
    """What `run` hands to the daemon, which is not started."""
    configs: list[AgentConfig] = []
    stand_in(monkeypatch, "agent.daemon", run=configs.append)
    return configs


# -- help, version, usage


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(said: Said, command: list[str]) -> None:
    code, out, err = said(*command, "--help")
    assert (code, err) == (0, "")
    assert "examples:" in out
    assert "rackrate-agent " + command[0] in out


def test_help_imports_nothing_that_costs_time() -> None:
    program = (
        "import sys\nbefore = set(sys.modules)\nfrom agent.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(ended.stderr.split())
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("agent.")} == {
        "agent.cli", "agent.errors", "agent.interruption", "agent.interruption.drill_options",
    }  # fmt: skip


def test_the_version_is_printed_to_stdout(said: Said) -> None:
    code, out, err = said("--version")
    assert (code, err) == (0, "")
    assert out == f"rackrate-agent {installed()}\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["run", "--lissten", "x"], "unrecognized arguments: --lissten x"),
        (["run", "--listen", "127.0.0.1:1", "--socket", "s"], "not allowed with argument"),
        (["simulate", "--nodes", "0"], "'0' is no whole number of at least 1"),
        (["simulate", "--gpus", "-1"], "-1"),
        (["simulate", "--history", "soon"], "'soon' is no length of time; write seconds, or 15m, 24h, 1d"),
        (["token"], "the following arguments are required: ACTION"),
    ],
)
def test_wrong_usage_is_one_sentence_and_2(said: Said, argv: Sequence[str], words: str) -> None:
    code, out, err = said(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("rackrate-agent: ")
    assert words in err
    assert "--help`" in err
    assert err.count("\n") == 1


# -- run


def test_run_starts_the_daemon_with_what_was_typed(said: Said, home: Path, started: list[AgentConfig], tmp_path: Path) -> None:
    code, out, err = said("run", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "s"), "--simulate", "4xT4")
    assert (code, out, err) == (0, "", "")
    (configured,) = started
    assert (configured.listen, configured.state_dir, configured.simulate) == ("127.0.0.1:0", tmp_path / "s", "4xT4")


def test_run_reads_the_file_that_is_named(said: Said, home: Path, started: list[AgentConfig], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('socket = "a.sock"\n[node]\nname = "gpu-01"\n')
    assert said("run", "--config", str(tmp_path / "a.toml"))[0] == 0
    assert (started[0].node.name, started[0].socket) == ("gpu-01", tmp_path / "a.sock")


def test_a_faulty_file_ends_with_2_before_anything_starts(said: Said, home: Path, started: list[AgentConfig]) -> None:
    home.mkdir()
    (home / "agent.toml").write_text("[node]\nnam = 'gpu-01'\n")
    code, out, err = said("run")
    assert (code, out, started) == (2, "", [])
    assert err.startswith(f"rackrate-agent: {home}/agent.toml: node.nam: unknown key (did you mean 'name'?)")
    assert err.count("\n") == 1


def test_to_listen_to_others_without_tls_ends_with_2(said: Said, home: Path, started: list[AgentConfig]) -> None:
    code, _, err = said("run", "--listen", "0.0.0.0:9477")
    assert (code, started) == (2, [])
    assert "would send the token unencrypted" in err


def test_a_second_agent_on_the_same_directory_ends_with_1(said: Said, home: Path, tmp_path: Path) -> None:
    with state.claim(tmp_path / "s"):
        code, out, err = said("run", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "s"))
    assert (code, out) == (1, "")
    assert err.startswith(f"rackrate-agent: another agent (process {os.getpid()}) runs on the state directory {tmp_path / 's'}")


@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        (ListenRefused("the port is taken"), 2, "the port is taken"),
        (PermissionError(13, "Permission denied", "/etc/x"), 1, "permission denied: /etc/x"),
        (KeyboardInterrupt(), 1, "interrupted"),
    ],
)
def test_a_fault_is_one_sentence_and_the_exit_code_of_its_kind(
    said: Said, home: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException, code: int, sentence: str
) -> None:
    def fail(configured: AgentConfig) -> None:
        raise fault

    stand_in(monkeypatch, "agent.daemon", run=fail)
    assert said("run") == (code, "", f"rackrate-agent: {sentence}\n")


# -- init


def test_init_makes_a_node_that_others_can_add(said: Said, home: Path) -> None:
    code, out, err = said("init", "--name", "gpu-01", "--host", "127.0.0.1")
    print_of = security.fingerprint(home / "agent/tls.crt")
    assert code == 0
    assert out == f"rackrate add https://127.0.0.1:9477 --token-file gpu-01.token --fingerprint {print_of}\n"
    assert f"scp 127.0.0.1:{home}/agent/token gpu-01.token" in err
    loaded = config.load(None, os.environ)
    assert (loaded.node.name, loaded.listen, loaded.tls) == ("gpu-01", "127.0.0.1:9477", True)
    assert loaded.tls_key is not None
    for secret in (loaded.tls_key, home / "agent/token"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_init_twice_changes_nothing(said: Said, home: Path) -> None:
    first = said("init", "--host", "127.0.0.1")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    second = said("init", "--host", "127.0.0.1")
    assert second[:2] == first[:2]
    assert "which was there already" in second[2]
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_a_name_of_the_host_is_allowed_and_every_interface_listened_on(said: Said, home: Path) -> None:
    assert said("init", "--host", "gpu-01.example.org")[0] == 0
    written = tomllib.loads((home / "agent.toml").read_text())
    assert (written["listen"], written["allowed_hosts"]) == ("0.0.0.0:9477", ["gpu-01.example.org"])


def test_an_address_that_is_not_this_machines_is_behind_a_translation(said: Said, home: Path) -> None:
    code, out, _ = said("init", "--host", "2001:db8::5", "--name", "n")
    assert code == 0
    assert out.startswith("rackrate add https://[2001:db8::5]:9477 --token-file n.token ")
    assert tomllib.loads((home / "agent.toml").read_text())["listen"] == "[::]:9477"


def test_a_file_that_was_there_is_kept_and_what_it_lacks_is_said(said: Said, home: Path) -> None:
    home.mkdir()
    (home / "agent.toml").write_text('listen = "127.0.0.1:1234"\n[node]\nname = "mine"\n')
    code, out, err = said("init", "--host", "127.0.0.1")
    assert code == 0
    assert "https://127.0.0.1:1234 --token-file mine.token" in out
    assert f'    [tls]\n    certificate = "{home}/agent/tls.crt"\n' in err
    assert (home / "agent.toml").read_text() == 'listen = "127.0.0.1:1234"\n[node]\nname = "mine"\n'


def test_init_gives_a_new_certificate_when_asked(said: Said, home: Path) -> None:
    first = said("init", "--host", "127.0.0.1")[1]
    renewed = said("init", "--host", "127.0.0.1", "--new-certificate")[1]
    assert renewed != first
    assert renewed.rstrip().endswith(security.fingerprint(home / "agent/tls.crt"))


def test_a_certificate_of_ones_own_is_used_and_not_replaced(said: Said, home: Path, tmp_path: Path) -> None:
    own = security.make_certificate(tmp_path, ["gpu-01"])
    home.mkdir()
    (home / "agent.toml").write_text(f'[tls]\ncertificate = "{own.path}"\nkey = "{tmp_path}/tls.key"\n')
    assert said("init", "--host", "127.0.0.1")[1].rstrip().endswith(own.fingerprint)
    code, _, err = said("init", "--new-certificate")
    assert code == 2
    assert "a certificate of your own" in err


@pytest.mark.parametrize(("option", "value"), [("--host", "a b"), ("--host", ""), ("--name", "gpu 01"), ("--name", "../x")])
def test_init_refuses_what_no_client_could_use(said: Said, home: Path, option: str, value: str) -> None:
    code, out, err = said("init", option, value)
    assert (code, out) == (2, "")
    assert err.startswith(f"rackrate-agent: {option}: {value!r} is ")
    assert not (home / "agent.toml").exists()


def test_init_writes_the_file_and_the_directory_that_are_named(said: Said, home: Path, tmp_path: Path) -> None:
    code, out, _ = said("init", "--config", str(tmp_path / "x/n.toml"), "--state-dir", str(tmp_path / 'a "b'), "--json")
    assert code == 0
    made = json.loads(out)
    assert made["configuration"] == str(tmp_path / "x/n.toml")
    assert made["configuration_written"] is True
    assert config.load(tmp_path / "x/n.toml", os.environ).state_dir == tmp_path / 'a "b'


# -- token


def test_a_token_is_printed_once_listed_and_revoked(said: Said, home: Path) -> None:
    code, token, err = said("token", "add", "laptop")
    identifier = security.token_id(token.strip())
    assert code == 0
    assert identifier is not None
    assert identifier in err
    code, listing, _ = said("token", "list")
    assert code == 0
    assert identifier in listing
    assert "laptop" in listing
    assert token.strip() not in listing
    assert said("token", "revoke", identifier)[0] == 0
    assert said("token", "list") == (0, "", "")


def test_tokens_as_json_have_the_same_keys(said: Said, home: Path) -> None:
    security.ensure_token(state.prepare(home / "agent"))
    added = json.loads(said("token", "add", "laptop", "--json")[1])
    listed = json.loads(said("token", "list", "--json")[1])["tokens"]
    assert [(one["name"], one["user"]) for one in listed] == [("node", None), ("laptop", None)]
    assert {key: added[key] for key in ("id", "name", "user", "created_at")} == listed[1]
    assert json.loads(said("token", "revoke", "laptop", "--json")[1]) == {"revoked": {"id": added["id"], "name": "laptop"}}


def test_a_token_may_belong_to_a_user(said: Said, home: Path) -> None:
    code, token, err = said("token", "add", "laptop", "--user", "ada")
    assert code == 0 and "jobs of ada alone" in err
    assert security.Tokens(home / "agent").match(token.strip()) is None  # the node's own is not made yet
    security.ensure_token(home / "agent")
    assert security.Tokens(home / "agent").match(token.strip()) == Actor("laptop", "ada")
    assert "jobs of ada" in said("token", "list")[1]
    code, out, err = said("token", "add", "x", "--user", "../root")
    assert (code, out) == (2, "") and "'../root' is no name of a user" in err


def test_a_token_that_is_not_there_cannot_be_revoked(said: Said, home: Path) -> None:
    code, out, err = said("token", "revoke", "nobody")
    assert (code, out) == (1, "")
    assert "no single token has the id or name 'nobody'" in err


def test_the_nodes_own_token_says_where_the_new_one_is(said: Said, home: Path) -> None:
    old = security.ensure_token(state.prepare(home / "agent"))
    code, _, err = said("token", "revoke", "node")
    assert code == 0
    assert f"new, in {home}/agent/token" in err
    assert security.read_token(home / "agent") != old


# -- simulate, unit


def test_simulate_hands_over_what_was_typed(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[object, ...]] = []

    def simulate(*arguments: object, **options: object) -> int:
        called.append((*arguments, options["preset"], options["history_seconds"]))
        return 0

    stand_in(monkeypatch, "agent.simulate", simulate=simulate)
    options = "--nodes 200 --seed 7 --listen 127.0.0.1:0 --preset demo --history 2h"
    assert said("simulate", *options.split())[0] == 0
    assert called == [(200, 8, 7, "127.0.0.1:0", "demo", 7200)]


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("24h", 86400), ("2d", 172800)])
def test_lengths_of_time_have_units(text: str, seconds: int) -> None:
    assert cli._duration(text) == seconds


def test_the_unit_starts_this_program(said: Said) -> None:
    code, out, err = said("unit", "--exec", "/opt/rack rate/100%/rackrate-agent")
    assert (code, err) == (0, "")
    assert 'ExecStart="/opt/rack rate/100%%/rackrate-agent" run\n' in out


def test_systemd_accepts_the_unit(said: Said, tmp_path: Path) -> None:
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("systemd is not installed here")
    unit = tmp_path / "rackrate-agent.service"
    unit.write_text(said("unit", "--exec", "/bin/true")[1])
    ended = subprocess.run([checker, "verify", str(unit)], capture_output=True, text=True, check=False)
    complaints = [line for line in ended.stderr.splitlines() if "rackrate-agent.service" in line]
    assert complaints == []


# -- the whole of it


@pytest.fixture
def running(home: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of an agent on a made-up machine in EC2, after `init`."""
    said("init", "--name", "gpu-01", "--host", "127.0.0.1")
    with metadata_service("ec2") as service:
        environ = {**os.environ, "RACKRATE_METADATA": "", "RACKRATE_EC2_METADATA_URL": service.url}
        command = [sys.executable, "-m", "agent.cli", "run", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().removeprefix("listening on ").strip()
            finally:
                process.terminate()
            assert process.wait(60) == 0


async def test_an_initialised_agent_serves_over_tls_and_obeys_its_tokens(running: str, home: Path, said: Said) -> None:
    token = said("token", "add", "laptop")[1].strip()
    client = AgentClient(running, token, fingerprint=security.fingerprint(home / "agent/tls.crt"), timeout_seconds=30)
    try:
        for _ in range(1500):  # on a machine that is too slow for the first question it comes with the second, a minute later
            info = await client.node()
            if info.instance_type is not None:
                break
            await asyncio.sleep(0.1)
        said("token", "revoke", "laptop")
        with pytest.raises(Unauthorized):
            await client.node()
    finally:
        await client.aclose()
    assert running.startswith("https://127.0.0.1:")
    assert (info.node, info.cloud, info.zone, info.purchase) == ("gpu-01", "aws", "use1-az1", "spot")
    assert info.identity_sources["instance_type"] == "ec2 metadata"

"""`agent.config`: good files load to what they say, bad ones are one sentence with file, key and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from agent import config, wire
from agent.config import AgentConfig
from agent.errors import ConfigurationError

TESTDATA = Path(__file__).with_name("testdata")
GOOD = sorted(TESTDATA.glob("good/*.toml"))
BAD = sorted(TESTDATA.glob("bad/*.toml"))
NOBODY: dict[str, str] = {"RACKRATE_HOME": "/nonexistent/home"}


def stem(path: Path) -> str:
    return path.stem


def load_text(folder: Path, text: str, **options: object) -> AgentConfig:
    file = folder / "agent.toml"
    file.write_text(text)
    return config.load(file, NOBODY, **options)  # type: ignore[arg-type]


@pytest.fixture
def root() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 0)
        yield


@pytest.fixture
def somebody(tmp_path: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 1000)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield tmp_path


@pytest.mark.parametrize("path", GOOD, ids=stem)
def test_a_good_file_loads(path: Path) -> None:
    assert config.load(path, NOBODY).source == path


@pytest.mark.parametrize("path", BAD, ids=stem)
def test_a_bad_file_is_one_sentence_that_names_the_file_and_the_key(path: Path) -> None:
    first = path.read_bytes().decode(errors="replace").splitlines()[0]
    with pytest.raises(ConfigurationError) as caught:
        config.load(path, NOBODY)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert first.removeprefix("# error: ") in sentence
    assert "\n" not in sentence.replace(str(path), "").strip()
    assert caught.value.exit_code == 2


def test_each_fault_has_a_file_of_its_own() -> None:
    assert len(BAD) >= 50
    assert len(GOOD) >= 5


def test_every_key_arrives_where_the_agent_reads_it() -> None:
    path = TESTDATA / "good/everything.toml"
    loaded = config.load(path, NOBODY)
    assert (loaded.host, loaded.port, loaded.socket) == ("::1", 0, None)
    assert loaded.state_dir == path.parent / "state"
    assert loaded.allowed_hosts == ("gpu-01.example.org",)
    assert loaded.node.purchase == "reserved_3y"
    assert loaded.node.usd_per_hour == "3.10"
    assert loaded.node.tags == {"team": "vision", "cost centre": "4711"}
    assert loaded.node.metadata is False
    assert loaded.node.on_premises == wire.OnPremises(
        purchase_usd=Decimal(250000), years=Decimal(4), power_watts=Decimal(6500), power_usd_per_kwh=Decimal("0.18")
    )
    assert (loaded.row_seconds, loaded.retention_days) == (5, 30)
    assert loaded.projects == {"alice": "vision", "bob.smith@example.org": "speech"}
    assert loaded.jobs == config.JobsTable(
        allow_root=True, users=("alice", "bob"), default_pids=8192, max_queue=100, max_upload_bytes=1_000_000,
        log_rotate_bytes=8192, log_quota_bytes=65536, keep_days=7, grace_seconds=20, kill_wait_seconds=5,
        isolation="cgroup", cgroup_parent="gpu-jobs", mps_control="/opt/mps/control", repair_limits=False,
        environment=("PATH",),
    )  # fmt: skip
    assert loaded.thresholds is not None
    assert loaded.thresholds.held_idle_ratio == 0.1
    assert loaded.thresholds.held_idle_seconds == 300


def test_without_a_file_the_defaults_hold() -> None:
    loaded = config.load(None, NOBODY)
    assert loaded.source is None
    assert (loaded.listen, loaded.host, loaded.port, loaded.tls) == ("127.0.0.1:9477", "127.0.0.1", 9477, False)
    assert (loaded.row_seconds, loaded.retention_days) == (10, 90)
    assert loaded.node == config.NodeConfig()
    assert loaded.thresholds is not None


def test_a_named_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"/nonexistent/a\.toml: there is no such file; `rackrate-agent init`"):
        config.load(Path("/nonexistent/a.toml"), NOBODY)


def test_a_default_file_that_points_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").symlink_to(tmp_path / "gone.toml")
    with pytest.raises(ConfigurationError, match="there is no such file"):
        config.load(None, {"RACKRATE_HOME": str(tmp_path)})


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the file cannot be read"):
        config.load(tmp_path, NOBODY)


def test_rackrate_home_moves_configuration_and_state(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text('[node]\nname = "here"\n')
    loaded = config.load(None, {"RACKRATE_HOME": str(tmp_path)})
    assert loaded.node.name == "here"
    assert loaded.state_dir == tmp_path / "agent"


def test_root_uses_the_folders_of_the_system(root: None) -> None:
    assert config.default_path({}) == Path("/etc/rackrate/agent.toml")
    assert config.state_folder({}) == Path("/var/lib/rackrate")


def test_a_user_has_folders_of_their_own(somebody: Path) -> None:
    assert config.default_path({}) == somebody / "config/rackrate/agent.toml"
    assert config.state_folder({}) == somebody / "state/rackrate"


def test_a_user_without_a_home_directory_is_told_what_to_set(somebody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for find in (config.default_path, config.state_folder):
        with pytest.raises(ConfigurationError, match="no home directory .* set RACKRATE_HOME"):
            find({})


def test_an_option_beats_the_file(tmp_path: Path) -> None:
    text = 'listen = "127.0.0.1:1"\nstate_dir = "a"\n'
    loaded = load_text(tmp_path, text, listen="127.0.0.1:2", state_dir=tmp_path / "b", simulate="8xH100")
    assert (loaded.listen, loaded.state_dir, loaded.simulate) == ("127.0.0.1:2", tmp_path / "b", "8xH100")


def test_an_address_on_the_command_line_beats_a_socket_in_the_file(tmp_path: Path) -> None:
    assert load_text(tmp_path, 'socket = "a.sock"', listen="127.0.0.1:2").socket is None
    assert load_text(tmp_path, 'listen = "127.0.0.1:2"', socket=tmp_path / "b.sock").socket == tmp_path / "b.sock"


def test_paths_in_the_file_are_relative_to_it(tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("")
    loaded = load_text(tmp_path, 'state_dir = "s"\n[tls]\ncertificate = "tls.crt"\nkey = "tls.key"\n')
    assert (loaded.tls_certificate, loaded.tls_key) == (tmp_path / "tls.crt", tmp_path / "tls.key")
    assert loaded.state_dir == tmp_path / "s"
    assert loaded.tls


@pytest.mark.parametrize("listen", ["9477", "localhost", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:٣", "a b:1", ":9477"])
def test_a_bad_address_on_the_command_line_names_the_option(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--listen: .* is no address; allowed is "):
        config.load(None, NOBODY, listen=listen)


@pytest.mark.parametrize(
    ("listen", "parts"),
    [("localhost:0", ("localhost", 0)), ("[::1]:9477", ("::1", 9477)), ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1))],
)
def test_addresses_are_split(listen: str, parts: tuple[str, int]) -> None:
    assert config.split_listen(listen) == parts


def test_a_socket_path_that_the_kernel_would_cut_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^--socket: the path is 2\d\d bytes long"):
        config.load(None, NOBODY, socket="/" + "a" * 200)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'8xh100' is no preset \(did you mean '8xH100'\?\).*4xT4"):
        config.load(None, NOBODY, simulate="8xh100")


@pytest.mark.parametrize("value", ["off", "OFF", "0", "false", "no"])
def test_the_environment_switches_the_metadata_service_off(value: str) -> None:
    assert config.load(None, {**NOBODY, "RACKRATE_METADATA": value}).node.metadata is False


def test_money_keeps_the_digits_that_were_written(tmp_path: Path) -> None:
    assert load_text(tmp_path, '[node]\nusd_per_hour = "32.7726000"').node.usd_per_hour == "32.7726000"


def test_a_file_for_init_may_be_missing_with_the_certificate_it_names(tmp_path: Path) -> None:
    loaded = config.load(tmp_path / "new.toml", NOBODY, new=True)
    assert loaded.source == tmp_path / "new.toml"
    named = load_text(tmp_path, '[tls]\ncertificate = "c"\nkey = "k"', new=True)
    assert named.tls_certificate == tmp_path / "c"

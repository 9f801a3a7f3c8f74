"""config.toml: each fault is one sentence that names the file and the key; writing keeps what was there."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from tui import jobspec
from tui.config import Config, NodeConfig, Paths, add_node, load, remove_node, resolve_paths
from tui.errors import ConfigurationError
from tui.query import parse
from tui.whoami import user_name

GOOD = """\
# my fleet
timezone = "Europe/Berlin"

[[nodes]]
name = "gpu-01"   # the good one
url = "https://10.0.0.5:9477"
token_file = "gpu-01.token"
tags = { team = "vision" }
"""


def paths(folder: Path, text: str | None = None) -> Paths:
    file = folder / "config.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    return Paths(config_file=file, data_dir=folder)


def test_a_missing_file_is_an_empty_configuration_unless_it_was_named(tmp_path: Path) -> None:
    assert load(paths(tmp_path)) == Config()
    with pytest.raises(ConfigurationError, match="no such file"):
        load(paths(tmp_path), must_exist=True)


def test_a_good_file_is_read_and_token_files_lie_beside_it(tmp_path: Path) -> None:
    where = paths(tmp_path, GOOD)
    config = load(where)
    assert config.nodes[0].tags == {"team": "vision"}
    assert where.token_path(config.nodes[0]) == tmp_path / "gpu-01.token"
    assert where.ledger_path(config) == tmp_path / "ledger.db"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('colour = "red"', "unknown key `colour`"),
        ('themes = "x"', "did you mean `theme`"),
        ('[[nodes]]\nname = "a"\nurl = "http://x:1"\ntoken_fle = "t"', "did you mean `token_file`"),
        ('[[nodes]]\nname = "a"', "url"),
        ('[[nodes]]\nname = "a"\nurl = "10.0.0.5:9477"', "no URL of an agent"),
        ('[[nodes]]\nname = "a"\nurl = "http://x:1"\n[[nodes]]\nname = "a"\nurl = "http://y:1"', "two nodes are named"),
        ('timezone = "Mars/Olympus"', "no IANA time zone"),
        ("nodes = 5", "nodes"),
        ('theme = "x', "not valid TOML"),
    ],
)
def test_a_fault_names_the_file_and_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(paths(tmp_path, text))
    assert "config.toml" in str(error.value) and part in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_text_is_an_error_not_a_crash(tmp_path: Path) -> None:
    where = paths(tmp_path)
    where.config_file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load(where)


def test_adding_and_removing_a_node_keeps_comments_and_the_rest(tmp_path: Path) -> None:
    where = paths(tmp_path, GOOD)
    add_node(where, NodeConfig(name="gpu-02", url="http://127.0.0.1:9477", tags={"team": "nlp"}))
    text = where.config_file.read_text(encoding="utf-8")
    assert "# my fleet" in text and "# the good one" in text
    assert [node.name for node in load(where).nodes] == ["gpu-01", "gpu-02"]
    remove_node(where, "gpu-02")
    assert [node.name for node in load(where).nodes] == ["gpu-01"]
    assert "# the good one" in where.config_file.read_text(encoding="utf-8")


def test_a_name_is_taken_only_once_and_a_wrong_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    where = paths(tmp_path, GOOD)
    with pytest.raises(ConfigurationError, match="already there"):
        add_node(where, NodeConfig(name="gpu-01", url="http://127.0.0.1:9477"))
    with pytest.raises(ConfigurationError, match="Did you mean `gpu-01`"):
        remove_node(where, "gpu-1")


def test_a_node_can_be_added_to_no_file_at_all(tmp_path: Path) -> None:
    where = Paths(config_file=tmp_path / "new" / "config.toml", data_dir=tmp_path)
    add_node(where, NodeConfig(name="a", url="http://127.0.0.1:9477"))
    assert load(where).nodes[0].name == "a"
    assert sorted(os.listdir(tmp_path / "new")) == ["config.toml"], "no temporary file is left"


def test_a_named_file_beats_rackrate_home_which_beats_the_platform(tmp_path: Path) -> None:
    home = {"RACKRATE_HOME": str(tmp_path / "home")}
    assert resolve_paths(None, home).config_file == tmp_path / "home" / "config.toml"
    assert resolve_paths(str(tmp_path / "x.toml"), home).config_file == tmp_path / "x.toml"
    assert resolve_paths(None, {}).config_file.name == "config.toml"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user in no list of users, as in a container that runs with any number."""

    def unknown(uid: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody")
def test_without_a_home_directory_the_sentence_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no home directory .* set RACKRATE_HOME"):
        resolve_paths(None, {})
    assert resolve_paths(None, {"RACKRATE_HOME": str(tmp_path)}).data_dir == tmp_path


@pytest.mark.usefixtures("nobody")
def test_a_user_without_a_name_is_a_number_as_nodes_show_it() -> None:
    assert user_name() == str(os.getuid())
    assert jobspec.read({}, ["true"]).spec.user == user_name()
    assert parse("user:me") is not None

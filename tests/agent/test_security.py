"""`agent.security`, `agent.certificate` and `agent.private_files`: secrets stay secret, and who may talk to the agent."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent import certificate, private_files, security
from agent.errors import ConfigurationError, ListenRefused, StateDirectoryError, StateFull


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- the node's own token


def test_the_first_start_makes_a_token_that_only_its_owner_reads(tmp_path: Path) -> None:
    token = security.ensure_token(tmp_path)
    assert security.token_id(token) is not None
    assert (tmp_path / "token").read_text() == token + "\n"
    assert mode(tmp_path / "token") == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token"]


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        security.ensure_token(tmp_path)
    finally:
        os.umask(before)
    assert mode(tmp_path / "token") == 0o600


def test_the_next_start_keeps_the_token(tmp_path: Path) -> None:
    assert security.ensure_token(tmp_path) == security.ensure_token(tmp_path)


def test_a_secret_has_256_bits_and_no_two_are_alike() -> None:
    tokens = {security.new_token() for _ in range(200)}
    assert len(tokens) == 200
    assert {len(token.rpartition("_")[2]) * 4 for token in tokens} == {256}


def test_agents_that_start_at_once_end_up_with_the_same_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(security.ensure_token, [tmp_path] * 32))
    assert len(tokens) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token"]


@pytest.mark.parametrize("open_mode", [0o640, 0o604, 0o644, 0o620])
def test_a_token_that_others_can_read_is_refused_with_the_command_that_closes_it(tmp_path: Path, open_mode: int) -> None:
    security.ensure_token(tmp_path)
    (tmp_path / "token").chmod(open_mode)
    with pytest.raises(StateDirectoryError) as caught:
        security.ensure_token(tmp_path)
    assert f"(mode {open_mode:04o}); close it with `chmod 600 {tmp_path / 'token'}`" in str(caught.value)


def test_the_command_is_quoted_for_the_shell(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    security.ensure_token(folder)
    (folder / "token").chmod(0o644)
    with pytest.raises(StateDirectoryError) as caught:
        security.read_token(folder)
    command = str(caught.value).split("`")[1]
    subprocess.run(["sh", "-c", command], check=True)
    assert security.read_token(folder)


@pytest.mark.parametrize("text", ["", "hunter2\n", "rr_1234_abc", "rr_12345678_" + "g" * 64])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, text: str) -> None:
    private_files.write_private(tmp_path / "token", text.encode())
    with pytest.raises(StateDirectoryError, match="does not hold a token; remove it"):
        security.ensure_token(tmp_path)


def test_a_token_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirectoryError, match="cannot be read"):
        security.ensure_token(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    security.ensure_token(tmp_path)
    os.chown(tmp_path / "token", 4242, -1)
    with pytest.raises(StateDirectoryError, match=r"belongs to user 4242, .* `chown 0 "):
        security.read_token(tmp_path)


def test_a_full_disk_leaves_no_half_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StateFull, match="no space is left"):
        security.ensure_token(tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- comparing


def test_a_token_matches_itself_and_nothing_else() -> None:
    token = security.new_token()
    assert security.token_matches(token, token)
    for wrong in ("", token[:-1], token + "0", token.upper(), "\udcff", "ünï"):
        assert not security.token_matches(wrong, token)


# -- further tokens


def test_a_further_token_is_valid_until_it_is_revoked(tmp_path: Path) -> None:
    own = security.ensure_token(tmp_path)
    tokens = security.Tokens(tmp_path)
    kept, token = security.add_token(tmp_path, "laptop")
    assert tokens.match(token)
    assert tokens.match(own)
    assert security.revoke_token(tmp_path, "laptop") == kept
    assert not tokens.match(token)
    assert tokens.match(own)


def test_the_list_of_tokens_holds_no_secret(tmp_path: Path) -> None:
    kept, token = security.add_token(tmp_path, "laptop")
    text = (tmp_path / "tokens.json").read_text()
    assert token.rpartition("_")[2] not in text
    assert mode(tmp_path / "tokens.json") == 0o600
    (listed,) = security.list_tokens(tmp_path)
    assert listed == kept
    assert (listed.id, listed.name) == (security.token_id(token), "laptop")
    assert abs((datetime.now(UTC) - listed.created_at).total_seconds()) < 600


def test_tokens_added_at_once_are_all_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda number: security.add_token(tmp_path, f"client {number}"), range(16)))
    assert {one.id for one in security.list_tokens(tmp_path)} == {kept.id for kept, _ in added}


def test_a_name_that_two_tokens_have_revokes_neither(tmp_path: Path) -> None:
    first, _ = security.add_token(tmp_path, "laptop")
    security.add_token(tmp_path, "laptop")
    assert security.revoke_token(tmp_path, "laptop") is None
    assert security.revoke_token(tmp_path, first.id) == first
    assert len(security.list_tokens(tmp_path)) == 1


def test_the_nodes_own_token_is_replaced_when_it_is_revoked(tmp_path: Path) -> None:
    old = security.ensure_token(tmp_path)
    tokens = security.Tokens(tmp_path)
    assert tokens.match(old)
    revoked = security.revoke_any(tmp_path, security.token_id(old) or "")
    assert revoked is not None
    assert revoked.name == "node"
    assert not tokens.match(old)
    assert tokens.match(security.read_token(tmp_path))


@pytest.mark.parametrize("name", ["", "node", "a" * 65, "a\nb", "\x1b[31m"])
def test_a_name_that_would_mislead_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot name a token"):
        security.add_token(tmp_path, name)


@pytest.mark.parametrize("text", ["", "{", '{"tokens": [{"id": 1}]}', "[]"])
def test_a_damaged_list_is_a_sentence_and_matches_nothing(tmp_path: Path, text: str) -> None:
    own = security.ensure_token(tmp_path)
    private_files.write_private(tmp_path / "tokens.json", text.encode())
    with pytest.raises(StateDirectoryError, match="the token list .* is damaged"):
        security.list_tokens(tmp_path)
    assert not security.Tokens(tmp_path).match(own)


def test_a_token_file_that_is_opened_to_others_is_no_longer_trusted(tmp_path: Path) -> None:
    own = security.ensure_token(tmp_path)
    tokens = security.Tokens(tmp_path)
    assert tokens.match(own)
    (tmp_path / "token").chmod(0o644)
    assert not tokens.match(own)


# -- where to listen, and as whom


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST."])
def test_loopback_needs_no_tls(host: str) -> None:
    security.check_listen(host, tls=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.5", "gpu-01", "localhost.example.org", "169.254.1.1"])
def test_other_addresses_are_refused_without_tls(host: str) -> None:
    with pytest.raises(ListenRefused, match=r"would send the token unencrypted; run `rackrate-agent init`") as caught:
        security.check_listen(host, tls=False)
    assert caught.value.exit_code == 2
    security.check_listen(host, tls=True)


@pytest.mark.parametrize(
    "header",
    ["localhost", "localhost:9477", "127.0.0.1:9477", "[::1]:9477", "10.0.0.5", "LocalHost.", "Gpu-01.Example.org:9477"],
)
def test_a_host_header_that_names_this_agent_passes(header: str) -> None:
    assert security.allowed_host(header, ["gpu-01.example.org"])


def test_this_machines_own_name_passes() -> None:
    assert security.allowed_host(socket.gethostname())


@pytest.mark.parametrize(
    "header",
    [None, "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:9477@evil", "a b", "localhost\r\nx"],
)
def test_a_name_that_was_rebound_does_not(header: str | None) -> None:
    assert not security.allowed_host(header, ["gpu-01.example.org"])


# -- the certificate


def serve_once(files: certificate.Certificate) -> tuple[int, threading.Thread]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.path, files.path.with_name("tls.key"))
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with listener:
            raw, _ = listener.accept()
            with raw, context.wrap_socket(raw, server_side=True) as connection:
                connection.recv(1)

    thread = threading.Thread(target=accept)
    thread.start()
    return listener.getsockname()[1], thread


@pytest.mark.parametrize("name", ["gpu-01.example.org", "127.0.0.1", "::1"])
def test_a_strict_client_that_trusts_the_certificate_accepts_its_names(tmp_path: Path, name: str) -> None:
    made = certificate.make_certificate(tmp_path, ["gpu-01.example.org", "127.0.0.1", "::1"])
    context = ssl.create_default_context(cafile=str(made.path))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    port, thread = serve_once(made)
    with socket.create_connection(("127.0.0.1", port)) as raw, context.wrap_socket(raw, server_hostname=name) as connection:
        presented = connection.getpeercert(binary_form=True)
        connection.send(b"x")
    thread.join(10)
    assert presented is not None
    assert made.fingerprint == "sha256:" + hashlib.sha256(presented).hexdigest()


def test_the_key_is_private_and_the_certificate_is_not(tmp_path: Path) -> None:
    made = security.make_certificate(tmp_path, ["gpu-01"])
    assert (mode(tmp_path / "tls.key"), mode(made.path)) == (0o600, 0o644)


def test_it_is_valid_for_825_days_and_for_the_names_it_was_made_for(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, 1, tzinfo=UTC)
    made = certificate.make_certificate(tmp_path, ["gpu-01", "10.0.0.5"], now=now)
    assert made.not_after == datetime(2028, 4, 5, tzinfo=UTC)
    assert made.hosts == ("gpu-01", "10.0.0.5")


def test_a_new_certificate_has_another_fingerprint(tmp_path: Path) -> None:
    first = certificate.make_certificate(tmp_path, ["gpu-01"])
    assert certificate.make_certificate(tmp_path, ["gpu-01"]).fingerprint != first.fingerprint
    assert certificate.read_certificate(tmp_path / "tls.crt") != first


def test_a_name_that_no_certificate_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="neither a host name nor an IP address; name one with --host"):
        certificate.make_certificate(tmp_path, ["größe"])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_holds_no_certificate_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("nothing")
    for read in (certificate.read_certificate, security.fingerprint):
        with pytest.raises(ConfigurationError, match="holds no PEM certificate"):
            read(tmp_path / "tls.crt")
        with pytest.raises(ConfigurationError, match="cannot be read"):
            read(tmp_path / "gone.crt")

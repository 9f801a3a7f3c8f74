"""Who may talk to the agent: tokens, the Host header, where it may listen, and its TLS certificate.

Invariant: a secret is never readable by another user of the machine: its file is 0600 from the first byte, and one that
is open to others is refused, not used. Tokens are compared in constant time; further tokens are kept only as hashes.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agent.certificate import fingerprint, make_certificate
from agent.errors import ConfigurationError, ListenRefused, StateDirectoryError
from agent.jobs.actor import Actor
from agent.private_files import create_once, read_private, write_private
from agent.state import worded

__all__ = [
    "OWNER",
    "StoredToken",
    "Tokens",
    "add_token",
    "allowed_host",
    "check_listen",
    "ensure_token",
    "fingerprint",
    "is_loopback",
    "list_tokens",
    "make_certificate",
    "new_token",
    "read_token",
    "replace_token",
    "revoke_any",
    "revoke_token",
    "token_id",
    "token_matches",
]

TOKEN_FILE = "token"
TOKENS_FILE = "tokens.json"
OWN_NAME = "node"
"""What `token list` calls the node's own token; no further one may have this name."""
OWNER = Actor(OWN_NAME)
"""Whoever has the node's own token."""
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
_TOKEN = re.compile(r"rr_([0-9a-f]{8})_[0-9a-f]{64}")


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A further token as `tokens.json` keeps it: the secret is not in it."""

    id: str
    name: str
    sha256: str
    """Hexadecimal SHA-256 of the whole token."""
    created_at: datetime
    user: str | None = None
    """Whose jobs it may submit and change; None: it may name any user."""


class _TokenList(msgspec.Struct, frozen=True):
    tokens: tuple[StoredToken, ...] = ()


class Tokens:
    """All tokens that are valid for one state directory. Files are read again when they change: a revoked one ends at once.

    A server uses them as `node_agent.token_check = Tokens(state_dir).match`.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._seen: tuple[object, object] | None = None
        self._holders: tuple[tuple[bytes, Actor], ...] = ()

    def match(self, presented: str) -> Actor | None:
        """Whom `presented` stands for: the node's own token or a further one; None: it is not valid.

        A file that cannot be trusted matches nothing.
        """
        self._refresh()
        digest = _digest(presented)
        found = [holder for known, holder in self._holders if hmac.compare_digest(digest, known)]  # all: no early end
        return found[0] if found else None

    def _refresh(self) -> None:
        now = (_stamp(self._state_dir / TOKEN_FILE), _stamp(self._state_dir / TOKENS_FILE))
        if now != self._seen:
            self._holders = self._read()
            self._seen = now

    def _read(self) -> tuple[tuple[bytes, Actor], ...]:
        try:
            own = (_digest(read_token(self._state_dir)), OWNER)
            further = list_tokens(self._state_dir)
            return own, *((bytes.fromhex(one.sha256), Actor(one.name, one.user)) for one in further)
        except (StateDirectoryError, ValueError):
            return ()


def token_matches(presented: str, expected: str) -> bool:
    """Whether two tokens are the same, in a time that does not tell how much of them is."""
    return hmac.compare_digest(_digest(presented), _digest(expected))


def new_token() -> str:
    """`rr_<id>_<secret>`: eight hexadecimal digits that may be shown, and 256 random bits that may not."""
    return f"rr_{secrets.token_hex(4)}_{secrets.token_hex(32)}"


def token_id(token: str) -> str | None:
    match = _TOKEN.fullmatch(token)
    return match[1] if match else None


def ensure_token(state_dir: Path) -> str:
    """The node's own token; its file is made with mode 0600 if there is none.

    Raises StateDirectoryError (StateFull) if it can be read by others, is damaged, or cannot be written.
    """
    path = Path(state_dir) / TOKEN_FILE
    if not os.path.lexists(path):
        create_once(path, new_token().encode() + b"\n")
    return read_token(state_dir)


def read_token(state_dir: Path) -> str:
    """The node's own token. Raises StateDirectoryError with the command that puts it right."""
    path = Path(state_dir) / TOKEN_FILE
    token = read_private(path, "token").decode("ascii", "replace").strip()
    if token_id(token) is None:
        raise StateDirectoryError(
            f"the token file {path} does not hold a token; remove it, and the agent makes a new one when it starts"
        )
    return token


def replace_token(state_dir: Path) -> str:
    """A new token of the node's own; the old one ends at once."""
    token = new_token()
    write_private(Path(state_dir) / TOKEN_FILE, token.encode() + b"\n")
    return token


def list_tokens(state_dir: Path) -> tuple[StoredToken, ...]:
    """The further tokens, oldest first, without their secrets."""
    path = Path(state_dir) / TOKENS_FILE
    if not os.path.lexists(path):
        return ()
    try:
        return msgspec.json.decode(read_private(path, "token list"), type=_TokenList).tokens
    except msgspec.DecodeError:
        raise StateDirectoryError(f"the token list {path} is damaged; remove it and add the tokens again") from None


def add_token(state_dir: Path, name: str, user: str | None = None) -> tuple[StoredToken, str]:
    """A further token for one client: what is kept, and the token itself, which is never shown again.

    `user`: whoever has it may submit, signal and cancel jobs of this user alone.
    """
    if not 1 <= len(name) <= 64 or not name.isprintable() or name == OWN_NAME:
        raise ConfigurationError(
            f"{name!r} cannot name a token; allowed are 1 to 64 printable characters other than {OWN_NAME!r}"
        )
    if user is not None and not _USER.fullmatch(user):
        raise ConfigurationError(f"{user!r} is no name of a user; it is letters, digits, `_`, `.` and `-`, 32 at most")
    token = new_token()
    kept = StoredToken(id=token[3:11], name=name, sha256=_digest(token).hex(), created_at=_now(), user=user)
    with _changing(state_dir):
        _write_tokens(state_dir, (*list_tokens(state_dir), kept))
    return kept, token


def revoke_token(state_dir: Path, token: str) -> StoredToken | None:
    """Ends the further token with this id or, if only one has it, this name. None: there is none such."""
    with _changing(state_dir):
        known = list_tokens(state_dir)
        named = [one for one in known if one.id == token] or [one for one in known if one.name == token]
        if len(named) != 1:
            return None
        _write_tokens(state_dir, tuple(one for one in known if one.id != named[0].id))
    return named[0]


def revoke_any(state_dir: Path, token: str) -> StoredToken | None:
    """As `revoke_token`, and also the node's own token (its id, or the name `node`), which a new one replaces."""
    if os.path.lexists(Path(state_dir) / TOKEN_FILE):
        own = token_id(read_token(state_dir)) or ""
        if token in (own, OWN_NAME):
            replace_token(state_dir)
            return StoredToken(id=own, name=OWN_NAME, sha256="", created_at=_now())
    return revoke_token(state_dir, token) if Path(state_dir).is_dir() else None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`. A name other than localhost is not asked of any resolver: not loopback."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_listen(host: str, tls: object) -> None:
    """Raises ListenRefused for an address that others can reach, unless TLS is set up (`tls` is true)."""
    if not tls and not is_loopback(host):
        raise ListenRefused(
            f"listening on {host or 'every address'}, which other machines can reach, would send the token unencrypted; run "
            "`rackrate-agent init` for a certificate and name it in [tls] of agent.toml, or listen on 127.0.0.1"
        )


def allowed_host(header: str | None, names: Collection[str] = ()) -> bool:
    """Whether a Host header names this agent: an IP address, localhost, this machine's name, or one of `names`.

    A page that rebinds its own domain name to this address sends that domain name, and is refused.
    """
    host = _host_of(header or "")
    if host is None:
        return False
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return host in {"localhost", *_own_names(), *(name.rstrip(".").lower() for name in names)}


@contextmanager
def _changing(state_dir: Path) -> Iterator[None]:
    """Two commands that change the token list follow one another."""
    try:
        descriptor = os.open(Path(state_dir) / "tokens.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise worded(error, Path(state_dir), "cannot be written") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_tokens(state_dir: Path, tokens: tuple[StoredToken, ...]) -> None:
    write_private(Path(state_dir) / TOKENS_FILE, msgspec.json.format(msgspec.json.encode(_TokenList(tokens))) + b"\n")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _own_names() -> set[str]:
    full = socket.gethostname().rstrip(".").lower()
    return {full, full.split(".")[0]}


def _host_of(header: str) -> str | None:
    """The host of `HOST[:PORT]`, lower case, without brackets; None if it is not of that form."""
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", header.strip().lower())
    return (match[1] or match[2]).rstrip(".") if match else None

"""`rackrate-agent init`: what a node needs before other machines may watch it.

Invariant: what is there already is kept (token, certificate, agent.toml); running it twice changes nothing and says the
same, so it is safe on a node that is in use.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agent import certificate, config, identity, security, state
from agent.config import AgentConfig
from agent.errors import ConfigurationError

_NOWHERE = ("192.0.2.1", 9)  # TEST-NET-1: a datagram socket that is only connected sends nothing


class Initialised(msgspec.Struct, frozen=True, kw_only=True):
    """What `init` made or found."""

    node: str
    url: str
    fingerprint: str
    token_file: Path
    certificate: Path
    configuration: Path
    configuration_written: bool
    add_line: str
    """The command that adds this node on the machine of whoever watches."""
    missing_lines: tuple[str, ...] = ()
    """Lines that an agent.toml which was there before lacks for TLS."""


def initialise(
    configured: AgentConfig,
    *,
    name: str | None = None,
    host: str | None = None,
    new_certificate: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Initialised:
    """Makes what is missing. `configured.source` is the file to write where it does not exist (None: the default one).

    Raises ConfigurationError for a bad name or host, StateDirectoryError where the state directory cannot be used.
    """
    node = _node_name(configured, name)
    address = _address(host)
    directory = state.prepare(configured.state_dir)
    security.ensure_token(directory)
    found = _certificate(configured, directory, [address, *_own_names()], new_certificate)
    path = configured.source or config.default_path(environ)
    lines = _file_lines(configured, node, address, found.path, environ)
    written = _write_once(path, lines)
    url = f"https://{_bracketed(address)}:{configured.port or config.DEFAULT_PORT}"
    return Initialised(
        node=node,
        url=url,
        fingerprint=found.fingerprint,
        token_file=directory / security.TOKEN_FILE,
        certificate=found.path,
        configuration=path,
        configuration_written=written,
        add_line=f"rackrate add {url} --token-file {node}.token --fingerprint {found.fingerprint}",
        missing_lines=() if written else _missing(configured, lines),
    )


def explain(made: Initialised) -> str:
    """What to do next, for a person."""
    host = made.url.removeprefix("https://").rpartition(":")[0].strip("[]")
    steps = [
        f"wrote {made.configuration}" if made.configuration_written else f"kept {made.configuration}, which was there already",
        f"token: {made.token_file} (mode 0600); certificate: {made.certificate}",
    ]
    if made.missing_lines:
        steps += [f"put these lines into {made.configuration}, which others need to reach it over TLS (tables come last):"]
        steps += [f"    {line}" for line in made.missing_lines]
    steps += [
        "start it here:        rackrate-agent run      (or as a service: rackrate-agent unit)",
        f"copy the token there: scp {host}:{made.token_file} {made.node}.token",
        "then add it there with the line above",
    ]
    return "\n".join(steps)


def own_address() -> str:
    """The address from which this machine reaches others, or its name where it has no such route. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_NOWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return identity.clean_name(socket.gethostname())


def listen_address(address: str, port: int) -> str:
    """`address` itself where it is this machine's own; behind a translated address or a name, every interface."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except (OSError, ValueError):
        address = "::" if ":" in address else "0.0.0.0"
    return f"{_bracketed(address)}:{port}"


def _node_name(configured: AgentConfig, name: str | None) -> str:
    if name is not None and not config.NAME.fullmatch(name):
        raise ConfigurationError(f"--name: {name!r} is refused; allowed is {config.ALLOWED['node.name']}")
    return name or identity.configured(configured.node).name


def _address(host: str | None) -> str:
    if host is None:
        return own_address()
    address = host.strip("[]")
    try:
        config.split_listen(f"{_bracketed(address)}:1")
    except ConfigurationError:
        raise ConfigurationError(f"--host: {host!r} is neither a host name nor an IP address") from None
    return address


def _own_names() -> list[str]:
    return [identity.clean_name(socket.gethostname()), "localhost", "127.0.0.1", "::1"]


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _certificate(configured: AgentConfig, directory: Path, hosts: list[str], renew: bool) -> certificate.Certificate:
    ours = directory / certificate.CERTIFICATE_FILE
    theirs = configured.tls_certificate
    if theirs is not None and theirs != ours:
        if renew:
            raise ConfigurationError(f"{configured.source} names a certificate of your own, {theirs}, which is not replaced here")
        return certificate.read_certificate(theirs)
    if renew or not (ours.exists() and (directory / certificate.KEY_FILE).exists()):
        return certificate.make_certificate(directory, list(dict.fromkeys(hosts)))
    return certificate.read_certificate(ours)


def _file_lines(
    configured: AgentConfig, node: str, address: str, certificate_path: Path, environ: Mapping[str, str]
) -> dict[str, list[str]]:
    """Table -> its lines."""
    port = configured.port or config.DEFAULT_PORT
    top = [f"listen = {_text(listen_address(address, port))}"]
    if configured.state_dir != config.state_folder(environ):
        top.append(f"state_dir = {_text(configured.state_dir)}")
    if not security.allowed_host(address, configured.allowed_hosts):
        top.append(f"allowed_hosts = [{', '.join(map(_text, (*configured.allowed_hosts, address)))}]")
    key = configured.tls_key or certificate_path.with_name(certificate.KEY_FILE)
    return {
        "": top,
        "node": [f"name = {_text(node)}"],
        "tls": [f"certificate = {_text(certificate_path)}", f"key = {_text(key)}"],
    }


def _write_once(path: Path, lines: Mapping[str, list[str]]) -> bool:
    """Whether the file was written; one that is there stays as it is."""
    text = "# Written by `rackrate-agent init`.\n" + "\n".join(lines[""]) + "\n"
    text += "\n[node]\n" + "\n".join(lines["node"]) + "\n"
    text += "# Where the cloud's metadata service does not tell them: cloud, region, zone, instance_type, purchase.\n"
    text += "\n[tls]\n" + "\n".join(lines["tls"]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _missing(configured: AgentConfig, lines: Mapping[str, list[str]]) -> tuple[str, ...]:
    needed = [line for line in lines[""] if line.startswith("allowed_hosts")]
    if configured.socket is None and security.is_loopback(configured.host):
        needed += lines[""][:1]
    if not configured.tls:
        needed += ["[tls]", *lines["tls"]]
    return tuple(needed)


def _text(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)

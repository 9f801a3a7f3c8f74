"""`rackrate serve`: the app in a browser.

Invariant: it listens on this machine alone, and its tabs are read-only, unless both are asked for in so many words.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

from tui.commands.context import Context
from tui.errors import Failed, WrongUsage
from tui.exit_codes import ExitCode
from tui.output import say
from tui.terminal import allow_many_files

DEMO_SEED = 7


def serve(context: Context, arguments: argparse.Namespace) -> int:
    """Serves until it is ended."""
    try:
        from tui.ui.serve import Tabs, serve_until_ended
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual_serve", "aiohttp", "aiohttp_jinja2", "jinja2"):
            raise
        raise Failed("the app in a browser needs the package textual-serve: pip install 'rackrate[serve]'.") from None
    with contextlib.closing(listen(arguments.host, arguments.port, arguments.open_to_network)) as listening, _fleet(context, arguments) as served:
        token = secrets.token_urlsafe(24)
        public = arguments.public_url
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(public)) if public else None
        read_only = arguments.read_only or served.config.read_only or not arguments.allow_changes
        tabs = Tabs(app_words(served, arguments, read_only), token=token, most=arguments.max_tabs, origin=origin)

        allow_many_files()

        def ready() -> None:
            print(f"{public or url_of(listening)}/?token={token}", flush=True)
            say(f"rackrate: serving {'read-only' if read_only else 'with the keys that change things'}; Ctrl-C ends it and its tabs")

        number = asyncio.run(serve_until_ended(tabs, listening, ready))
    return ExitCode.DONE if number == signal.SIGINT else 128 + number


def listen(host: str, port: int, open_to_network: bool) -> socket.socket:
    """A socket that listens, or a sentence why not."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise WrongUsage(f"--host {host}: there is no such host.") from None
    if not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback and not open_to_network:
        raise WrongUsage(
            f"--host {host} is reached by other hosts, and serve has no encryption: whoever listens on the way reads the token. "
            "Leave it on 127.0.0.1 behind a proxy with TLS or `ssh -L`, or say --open-to-network."
        )
    try:
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise Failed(f"cannot listen on {host}:{port} ({error.strerror}); --port names another, --port 0 takes a free one.") from None


def url_of(listening: socket.socket) -> str:
    """As a browser on this machine calls it."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _fleet(context: Context, arguments: argparse.Namespace) -> Iterator[Context]:
    """The nodes stay as long as the server: this machine's agent, where none is configured, is that of all tabs."""
    if arguments.demo:
        from tui.demo import simulated_fleet

        with simulated_fleet(seed=DEMO_SEED) as (demo, _):
            yield demo
        return
    with context.nodes():
        yield context


def app_words(context: Context, arguments: argparse.Namespace, read_only: bool) -> list[str]:
    """The command of a tab's app."""
    named = context.is_named or arguments.demo
    return [
        sys.executable, "-m", "tui.cli",
        *(["--config", str(context.paths.config_file)] if named else []),
        *(["--read-only"] if read_only else []),
        *(["--max-kbps", f"{arguments.max_kbps:g}"] if arguments.max_kbps is not None else []),
    ]  # fmt: skip

"""The options of `serve`.

Invariant: without options nobody but the user of this machine reaches it, and it changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

EPILOG = """Prints one address, with a token in it: whoever has it sees the fleet. Each tab is a process of its own; it ends with its tab.
Nothing is changed on any node unless --allow-changes is given, whatever is pressed in the browser.

examples:
  rackrate serve                                   then open the address that is printed
  ssh -L 8000:127.0.0.1:8000 gpu-head              on the laptop, for a `serve` that runs on gpu-head
  rackrate serve --public-url https://fleet.example.org     behind a proxy that adds TLS and forwards to 127.0.0.1:8000
  rackrate serve --demo                            of a simulated fleet

serve has no encryption of its own: other hosts reach it best through SSH or a proxy with TLS (nginx, caddy) on this machine.
exit codes: 0 ended by Ctrl-C; 1 the port is taken; 2 wrong usage; 128 + N a signal N
"""


def add_serve_command(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Adds it to `commands`; `command` is that of the other commands."""
    serve = command(commands, "serve", "serve:serve", "the app in a browser, read-only and for this machine alone")
    serve.epilog, serve.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=_port, default=8000, help="0 takes a free one (default 8000)")
    serve.add_argument("--allow-changes", action="store_true", help="with the keys that stop jobs and change nodes")
    serve.add_argument("--open-to-network", action="store_true", help="listen on an address that other hosts reach, without encryption")
    serve.add_argument("--public-url", type=_url, metavar="URL", help="what browsers call it where a proxy stands before it")
    serve.add_argument("--max-tabs", type=_tabs, default=8, metavar="N", help="tabs at a time, each some 100 MB (default 8)")
    serve.add_argument("--demo", action="store_true", help="of a simulated fleet instead of the configured nodes")
    return serve


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to 65535")


def _tabs(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 1000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of tabs: 1 to 1000")


def _url(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment:
        return text.rstrip("/")
    raise argparse.ArgumentTypeError(f"{text!r} is no address of a page, such as https://fleet.example.org")

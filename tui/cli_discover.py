"""The options of `discover`.

Invariant: without --add it changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

EPILOG = """\
every running instance with GPUs is listed, or those with all the tags; each line is the command that adds it:

  rackrate discover aws --region us-east-1                         prints `rackrate add ...` lines
  rackrate discover aws --region us-east-1 --tag team=vision --add asks each agent and adds those that answer

the key is found as the AWS command line finds it; it needs ec2:DescribeInstances. whether an agent runs there is not
known before it is asked; `rackrate-agent init` on a node makes its token and certificate.
"""


def add_discover_command(commands: Any, command: Callable[..., argparse.ArgumentParser], json: Callable[[argparse.ArgumentParser], None]) -> None:
    """`rackrate discover aws`."""
    parser = command(commands, "discover", "discover:discover", "instances of a cloud account that could be nodes")
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("cloud", choices=("aws",), metavar="aws")
    parser.add_argument("--region", action="append", required=True, metavar="R", help="may be repeated")
    parser.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="only instances with it, whatever their type; may be repeated")
    parser.add_argument("--public", action="store_true", help="by their public addresses (default: private)")
    parser.add_argument("--http", action="store_true", help="agents without TLS")
    parser.add_argument("--port", type=int, default=9477, metavar="N", help="of the agents (default 9477)")
    parser.add_argument("--token-file", metavar="FILE", help="file with the token that all of them take")
    parser.add_argument("--add", action="store_true", help="add those that are not configured, after asking each who it is")
    json(parser)

"""The options of the commands that order something of nodes: `node drain|undrain|pause-alerts|resume-alerts`, `mps`.

Invariant: each takes names of nodes or a query, prints its blast radius first, and asks unless `--yes` was given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

NODE_EPILOG = """NODE is a node's name, or several, or else a query as for `rackrate nodes`: 'gpu:A100 zone:use1-az1'.

examples:
  rackrate node drain gpu-07 --reason 'new fan'         no job starts there any more; those that run go on
  rackrate node drain 'tag:vision state:idle' --yes     all that match, without being asked
  rackrate node undrain gpu-07
  rackrate node pause-alerts gpu-07 --for 2h --rule gpu_hot
  rackrate node resume-alerts gpu-07
"""
MPS_EPILOG = """examples:
  rackrate mps gpu-01 0                                 how GPU 0 is shared now
  rackrate mps gpu-01 0,2 --share 50% --memory 8G       what a client of MPS gets that names no limit
  rackrate mps gpu-01 all --share 0.25 --yes
"""
Add = Callable[..., argparse.ArgumentParser]


def add_order_commands(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds them to `commands`; `command` and `json` are those of the other commands."""
    node = command(commands, "node", "node:usage", "drain nodes, pause their alerts")
    _epilog(node, NODE_EPILOG)
    orders = node.add_subparsers(title="orders", metavar="ORDER")
    drain = _order(orders, command, json, "drain", "start no job there any more; those that run go on")
    drain.add_argument("--reason", metavar="TEXT", help="jobs that wait there tell it")
    _order(orders, command, json, "undrain", "let drained nodes start jobs again")
    pause = _order(orders, command, json, "pause-alerts", "show alerts as paused for a while, and fire no metric")
    pause.add_argument("--for", dest="length", metavar="2h", required=True, help="such as 30m, 2h, 1d; then they come back by themselves")
    pause.add_argument("--reason", metavar="TEXT", help="shown beside the alerts")
    resume = _order(orders, command, json, "resume-alerts", "end pauses of alerts")
    for parser in (pause, resume):
        parser.add_argument("--rule", metavar="RULE", help="only this one, such as gpu_hot (default: all)")
        parser.add_argument("--gpu", metavar="GPU", help="only of this GPU: its index or UUID (default: of the whole node)")
    mps = command(commands, "mps", "mps:mps", "show or set how GPUs are shared through MPS")
    _epilog(mps, MPS_EPILOG)
    mps.add_argument("node", metavar="NODE")
    mps.add_argument("gpu", metavar="GPU", help="index, several of them (0,2), or all")
    mps.add_argument("--share", metavar="50%", help="of the SMs: 50%% or 0.5")
    mps.add_argument("--memory", metavar="8G", help="of the GPU's memory")
    _yes(mps)
    json(mps)


def _order(orders: Any, command: Add, json: Callable[[argparse.ArgumentParser], None], name: str, text: str) -> argparse.ArgumentParser:
    parser = command(orders, name, f"node:{name.replace('-', '_')}", text)
    _epilog(parser, NODE_EPILOG)
    parser.add_argument("node", nargs="+", metavar="NODE", help="names of nodes, or a query as for `rackrate nodes`")
    _yes(parser)
    json(parser)
    return parser


def _yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask first")


def _epilog(parser: argparse.ArgumentParser, text: str) -> None:
    parser.epilog = text.replace("%", "%%") if "%(" in text else text
    parser.formatter_class = argparse.RawDescriptionHelpFormatter

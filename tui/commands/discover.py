"""`discover aws`: running instances that could be nodes, as lines that add them.

Invariant: stdout has nothing but lines that a shell can run (or JSON); names from the cloud are quoted, and stripped of controls.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import RackrateError, WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, say

if TYPE_CHECKING:
    from pricing.sources.aws_instances import Instance
    from pricing.sources.aws_session import AwsSession

NEEDS = "ec2:DescribeInstances"


def discover(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Lists them, or adds them with --add."""
    from pricing.sources import NoCredentials
    from pricing.sources.aws_instances import running_instances
    from tui.commands.capacity import of_each, regions_of
    from tui.commands.nodes import tags_of
    from tui.price_sources import aws_session

    tags, catalog, regions = tags_of(arguments.tag), context.catalog(), regions_of(arguments.region)
    if not 1 <= arguments.port <= 65_535:
        raise WrongUsage(f"--port {arguments.port}: a port is between 1 and 65535.")

    def has_gpus(name: str) -> bool:
        shape = catalog.instance("aws", name)
        return shape is not None and bool(shape.gpu_count)

    def read(session: AwsSession, region: str) -> list[Instance]:
        return running_instances(session, region, tags, (lambda name: True) if tags else has_gpus)

    with aws_session() as session:
        try:
            parts = of_each(session, regions, "instances", read)
        except NoCredentials as fault:
            raise NoCredentials(f"{str(fault).removesuffix('.')}; all it needs is {NEEDS}.") from None
    found = [one for part in parts.values() for one in part]
    lost = len(parts) < len(regions)
    known = {node.url for node in context.config.nodes}
    if arguments.json:
        print_json({"instances": [_record(one, arguments, known) for one in found]})
    if not found:
        say(f"No running instance {'has these tags' if tags else 'with GPUs was found'} in {', '.join(regions)}.")
    if arguments.add:
        lost = not all([_add(context, one, arguments, known) for one in found]) or lost
    elif not arguments.json:
        _print(found, arguments, known)
    return ExitCode.PARTLY if lost else ExitCode.DONE


def _print(found: list[Instance], arguments: argparse.Namespace, known: set[str]) -> None:
    for one in found:
        url = _url(one, arguments)
        kind = fmt.clean(" ".join(filter(None, (one.instance_type, one.purchase, one.zone, one.ident))))
        if url is None:
            say(f"{_name(one)}: it has no {_which(arguments)} address  # {kind}")
        elif url in known:
            say(f"{_name(one)}: {url} is configured  # {kind}")
        else:
            print(f"{shlex.join(_words(one, url, arguments))}  # {kind}")


def _words(one: Instance, url: str, arguments: argparse.Namespace) -> list[str]:
    token = ["--token-file", arguments.token_file] if arguments.token_file else []
    return ["rackrate", "add", url, "--name", _name(one), *token]


def _add(context: Context, one: Instance, arguments: argparse.Namespace, known: set[str]) -> bool:
    """Whether it is configured now."""
    from agent.client import ClientError
    from tui.commands.nodes import add

    url = _url(one, arguments)
    if url is None:
        say(f"rackrate: {_name(one)}: it has no {_which(arguments)} address.")
        return False
    if url in known:
        return True
    wanted = argparse.Namespace(url=url, name=_name(one), token_file=arguments.token_file, fingerprint=None, tag=[], no_check=False)
    try:
        add(context, wanted)
    except (RackrateError, ClientError) as error:
        say(f"rackrate: {_name(one)}: {fmt.clean(str(error))}")
        return False
    return True


def _record(one: Instance, arguments: argparse.Namespace, known: set[str]) -> dict[str, Any]:
    url = _url(one, arguments)
    return {
        **one._asdict(), "tags": dict(one.tags), "url": url, "configured": url in known,
        "launched_at": one.launched_at.isoformat() if one.launched_at else None,
    }  # fmt: skip


def _which(arguments: argparse.Namespace) -> str:
    return "public" if arguments.public else "private"


def _url(one: Instance, arguments: argparse.Namespace) -> str | None:
    address = one.public_address if arguments.public else one.private_address
    return f"http{'s' * (not arguments.http)}://{address}:{arguments.port}" if address else None


def _name(one: Instance) -> str:
    return fmt.clean(one.name or one.ident)

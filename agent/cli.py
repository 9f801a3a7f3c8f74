"""`rackrate-agent`: the commands of a node. Data goes to stdout, everything else to stderr.

Invariant: every fault ends as one sentence on stderr and the exit code of its kind (0 done, 1 failed, 2 wrong usage or
configuration); only what a command needs is imported, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from agent.errors import AgentFault

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import AgentConfig

PROGRAM = "rackrate-agent"
_PRESETS = "8xH100, 8xA100, 4xT4, 8xV100, 1xL4, none"
_MAIN_EXAMPLES = """examples:
  rackrate-agent run                       measure this machine, on http://127.0.0.1:9477
  rackrate-agent init && rackrate-agent run    let other machines watch it, over TLS
  rackrate-agent run --simulate 8xH100     the same without a GPU
  rackrate-agent doctor                    what is missing on this machine

environment:
  RACKRATE_HOME      folder of agent.toml and of the state (in its folder agent)
  RACKRATE_METADATA  off: never ask the cloud's metadata service
exit codes: 0 done, 1 failed, 2 wrong usage or configuration"""


class _Parser(argparse.ArgumentParser):
    """Words a usage error as the other faults are worded."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message}; see `{self.prog} --help`\n")


class _Version(argparse.Action):
    """Reads the version only when asked: the package's metadata cost more than all the parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from agent.version import installed

        print(f"{PROGRAM} {installed() or 'unknown'}")
        parser.exit(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; argparse ends the process itself on --help and wrong usage."""
    options = build_parser().parse_args(argv)
    try:
        code = options.command(options)
        sys.stdout.flush()
        return code
    except AgentFault as fault:
        return _fail(str(fault), fault.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader is gone; what is still buffered has nowhere to go
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _fail(f"{(error.strerror or str(error)).lower()}{where}", 1)


def _fail(sentence: str, code: int) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="The agent of a GPU node: measures it, keeps the exact record of who used what, and serves both.",
        epilog=_MAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_run, _add_init, _add_token, _add_doctor, _add_drill, _add_simulate, _add_unit):
        add(commands)
    return parser


Commands = argparse._SubParsersAction  # argparse gives its own type no public name


def _command(
    commands: Commands, name: str, does: str, examples: str, run: Callable[[argparse.Namespace], int] | None = None
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=does,
        description=does[:1].upper() + does[1:] + ".",
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if run is not None:
        parser.set_defaults(command=run)
    return parser


def _add_run(commands: Commands) -> None:
    parser = _command(
        commands,
        "run",
        "measure this machine and serve what is measured, until it is ended",
        "  rackrate-agent run\n"
        "  rackrate-agent run --listen 10.0.0.5:9477        needs TLS: see rackrate-agent init\n"
        "  rackrate-agent run --simulate 8xH100 --state-dir ./state --listen 127.0.0.1:0",
        run_agent,
    )
    _add_config(parser)
    place = parser.add_mutually_exclusive_group()
    does = "where to serve (default 127.0.0.1:9477; port 0 takes a free one)"
    place.add_argument("--listen", metavar="HOST:PORT", help=does)
    place.add_argument("--socket", metavar="PATH", help="serve on a unix socket instead")
    parser.add_argument("--simulate", metavar="PRESET", help=f"made-up GPUs instead of this machine's: {_PRESETS}")
    does = "end once who started it is gone, nobody listens, and no job is left"
    parser.add_argument("--end-when-idle", action="store_true", help=does)


def _add_init(commands: Commands) -> None:
    parser = _command(
        commands,
        "init",
        "make this node's token, TLS certificate and agent.toml, and print the line that adds it to a fleet",
        "  rackrate-agent init --name gpu-01 --host 10.0.0.5\n  rackrate-agent init --new-certificate",
        run_init,
    )
    _add_config(parser)
    parser.add_argument("--name", help="the node's name (default: the host's)")
    parser.add_argument("--host", metavar="ADDRESS", help="name or IP address under which others reach it (default: its own)")
    does = "replace the certificate; clients need its new fingerprint"
    parser.add_argument("--new-certificate", action="store_true", help=does)
    _add_json(parser)


def _add_token(commands: Commands) -> None:
    example = "  rackrate-agent token add laptop"
    parser = _command(commands, "token", "add, list and revoke the tokens that clients use", example)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    example = "  rackrate-agent token add laptop > gpu-01.token\n  rackrate-agent token add ada --user ada > ada.token"
    add = _command(actions, "add", "make a further token and print it once", example, token_add)
    add.add_argument("name", help="what it is for, such as laptop")
    does = "it may submit and change jobs of this user alone (default: of any)"
    add.add_argument("--user", metavar="NAME", help=does)
    listing = _command(actions, "list", "list the tokens, without their secrets", "  rackrate-agent token list --json", token_list)
    does = "end a token at once; the node's own is replaced by a new one"
    revoke = _command(actions, "revoke", does, "  rackrate-agent token revoke laptop", token_revoke)
    revoke.add_argument("token", metavar="ID|NAME", help="its id or name, as in `token list`")
    for action in (add, listing, revoke):
        _add_config(action)
        _add_json(action)


def _add_doctor(commands: Commands) -> None:
    parser = _command(
        commands,
        "doctor",
        "check what the agent needs on this machine, with a remedy for what is missing; ends with 1 if something is",
        "  rackrate-agent doctor\n  rackrate-agent doctor --json",
        run_doctor,
    )
    _add_config(parser)
    parser.add_argument("--listen", metavar="HOST:PORT", help="the address to check (default: the configured one)")
    _add_json(parser)


def _add_drill(commands: Commands) -> None:
    from agent.interruption import drill_options

    parser = _command(commands, "drill", drill_options.DOES, drill_options.EXAMPLES, run_drill)
    drill_options.add(parser, _duration, _count(0))
    _add_json(parser)


def _add_simulate(commands: Commands) -> None:
    parser = _command(
        commands,
        "simulate",
        "run a whole made-up fleet in one process and print one node URL a line",
        "  rackrate-agent simulate --nodes 200 --gpus 8 --seed 7 --listen 127.0.0.1:9500\n"
        "  rackrate-agent simulate --preset demo --listen 127.0.0.1:0 --history 1d",
        run_simulate,
    )
    parser.add_argument("--nodes", type=_count(1), default=12, metavar="N", help="how many nodes (default 12)")
    parser.add_argument("--gpus", type=_count(0), default=8, metavar="G", help="GPUs of each node (default 8)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the same seed gives the same fleet (default 1)")
    parser.add_argument("--listen", default="127.0.0.1:9477", metavar="HOST:PORT", help="where to serve (default 127.0.0.1:9477)")
    parser.add_argument("--preset", choices=("demo",), help="demo: 12 nodes of all kinds, with their faults")
    parser.add_argument("--history", type=_duration, default=0, metavar="SECONDS", help="usage before now: 86400, or 24h, or 1d")
    parser.add_argument("--state-dir", metavar="DIR", help="keep the fleet's usage there (default: in memory)")
    parser.add_argument("--token-file", metavar="FILE", help="token of all nodes, made if it is not there")
    parser.add_argument("--die-with-parent", action="store_true", help="end when the process that started it ends")


def _add_unit(commands: Commands) -> None:
    parser = _command(
        commands,
        "unit",
        "print a systemd unit that runs the agent",
        "  rackrate-agent unit | sudo tee /etc/systemd/system/rackrate-agent.service\n"
        "  sudo systemctl enable --now rackrate-agent",
        run_unit,
    )
    parser.add_argument("--exec", dest="program", metavar="PATH", help="the rackrate-agent to start (default: this one)")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="agent.toml (default: the platform's folder, or in RACKRATE_HOME)")
    parser.add_argument("--state-dir", metavar="DIR", help="where token and usage record are kept")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return parse


def _duration(text: str) -> int:
    """`90`, `90s`, `15m`, `24h` or `1d` as seconds."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:], 0)
    digits = text[:-1] if unit else text
    if not (digits.isascii() and digits.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; write seconds, or 15m, 24h, 1d")
    return int(digits) * (unit or 1)


def load_config(options: argparse.Namespace, *, new: bool = False) -> AgentConfig:
    """The configuration that the options name; `new` as in `config.load`. Raises ConfigurationError."""
    from agent import config

    names = ("listen", "socket", "state_dir", "simulate", "end_when_idle")
    overrides = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    return config.load(options.config, os.environ, new=new, **overrides)


def run_agent(options: argparse.Namespace) -> int:
    from agent.security import check_listen

    config = load_config(options)
    if config.socket is None:
        check_listen(config.host, config.tls)
    from agent import daemon

    daemon.run(config)
    return 0


def run_init(options: argparse.Namespace) -> int:
    from agent import initialise

    config = load_config(options, new=True)
    made = initialise.initialise(config, name=options.name, host=options.host, new_certificate=options.new_certificate)
    if options.json:
        _print_json(made)
    else:
        print(made.add_line)
        print(initialise.explain(made), file=sys.stderr)
    return 0


def token_add(options: argparse.Namespace) -> int:
    from agent import security, state

    directory = state.prepare(load_config(options).state_dir)
    kept, token = security.add_token(directory, options.name, options.user)
    if options.json:
        _print_json({"id": kept.id, "name": kept.name, "user": kept.user, "created_at": kept.created_at, "token": token})
    else:
        print(token)
        whose = f", for jobs of {kept.user} alone" if kept.user else ""
        print(f"{PROGRAM}: token {kept.id} ({kept.name}) is valid now{whose}; it cannot be shown again", file=sys.stderr)
    return 0


def token_list(options: argparse.Namespace) -> int:
    from agent import security

    directory = load_config(options).state_dir
    further = security.list_tokens(directory)
    rows = [{"id": one.id, "name": one.name, "user": one.user, "created_at": one.created_at} for one in further]
    if (directory / security.TOKEN_FILE).exists():
        own = security.token_id(security.read_token(directory))
        rows.insert(0, {"id": own, "name": "node", "user": None, "created_at": None})
    if options.json:
        _print_json({"tokens": rows})
    else:
        for row in rows:
            made = f"{row['created_at']:%Y-%m-%dT%H:%M:%SZ}" if row["created_at"] else "the node's own"
            whose = f"  (jobs of {row['user']})" if row["user"] else ""
            print(f"{row['id']}  {made:20}  {row['name']}{whose}")
    return 0


def token_revoke(options: argparse.Namespace) -> int:
    from agent import security

    directory = load_config(options).state_dir
    revoked = security.revoke_any(directory, options.token)
    if revoked is None:
        raise AgentFault(f"no single token has the id or name {options.token!r}; `rackrate-agent token list` shows them")
    if options.json:
        _print_json({"revoked": {"id": revoked.id, "name": revoked.name}})
    else:
        again = f"; the node's own token is new, in {directory / security.TOKEN_FILE}" if revoked.name == "node" else ""
        print(f"{PROGRAM}: token {revoked.id} ({revoked.name}) is no longer valid{again}", file=sys.stderr)
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    from agent import doctor

    checks = doctor.examine(lambda: load_config(options))
    if options.json:
        _print_json({"checks": checks})
    else:
        print(doctor.render(checks))
    return 1 if any(check.status == "fail" for check in checks) else 0


def run_drill(options: argparse.Namespace) -> int:
    from agent.interruption import drill, drill_options, drill_report

    report = drill.run(drill_options.asked(options, os.environ))
    if options.json:
        _print_json(report)
    else:
        print(drill_report.text(report))
        drill.show_log(report)
    return 0 if report.saved else 1


def run_simulate(options: argparse.Namespace) -> int:
    from agent.simulate import simulate

    return simulate(
        options.nodes,
        options.gpus,
        options.seed,
        options.listen,
        preset=options.preset,
        history_seconds=options.history,
        state_dir=_path(options.state_dir),
        token_file=_path(options.token_file),
        die_with_parent=options.die_with_parent,
    )


def run_unit(options: argparse.Namespace) -> int:
    from agent.unit import systemd_unit

    print(systemd_unit(options.program), end="")
    return 0


def _path(text: str | None) -> Path | None:
    from pathlib import Path

    return Path(text).expanduser().absolute() if text is not None else None


def _print_json(data: object) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode())


if __name__ == "__main__":
    sys.exit(main())

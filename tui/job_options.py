"""What can be asked of a job, by one list for the command line and for files.

Invariant: importing it costs nothing: every command builds the parser that it is part of.
"""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """One key: the same on the command line (`--gpu-share`) and in a file (`gpu_share`)."""

    key: str
    help: str
    metavar: str | None = None
    """None: a switch."""
    many: bool = False
    choices: tuple[str, ...] | None = None

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")


OPTIONS: tuple[Option, ...] = (
    Option(key="node", metavar="NAME", many=True, help="the node to run on; more than once: one of these, or all of --nodes"),
    Option(key="on", metavar="QUERY", help="choose among these nodes, e.g. 'gpu:A100 state:idle' (default: all)"),
    Option(key="gpus", metavar="N", help="whole GPUs"),
    Option(key="gpu_share", metavar="0.5", help="a part of one GPU, shared with others through MPS"),
    Option(key="gpu_memory", metavar="20G", help="most GPU memory of a share"),
    Option(key="nodes", metavar="N", help="run on so many nodes at once, with torchrun"),
    Option(key="processes_per_node", metavar="N", help="with --nodes: processes on each (default: one a GPU)"),
    Option(key="on_node_loss", metavar="stop|continue", choices=("stop", "continue"),
           help="with --nodes: end all when a node is lost (default), or go on with the others from the"
                " last checkpoint (not when the node of the rendezvous is lost)"),
    Option(key="rendezvous", metavar="HOST[:PORT]", help="with --nodes: where they meet (default: the first node's address)"),
    Option(key="cpus", metavar="N", help="CPUs, near its GPUs"),
    Option(key="cpu_quota", help="never more CPU time than --cpus, also when the rest is idle"),
    Option(key="memory", metavar="64G", help="most memory; beyond it the job ends as oom"),
    Option(key="pids", metavar="N", help="most processes and threads"),
    Option(key="io_weight", metavar="N", help="share of disk time, 1 to 10000 (100 is everybody's)"),
    Option(key="time_limit", metavar="8h", help="stop it after so long"),
    Option(key="budget", metavar="40usd", help="stop it when it has cost so much"),
    Option(key="deadline", metavar="WHEN", help="when it has to be done: +6h, 18:00 or 2026-01-31T18:00"),
    Option(key="interruptible", help="may be stopped softly and queued again"),
    Option(key="retries", metavar="N", help="run it again so often when it fails"),
    Option(key="retry_on", metavar="CAUSES", help="such as oom,exit (default: exit,signal,lost,node_reboot)"),
    Option(key="after", metavar="JOB", many=True, help="wait until this one ended well; any:JOB: ended; notok:JOB: failed"),
    Option(key="array", metavar="10%2", help="so many tasks, two at once; also 0-9 or 1,3,7-9"),
    Option(key="priority", metavar="N", help="-1000 to 1000; higher goes first"),
    Option(key="name", metavar="TEXT", help="what to call it"),
    Option(key="project", metavar="P", help="whom it is for, in reports"),
    Option(key="user", metavar="NAME", help="whom it runs as (default: you)"),
    Option(key="env", metavar="K=V", many=True, help="an environment variable; K alone takes its value from here"),
    Option(key="secret", metavar="NAME=FILE", many=True, help="a file that only the job can read, in $CREDENTIALS_DIRECTORY"),
    Option(key="workdir", metavar="DIR", help="send this folder along and run in it (less what .rackrateignore names)"),
    Option(key="chdir", metavar="DIR", help="run in this folder of the node, or of what --workdir sends"),
    Option(key="shell", help="the command is one text for /bin/sh"),
    Option(key="stop_signal", metavar="NAME", help="the soft signal (default TERM)"),
    Option(key="grace", metavar="30s", help="from the soft signal to the kill"),
    Option(key="idle_stop", metavar="30m", help="stop it when its GPUs stand idle for so long"),
    Option(key="log_quota", metavar="1G", help="most log that is kept"),
    Option(key="strict", help="refuse it where one of its limits cannot be enforced"),
    Option(key="recipe", metavar="NAME", help="a training program that ships, in the place of a command; `list` names them"),
    Option(key="set", metavar="K=V", many=True, help="with --recipe: one of its settings; `list` shows them all"),
)  # fmt: skip
BY_KEY = {option.key: option for option in OPTIONS}
FILE_KEYS = ("command", *BY_KEY)

"""The systemd unit that runs the agent.

Invariant: what the unit shuts off (writing outside its own folders, new privileges) is never something that the agent
measures with: it sees all processes, all devices and all network interfaces of the machine.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_UNIT = """\
# Written by `rackrate-agent unit`. Put it into /etc/systemd/system/rackrate-agent.service, then:
#   systemctl daemon-reload && systemctl enable --now rackrate-agent
[Unit]
Description=Rackrate agent: GPU use and cost of this node
Wants=network-online.target
After=network-online.target nvidia-persistenced.service

[Service]
Type=exec
ExecStart={command} run
# 2: wrong usage or configuration, which a restart does not cure.
RestartPreventExitStatus=2
Restart=on-failure
RestartSec=5
TimeoutStopSec=20
# Root: who runs on a GPU, and for which job, can be read of other users' processes only by root.
User=root
StateDirectory=rackrate
StateDirectoryMode=0700
ConfigurationDirectory=rackrate
LimitNOFILE=65536
OOMScoreAdjust=-500
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
RestrictSUIDSGID=yes
LockPersonality=yes

[Install]
WantedBy=multi-user.target
"""


def systemd_unit(program: str | None = None) -> str:
    """The unit's text; `program` is the rackrate-agent to start (default: the one that runs now)."""
    return _UNIT.format(command=" ".join(_quoted(part) for part in _command(program)))


def _command(program: str | None) -> list[str]:
    if program is not None:
        return [str(Path(program).expanduser().absolute())]
    here = Path(sys.executable).with_name("rackrate-agent")
    found = str(here) if here.exists() else shutil.which("rackrate-agent")
    return [found] if found else [sys.executable, "-m", "agent.cli"]


def _quoted(word: str) -> str:
    """As systemd.service(5) reads it: % and $ are doubled, the rest stands in quotes where it must."""
    word = word.replace("%", "%%").replace("$", "$$")
    if all(character.isalnum() or character in "/._-+:@%$" for character in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'

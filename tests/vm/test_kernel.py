"""What `make test-vm` runs on: a kernel with cgroups version 2. Elsewhere these tests say why they do not run.

The checks of limits, kills and clean-up themselves are `tests/agent/isolation/test_group.py`, the same as on any host.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.isolation.host import describe, detect
from tests.support.isolation import modes

IN_VM = os.environ.get("RACKRATE_VM") in ("uml", "qemu")
pytestmark = pytest.mark.skipif(not IN_VM, reason="a virtual machine's kernel is needed: make test-vm")


def test_the_machine_has_cgroups_of_version_2_with_the_controllers_that_matter() -> None:
    host = detect()
    assert (host.enforcement, host.can_kill, host.crowded) == ("v2", True, False)
    assert {"cpu", "io", "memory", "pids"} <= host.controllers
    assert modes() == ["v2"]
    assert describe(host).startswith("cgroups version 2: ")
    assert Path("/sys/fs/cgroup/cgroup.controllers").exists()

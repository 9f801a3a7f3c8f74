"""The stand-in daemon against transcripts of NVIDIA's own 535.261 and 550.163: what our driver is tested on is what they say."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.fake_mps.rig import FOLDER, write_program


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="the transcripts have a line that root asks as nobody"
)
def test_the_stand_in_answers_as_both_real_daemons_byte_for_byte() -> None:
    folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    folder.chmod(0o755)
    program = write_program(folder / "nvidia-cuda-mps-control")
    try:
        runs = {}
        for version in ("535.261", "550.163"):
            environment = {**os.environ, "FAKE_MPS_VERSION": version[:3], "FAKE_MPS_SERVER": "die"}
            command = ["bash", str(FOLDER / "transcript.sh"), str(program)]
            runs[version] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        for version, run in runs.items():
            said, _ = run.communicate(timeout=240)
            assert said.decode().splitlines() == (FOLDER / f"real-{version}.txt").read_text().splitlines(), version
            assert said == (FOLDER / f"real-{version}.txt").read_bytes()
    finally:
        shutil.rmtree(folder)

"""Pictures of the screens of jobs, from two real agents on the stand-in NVML with real jobs. Needs root and a C compiler.

Arguments: the folder to write into (`screenshots`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.job_agent import JobAgent

ROOT = Path(__file__).parents[2]
AWS = 'cloud = "aws"\nregion = "us-east-1"\ninstance_type = "{}"\npurchase = "{}"'
TRAIN = (
    "import time\nfor step in range(1, 100000):\n"
    " print(f'\\033[36mstep {step:5d}\\033[0m  loss {2.3 / (1 + step / 40):.4f}  {118 + step % 7} samples/s', flush=True)\n time.sleep(0.15)"
)


def jobs_of(first: JobAgent, second: JobAgent, folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    (folder / "embed.py").write_text("b = bytearray(600 << 20)")
    (folder / "evaluate.py").write_text("")

    def send(agent: JobAgent, script: str, **spec: object) -> None:
        agent.submit("python3", script, workdir=str(folder), **spec)

    send(first, "embed.py", name="embed-books", project="search", memory_bytes=200 << 20)
    send(first, "evaluate.py", name="evaluate", project="vision", gpus=1)
    send(first, "train.py", name="resnet-sweep", project="vision", gpus=4, time_limit_seconds=8 * 3600, budget_usd="120",
         interruptible=True, node_usd_per_hour="21.957642")  # fmt: skip
    send(first, "train.py", name="segment", project="vision", gpus=2, time_limit_seconds=3600, node_usd_per_hour="21.957642")
    send(first, "train.py", name="pretrain-7b", project="nlp", gpus=8, time_limit_seconds=48 * 3600, priority=5)
    send(second, "train.py", name="whisper-ft", project="speech", gpus=2, memory_bytes=2 << 30)
    send(second, "train.py", name="grid", project="speech", gpus=1, array=[1, 2, 3, 4], array_at_once=1)


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        agents = [
            JobAgent(folder / "a", name="a100-train-01", gpus=8, board="A100", node=AWS.format("p4d.24xlarge", "on_demand")),
            JobAgent(folder / "b", name="t4-batch-07", gpus=4, board="T4", node=AWS.format("g4dn.12xlarge", "spot")),
        ]
        try:
            for agent in agents:
                agent.start()
            jobs_of(*agents, folder)
            time.sleep(8)
            nodes = "".join(
                f'[[nodes]]\nname = "{name}"\nurl = "{agent.url}"\ntoken_file = "{agent.state / "token"}"\n'
                for name, agent in zip(("a100-train-01", "t4-batch-07"), agents, strict=True)
            )
            (folder / "config.toml").write_text(nodes)
            for screen, size in (("jobs", "140x20"), ("job", "150x36")):
                for kind in ("png",):
                    command = ["-m", "tui.cli", "screenshot", "--screen", screen, "--size", size, str(out / f"{screen}.{kind}")]
                    subprocess.run([sys.executable, *command], check=True, cwd=ROOT, env={**os.environ, "RACKRATE_HOME": name})
        finally:
            for agent in agents:
                agent.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())

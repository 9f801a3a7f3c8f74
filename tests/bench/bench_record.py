"""Recording 1,000 nodes of 8 GPUs at 1 Hz, beside NDJSON of the same samples as it is and through zlib: bytes a node-hour, CPU a
second, memory; and how long a jump in the recording takes.

Arguments: nodes, seconds (1000 90).
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
import zlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agent import wire
from agent.simulation.fleet import plan_fleet
from agent.simulation.model import NodeModel
from tui.config import NodeConfig
from tui.fleet import Fleet
from tui.record import Recorder, Writer, begin_session
from tui.record_file import RecordFile
from tui.replay import Recording

WRITE_SECONDS = 5
START_MS = 1_796_040_000_000


def sample_of(model: NodeModel, at_ms: int, sequence: int) -> wire.Sample:
    taken = datetime.fromtimestamp(at_ms / 1000, UTC)
    return wire.Sample(node=model.plan.name, sequence=sequence, taken_at=taken, host=model.host_at(at_ms), gpus=model.gpus_at(at_ms))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(count: int, seconds: int) -> None:
    models = [NodeModel(plan, 7) for plan in plan_fleet(count, 8, 7, START_MS / 1000)]
    nodes = [NodeConfig(name=model.plan.name, url="http://127.0.0.1:9") for model in models]
    fleet, now = Fleet(), [START_MS]
    for node in nodes:
        fleet.add(node.name, node.url)
    with tempfile.TemporaryDirectory() as folder:
        file = RecordFile.write(Path(folder) / "bench.rec")
        ids = begin_session(file, nodes, {"nodes": [node.name for node in nodes]}, START_MS)
        recorder, writer = Recorder(ids, lambda: now[0]), Writer(file, START_MS)
        writer.write(recorder.take())
        for model in models:
            info = model.node_info(datetime.fromtimestamp(START_MS / 1000, UTC))
            fleet.apply(model.plan.name, wire.NodeEvent(node=info), 0.0)
            recorder.heard(fleet[model.plan.name], wire.NodeEvent(node=info))
        memory, spent, worst, plain, squeezed, deflate = peak_mb(), 0.0, 0.0, 0, 0, zlib.compressobj(6)
        for second in range(1, seconds + 1):
            now[0] = START_MS + second * 1000
            samples = [(fleet[model.plan.name], wire.SampleEvent(sample=sample_of(model, now[0], second))) for model in models]
            begin = time.process_time()
            for view, event in samples:
                recorder.heard(view, event)
            if second % WRITE_SECONDS == 0:
                took = time.process_time()
                batch = recorder.take()
                worst = max(worst, time.process_time() - took)
                writer.write(batch)
            spent += time.process_time() - begin
            for view, event in samples:
                fleet.apply(view.name, event, float(second))
                line = msgspec.json.encode(event.sample)
                plain, squeezed = plain + len(line), squeezed + len(deflate.compress(line))
        writer.write(recorder.take())
        file.close()
        hours = count * seconds / 3600
        size = (Path(folder) / "bench.rec").stat().st_size
        rows = (("recording", size), ("NDJSON through zlib", squeezed), ("NDJSON", plain))
        for name, amount in rows:
            print(f"{name:20} {amount / hours / 1000:10,.0f} kB a node-hour   {amount / size:6.1f} x")
        print(f"CPU of recording     {spent / seconds * 1000:10,.0f} ms a second for {count:,} nodes ({spent / seconds / count * 1e6:.0f} us a sample)")
        print(f"longest hold of the loop {worst * 1000:6,.0f} ms (every {WRITE_SECONDS} s); memory at most {peak_mb() - memory:,.0f} MB more")
        with RecordFile.read(Path(folder) / "bench.rec") as opened:
            recording = Recording(opened)
            for name, back in (("the first", 0), ("a second back", 1000), ("a minute back", 61_000)):
                begin, used = time.perf_counter(), time.process_time()
                recording.fleet(recording.ends_ms - back, 0.0)
                print(f"jump, {name:14} {time.perf_counter() - begin:10.2f} s ({time.process_time() - used:.2f} s of CPU)")
            begin, used = time.perf_counter(), time.process_time()
            recording.between(recording.ends_ms - 2000, recording.ends_ms - 1000)
            print(f"a second on          {time.perf_counter() - begin:10.2f} s ({time.process_time() - used:.2f} s of CPU)")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3] or ("1000", "90")))

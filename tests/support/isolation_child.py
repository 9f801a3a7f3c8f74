"""Uses `agent.isolation.group` as a shim does: `python -I -S isolation_child.py ROOT TASK`, values as JSON on stdin."""

import sys

sys.path.insert(0, sys.argv[1])
from agent.isolation.group import Group, GroupError  # noqa: E402

LOADED = sorted(sys.modules)
import json  # noqa: E402
import os  # noqa: E402


def prepare(plan):
    try:
        applied, failed, steps = Group(plan).prepare()
    except GroupError as error:
        return {"error": str(error)}
    return {"applied": applied, "failed": failed, "steps": steps}


def job(plan, code):
    """A whole life: the groups, a job of Python code in them, its counters, its end."""
    group = Group(plan)
    _, failed, steps = group.prepare()
    pid = os.fork()
    if pid == 0:
        group.enter()
        os.execv(sys.executable, [sys.executable, "-c", code])
    with open("/proc/self/cgroup") as file:
        shim = file.read().strip()
    _, status = os.waitpid(pid, 0)
    left = group.pids()
    group.kill()
    while not group.empty():
        pass
    counters = group.counters()
    return {
        "failed": failed,
        "steps": steps,
        "shim": shim,
        "status": status,
        "left": left,
        "counters": counters,
        "removed": group.remove(),
    }


def churn(plan, unit, count):
    """Makes, enters, counts and removes so many groups; tells which were not removed."""
    left, text = [], json.dumps(plan)
    for number in range(count):
        name = f"job-{number:012d}-1"
        group = Group(json.loads(text.replace(unit, name)))
        group.prepare()
        pid = os.fork()
        if pid == 0:
            group.enter()
            os._exit(0)
        os.waitpid(pid, 0)
        group.counters()
        if not (group.empty() and group.remove()):
            left.append(name)
    return {"left": left}


def weigh():
    with open("/proc/self/smaps_rollup") as file:
        pss = next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return {"pss_bytes": pss, "modules": LOADED}


print(json.dumps({"prepare": prepare, "job": job, "churn": churn, "weigh": weigh}[sys.argv[2]](*json.load(sys.stdin))))

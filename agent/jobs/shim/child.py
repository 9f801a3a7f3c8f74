"""From a fork to the job's program: limits first, then everything that makes it somebody else's process.

Invariant: the program begins with exactly what launch.json says (user, groups, environment, directory, umask), no descriptor
beyond 0, 1, 2, no signal blocked or ignored; or it does not begin, and the reason comes back over a pipe.
"""

from __future__ import annotations

import errno
import os
import resource
import signal

from agent.jobs.shim.launch import Launch, StartError
from agent.jobs.shim.prctl import no_new_privileges

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from typing import Any, NoReturn

GO = b"go\n"
"""What the child says just before its program; the end of the pipe without it means that the child was killed before."""
_DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
_UNBLOCKABLE = (signal.SIGKILL, signal.SIGSTOP)


def fork(launch: Launch, group: Any, log: int) -> tuple[int, int]:
    """(pid of the child, the pipe that `failure` reads). Raises StartError."""
    try:
        receive, report = os.pipe()
        pid = os.fork()
    except OSError as error:
        raise StartError(f"no process could be made for the job: {error.strerror}") from None
    if pid == 0:
        _become(launch, group, log, report)
    os.close(report)
    return pid, receive


def _become(launch: Launch, group: Any, log: int, report: int) -> NoReturn:
    step = "setup"
    try:
        for step, action in (
            ("group", group.enter),
            ("setup", lambda: _detach(launch, log)),
            ("user", lambda: _become_user(launch)),
            ("privileges", lambda: no_new_privileges() if launch.no_new_privileges else None),
            ("directory", lambda: os.chdir(launch.directory)),
            ("program", lambda: _execute(launch, report)),
        ):
            action()
    except BaseException as error:  # noqa: BLE001 - nothing of the shim may go on in the child
        number = getattr(error, "errno", None) or 0
        os.write(report, f"{step}\0{number}\0{error}".encode("utf-8", "replace")[:4000])
    finally:
        os._exit(127)


def _detach(launch: Launch, log: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _set_oom_score()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in _UNBLOCKABLE:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(launch.umask)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _set_oom_score() -> None:
    """An agent that is spared from the OOM killer must not hand that on: a limit could not be enforced."""
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(score, b"0")
    except OSError:  # to lower it is not allowed to everybody, and not needed
        pass
    finally:
        os.close(score)


def _become_user(launch: Launch) -> None:
    user = launch.user
    if user is None:
        return
    same = os.getresuid() == (user.uid,) * 3 and os.getresgid() == (user.gid,) * 3
    if same and os.geteuid() != 0:
        return  # who is not root may not call setgroups, and has these already
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def _execute(launch: Launch, report: int) -> None:
    """Tries each place where the program may be, like execvp, in the job's own PATH."""
    os.write(report, GO)
    worst: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _places(launch):
        try:
            os.execve(path, launch.argv, launch.environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                if b"/" in launch.argv[0] or error.errno != errno.EACCES:
                    raise
                worst = error
            elif os.path.lexists(path):
                worst = FileNotFoundError(errno.ELIBBAD, "interpreter")
    raise worst


def _places(launch: Launch) -> list[bytes]:
    program = launch.argv[0]
    if b"/" in program:
        return [os.path.join(launch.directory, program)]
    path = launch.environment.get(b"PATH", _DEFAULT_PATH)
    return [os.path.join(launch.directory, folder, program) for folder in path.split(b":")]


def failure(launch: Launch, report: bytes) -> str:
    """What a child said over its pipe, as a sentence."""
    step, number, text = report.removeprefix(GO).decode("utf-8", "replace").split("\0", 2)
    reason = os.strerror(int(number)) if number != "0" else text
    who = f"user {launch.user.name}" if launch.user is not None else "the agent's user"
    if step == "group":
        return f"the job could not be put into its cgroup: {text}"
    if step == "user":
        return f"the job cannot run as {who}: {reason}; only an agent that runs as root can start jobs of other users"
    if step == "privileges":
        return f"the job cannot be kept from gaining privileges: {reason}"
    if step == "directory":
        return f"the working directory {_shown(launch.directory)} cannot be entered by {who}: {reason}"
    if step == "program":
        return _no_program(launch, int(number), reason, who)
    return f"the job's process could not be set up: {reason}"


def _no_program(launch: Launch, number: int, reason: str, who: str) -> str:
    program = _shown(launch.argv[0])
    if number == errno.ELIBBAD:
        return f"the program {program} is there, but the interpreter that its first line names is not"
    if number == errno.ENOENT and b"/" not in launch.argv[0]:
        return (
            f"the program {program} was not found in the job's PATH ({_shown(launch.environment.get(b'PATH', _DEFAULT_PATH))})"
        )
    if number == errno.ENOENT:
        return f"the program {program} was not found from {_shown(launch.directory)}"
    if number == errno.EACCES:
        return f"the program {program} may not be run by {who}: it is not executable for them, or its folder is closed"
    if number == errno.ENOEXEC:
        return f"the program {program} is no program for this machine; a script needs a first line like #!/bin/sh"
    return f"the program {program} cannot be run: {reason}"


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")

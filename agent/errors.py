"""Errors of the agent: each is one sentence that says what was wrong, where, and what to do.

AgentFault
├── ConfigurationError      a file or option is wrong                       exit 2
├── StateDirectoryError     the state directory cannot be used              exit 1
│   ├── StateLocked         another agent runs on it
│   ├── StateTooNew         a newer version wrote it
│   └── StateFull           no space left on the device
├── ListenRefused           off loopback without TLS, or the port is taken  exit 2 / 1
├── JobFault                                                                HTTP status
│   ├── JobRefused          what was asked for cannot be done               400
│   ├── JobForbidden        this asker may not                              403
│   ├── JobUnknown          there is no such job, upload or GPU             404
│   └── JobConflict         not in this state (ended, not reserved)         409
├── IsolationFault          a cgroup cannot be made, written or read
└── MpsFault                the MPS control daemon refuses, is silent or is not there
"""

from __future__ import annotations


class AgentFault(Exception):
    """The root; `str()` is a sentence for a person."""

    exit_code = 1


class ConfigurationError(AgentFault):
    """A configuration file or an option is wrong: names the file, the key and what is allowed."""

    exit_code = 2


class StateDirectoryError(AgentFault):
    """The state directory cannot be used."""


class StateLocked(StateDirectoryError):
    """Another agent runs on the same state directory."""


class StateTooNew(StateDirectoryError):
    """The state was written by a newer version than this one."""


class StateFull(StateDirectoryError):
    """No space is left where the state directory is."""


class ListenRefused(AgentFault):
    """The agent will not, or cannot, listen where it was told to."""

    exit_code = 2


class JobFault(AgentFault):
    """Something about a job; `status` is the HTTP status of the answer."""

    status = 500


class JobRefused(JobFault):
    """The job, as it was asked for, cannot be run here; nothing was started."""

    status = 400


class JobForbidden(JobFault):
    """Whoever asks may not do this (another user's name, root)."""

    status = 403


class JobUnknown(JobFault):
    """There is no job, upload or GPU of this name."""

    status = 404


class JobConflict(JobFault):
    """The job is not in a state in which this can be done."""

    status = 409


class IsolationFault(AgentFault):
    """A cgroup cannot be made, written or read."""


class MpsFault(AgentFault):
    """The MPS control daemon refuses, is silent, or is not there."""

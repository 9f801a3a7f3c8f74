"""Errors of the agent: each is one sentence that says what was wrong, where, and what to do.

AgentFault
├── ConfigurationError      a file or option is wrong                       exit 2
├── StateDirectoryError     the state directory cannot be used              exit 1
│   ├── StateLocked         another agent runs on it
│   ├── StateTooNew         a newer version wrote it
│   └── StateFull           no space left on the device
└── ListenRefused           off loopback without TLS, or the port is taken  exit 2 / 1
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

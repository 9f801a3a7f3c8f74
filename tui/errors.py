"""Errors of the app and the commands: each is one sentence, with the exit code that the design gives it.

RackrateError
├── WrongUsage              an option, query or date is wrong              exit 2
├── ConfigurationError      config.toml is wrong: file, key, what is allowed  exit 2
└── Failed                  anything else that stopped the work            exit 1
"""

from __future__ import annotations

from tui.exit_codes import ExitCode


class RackrateError(Exception):
    """The root; `str()` is a sentence for a person."""

    exit_code: ExitCode = ExitCode.FAILED


class Failed(RackrateError):
    """The work stopped; the sentence says where and what to do."""


class WrongUsage(RackrateError):
    """An option, a query or a date is wrong."""

    exit_code = ExitCode.USAGE


class ConfigurationError(RackrateError):
    """A configuration file is wrong: names the file, the key and what is allowed."""

    exit_code = ExitCode.USAGE

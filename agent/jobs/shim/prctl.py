"""Two switches of the kernel that Python has no call for.

Invariant: what could not be switched on is an OSError, never silence.
"""

from __future__ import annotations

import ctypes
import os

_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def become_subreaper() -> None:
    """Descendants whose parent ends become children of this process instead of process 1."""
    _switch_on(_SET_CHILD_SUBREAPER)


def no_new_privileges() -> None:
    """No program run from here gains rights by its owner (setuid) or its capabilities."""
    _switch_on(_SET_NO_NEW_PRIVS)


def _switch_on(option: int) -> None:
    if _prctl(option, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""Who runs this program, as nodes call them: what `user:me` means, and whose a job is.

Invariant: there always is a name; a user in no list of users (a container that runs with any number) is that number.
"""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The login name, else the number that agents show too."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

"""Ids of jobs, and the names made of them.

Invariant: only a text that `wire.JOB_ID` matches wholly becomes part of a path or a cgroup; ids made here sort by time
and are never made twice by one `IdSource`.

An id is 12 characters of Crockford's base 32 in lower case: 7 of time (eighths of a second since 1970: until 3059 AD
would need 8) and 5 of chance.
"""

from __future__ import annotations

import random
import re
import secrets
import time
from collections.abc import Callable

from agent import wire
from agent.errors import JobUnknown

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

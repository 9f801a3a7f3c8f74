"""Whether an extra is installed, without importing it: a file that is collected need not pay for what only its tests use."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*modules: str, extra: str) -> None:
    """Skips the file that calls it where one of the modules is not installed."""
    for module in modules:
        if find_spec(module) is None:
            pytest.skip(f"could not find {module!r}: the extra `{extra}` is not installed", allow_module_level=True)

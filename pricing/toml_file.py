"""Reading a TOML file of the user's: terms, a workload, a what-if.

Invariant: what cannot be read is one sentence of the caller's own error, which names the file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pricing.errors import PricingError


def read_toml(path: Path, fault: type[PricingError]) -> dict[str, Any]:
    """What the file holds, also after a byte order mark. Raises `fault`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise fault(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise fault(f"{path}: is not UTF-8 (byte {error.start}).") from None
    except tomllib.TOMLDecodeError as error:
        raise fault(f"{path}: is not valid TOML: {error}.") from None

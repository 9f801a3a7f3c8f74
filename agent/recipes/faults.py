"""What a recipe can say is wrong, one sentence each.

RecipeFault
├── WrongSettings        a flag or a key of the settings file            exit 2
├── DataFault            the data are not there, or too many are broken  exit 1
├── CheckpointFault      no folder to write to, or another model's       exit 1
└── OutOfMemory          and which batch would fit                       exit 1
"""

from __future__ import annotations


class RecipeFault(Exception):
    """The root; `str()` is a sentence for a person."""

    exit_code = 1


class WrongSettings(RecipeFault):
    """A setting is unknown, out of its range, or does not go with another or with this machine."""

    exit_code = 2


class DataFault(RecipeFault):
    """The folder of the data is missing, empty, or has more broken files than allowed."""


class CheckpointFault(RecipeFault):
    """The checkpoint belongs to another model, or its folder cannot be written."""


class OutOfMemory(RecipeFault):
    """The batch does not fit."""

"""What no output may say: `1 actions`, `the 1.0 spot`, `0.0 nodes`.

Invariant: whatever a test looks at (a command's output, a screen) has been looked through by `well_worded` before.
"""

from __future__ import annotations

import re

NOUNS = (
    "actions", "alerts", "attempts", "blocks", "budgets", "changes", "checks", "clouds", "columns", "commitments", "cores", "cpus",
    "days", "entries", "epochs", "events", "files", "filters", "gpus", "groups", "hours", "ids", "instances", "jobs", "keys",
    "lines", "links", "machines", "marks", "messages", "minutes", "months", "names", "nodes", "notes", "notices", "offers", "others",
    "pages", "pauses", "pieces", "points", "policies", "pools", "prices", "processes", "ranks", "readings", "regions", "requests",
    "rows", "samples", "seconds", "seeds", "segments", "series", "steps", "terms", "threads", "tokens", "traces", "trials", "types",
    "updates", "users", "weeks", "words", "workers", "years", "zones",
)  # fmt: skip
_ONE_OF_MANY = re.compile(rf"(?<![\w.,:/$€£+×%=*^-])1(?: (?:more|new|other|idle|held|free|spot|running|recorded|whole|days'|old))? ({'|'.join(NOUNS)})\b(?! of 1\b)", re.I)
_PARTS_OF_WHOLE = re.compile(r"(?<![\w.,:/$-])\d+\.0+ (spot|nodes?|gpus?|jobs?|on-demand|instances?|rows?)\b", re.I)
_AS_TOLD = re.compile(r"--\S+ 1 \w+|\"\S*\"")
"""A command line, or a quoted text of somebody."""


def faults_of(text: str) -> list[str]:
    """Each wrong wording with what stands around it."""
    plain = _AS_TOLD.sub(" ", text)
    found = [match for rule in (_ONE_OF_MANY, _PARTS_OF_WHOLE) for match in rule.finditer(plain)]
    return [" ".join(plain[max(0, match.start() - 30) : match.end() + 20].split()) for match in found]


def well_worded(text: str) -> str:
    """The text itself. AssertionError: it says `1 actions` or the like."""
    faults = faults_of(text)
    assert not faults, f"wrong wording: {faults}"
    return text

"""Keys, known values and kept filters of queries, for the completion of a shell.

Invariant: completing asks no node and starts no program: what is offered was written into the script when it was made.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping

from tui.query import NODE_WORDS, Words
from tui.query_tree import spell_value


def kinds() -> dict[str, Words]:
    """Commands with a query -> what can be asked there."""
    from tui.job_rows import JOB_WORDS
    from tui.query_rows import ALERT_WORDS, GPU_WORDS, OFFER_WORDS

    return {"nodes": NODE_WORDS, "gpus": GPU_WORDS, "alerts": ALERT_WORDS, "jobs": JOB_WORDS, "prices": OFFER_WORDS, "watch": NODE_WORDS}


def terms(words: Words, named: Mapping[str, str]) -> list[str]:
    """`state:`, `state:live`, ..., `util<`, `@mine`: nothing that a shell would have to quote but the `<`."""
    found = [f"{key}:" for key in words.text_keys]
    found += [f"{key}:{spell_value(value)}" for key, values in words.known.items() for value in values if value.replace("_", "").isalnum()]
    found += [f"{key}<" for key in words.number_keys if key != "$"]
    return [*found, *(f"@{name}" for name in sorted(named))]


def prepare(parser: argparse.ArgumentParser, named: Mapping[str, str]) -> dict[str, str]:
    """Gives each QUERY of the parser its completion; returns the functions that the scripts need, by shell."""
    bash, zsh = [_BASH], [_ZSH]
    known = kinds()
    for command, action in _queries(parser):
        if command in known:
            name = f"_rackrate_query_{command}"
            listed = " ".join(map(shlex.quote, terms(known[command], named)))
            action.complete = {"bash": name, "zsh": name}  # type: ignore[attr-defined] - how shtab is told
            bash.append(f"{name}() {{ _rackrate_terms {listed}; }}")
            zsh.append(f"{name}() {{ _rackrate_terms {listed}; }}")
    return {"bash": "\n".join(bash), "zsh": "\n".join(zsh)}


def _queries(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from ((name, each) for each in inner._actions if each.dest == "query")


_BASH = r"""# bash replaces what is behind the last colon; in quotes everything behind the quote.
_rackrate_terms() {
  local line="${COMP_LINE:0:COMP_POINT}" whole="${COMP_WORDS[COMP_CWORD]}" word term kept="" before=""
  word="${line##*[[:space:]\"\'(!]}"
  if [[ "$whole" == [\"\']* ]]; then
    before="${whole:1}"
    before="${before%"$word"}"
  elif [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
    kept="${word%:*}:"
  fi
  compopt -o nospace 2>/dev/null || :
  for term in "$@"; do
    [[ "$term" == "$word"* && "$term" != "$word" ]] && printf '%s\n' "$before${term#"$kept"}"
  done
}"""
_ZSH = r"""_rackrate_terms() {
  compset -P '*[[:space:]"(!]'
  compadd -S '' -- "$@"
}"""

"""A counterexample of TLC as a story: one line for each step, and what the partitions hold in the end."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_WORD = re.compile(r'"([^"]*)"|(\{[^}]*\}|-?\d+|\w+)')
_RECORD = re.compile(r'state \|-> "(\w+)", tx \|-> (\d+)')
_FATE = re.compile(r'fate \|-> "(\w+)"')
_PARTITION = re.compile(r"(\w+) :> ")
_NOT_BEGUN: Final = "none"


def tell(trace: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of the story."""
    states = [state for state in trace if "step" in state]
    for number, state in enumerate(states[1:], 1):
        words = " ".join(spoken or plain for spoken, plain in _WORD.findall(state["step"]))
        yield f"{number:3}. {words}"
    if len(states) < len(trace):
        yield "     and so on without end: nothing else happens"
    if states:
        yield from _end(states[-1])


def _end(state: Mapping[str, str]) -> Iterator[str]:
    _, *pieces = _PARTITION.split(state["partition"])
    for name, value in zip(pieces[::2], pieces[1::2], strict=True):
        records = [f"of transaction {tx} {outcome}" for outcome, tx in _RECORD.findall(value)]
        yield f"     partition {name}: " + (", ".join(f"record {record}" for record in records) or "no records")
    for number, fate in enumerate(_FATE.findall(state["history"]), 1):
        if fate != _NOT_BEGUN:
            yield f"     transaction {number}, by its client: {fate}"

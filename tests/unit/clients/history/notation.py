"""Histories as text, one operation a line: ``process kind start-end outcome item…``.

Items: ``>a@3=x`` wrote x to partition a and was given the offset 3; ``>a=x`` wrote it and knows no offset; ``<a@3=x``
read x at offset 3 of a; ``[a,b]`` the partitions of an assignment or a final read; ``~a`` the position in a was set;
``#g/a=4`` the position of group g in a. An operation of a client that died has the end ``?``.
"""

import re

from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Kind, Operation, Outcome, Read, Send

_LINE = re.compile(r"(\S+) (\w+) (\d+)-(\d+|\?) (\w+)(.*)")
_ITEM = re.compile(
    r">(?P<to>\w+)(@(?P<sent>\d+))?=(?P<written>\S+)|<(?P<of>\w+)@(?P<at>\d+)=(?P<value>\S+)"
    r"|\[(?P<names>[\w,]+)\]|~(?P<moved>\w+)|#(?P<group>\w+)/(?P<place>\w+)=(?P<position>\d+)"
)


def parse(text: str) -> History:
    return History([_operation(line.strip()) for line in text.strip().splitlines()])


def _operation(line: str) -> Operation:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    process, kind, start, end, outcome, rest = found.groups()
    sends: list[Send] = []
    reads: list[Read] = []
    names: list[str] = []
    moved: list[str] = []
    positions: dict[str, dict[str, int]] = {}
    for item in rest.split():
        part = _ITEM.fullmatch(item)
        assert part is not None, item
        if part["to"]:
            sends.append(Send(part["to"], None if part["sent"] is None else int(part["sent"]), part["written"]))
        elif part["of"]:
            reads.append(Read(part["of"], int(part["at"]), part["value"]))
        elif part["names"]:
            names += part["names"].split(",")
        elif part["moved"]:
            moved.append(part["moved"])
        else:
            positions.setdefault(part["group"], {})[part["place"]] = int(part["position"])
    return Operation(
        process=process,
        kind=Kind(kind),
        outcome=Outcome(outcome),
        start=int(start),
        end=None if end == "?" else int(end),
        sends=tuple(sends),
        reads=tuple(reads),
        partitions=tuple(names),
        moved=tuple(moved),
        positions=positions,
        origin=line,
    )

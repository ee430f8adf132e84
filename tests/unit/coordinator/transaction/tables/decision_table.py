"""Rules over named relations, and the cells that they cover.

A table has dimensions, each with a few named values. A cell names one value of every dimension. A rule names, in every
dimension, the values that it holds for (``any``, ``a / b``, ``not a / b``), then what happens, then why. Every
possible cell is covered by exactly one rule, so the order of rules says nothing.

Rules are written as rows of a table in Markdown, which is also how the page shows them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

Cell: TypeAlias = Mapping[str, str]

DIFFERENT: Final = "≠"
"""Begins the reason of a rule that is not Kafka's."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: where it holds, what happens there, and why."""

    values: Mapping[str, frozenset[str]]
    outcome: str
    reason: str

    def covers(self, cell: Cell) -> bool:
        return all(cell[name] in allowed for name, allowed in self.values.items())


@dataclass(frozen=True, slots=True)
class DecisionTable:
    """One request: what it may meet, and what comes of it."""

    name: str
    dimensions: Mapping[str, Sequence[str]]
    text: str
    is_possible: Callable[[Cell], bool]
    columns: Sequence[str]
    """The dimensions that the page spreads from left to right."""

    @property
    def rules(self) -> list[Rule]:
        header, *lines = rows(self.text)
        assert header == [*self.dimensions, "outcome", "because"], header
        return [self._rule(line) for line in lines]

    @property
    def cells(self) -> list[Cell]:
        every = (dict(zip(self.dimensions, values, strict=True)) for values in product(*self.dimensions.values()))
        return [cell for cell in every if self.is_possible(cell)]

    def decided(self) -> list[tuple[Cell, Rule]]:
        """Every cell with the rule that covers it."""
        rules, decided = self.rules, []
        for cell in self.cells:
            covering = [rule for rule in rules if rule.covers(cell)]
            assert len(covering) == 1, f"{self.name}: {len(covering)} rules for {cell}"
            decided.append((cell, covering[0]))
        return decided

    def _rule(self, line: list[str]) -> Rule:
        *patterns, outcome, reason = line
        named = zip(self.dimensions.items(), patterns, strict=True)
        return Rule({name: matching(pattern, values) for (name, values), pattern in named}, outcome, reason)


def rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table's rows, its header first."""
    lines = [line.strip().strip("|").split("|") for line in text.strip().splitlines()]
    found = [[cell.strip() for cell in line] for line in lines if set("".join(line)) - set("- ")]
    assert {len(line) for line in found} == {len(found[0])}, "a row is too long or too short"
    return found


def matching(pattern: str, values: Sequence[str]) -> frozenset[str]:
    """The values that a pattern means."""
    if pattern == "any":
        return frozenset(values)
    named = frozenset(part.strip() for part in pattern.removeprefix("not ").split(" / "))
    assert named <= set(values), f"{pattern}: only {', '.join(values)}"
    return frozenset(values) - named if pattern.startswith("not ") else named

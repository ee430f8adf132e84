r"""Regular expressions from clients, matched in time proportional to text times pattern, whatever the pattern.

Kafka takes RE2 syntax where a request carries a pattern, and RE2 cannot be made to backtrack for hours; Python's ``re``
can, by any client. Patterns are filters over names, so whole-text matching is all that is needed: the pattern becomes a
non-deterministic automaton, and the set of its states is carried along the text.

Supported: literals, ``.``, classes with ranges and negation, ``\d \w \s`` and their negations, groups (capturing or
not, named or not), alternation, ``* + ? {m} {m,} {m,n}`` greedy or lazy (which is the same here), ``^ $ \A \z \b
\B``, hexadecimal and control escapes, and the flags ``i`` and ``s``. Not supported: Unicode and named classes,
``\Q…\E``, and flags that concern lines. What RE2 leaves out (look-around, back-references) is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_STATES: Final = 2_000
MAX_REPEAT: Final = 1_000
MAX_DEPTH: Final = 50

Test: TypeAlias = Callable[[str], bool]

_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_DIGITS: Final = [("0", "9")]
_WORD: Final = [("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")]
_SPACE: Final = [("\t", "\n"), ("\f", "\r"), (" ", " ")]
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_FLAGS: Final = frozenset("is")


class InvalidRegularExpression(ValueError):
    """A pattern that has no meaning here."""


@dataclass(slots=True)
class _State:
    """Consumes a character that passes ``test``; without one, moves on for free if ``holds`` (where there is one)."""

    test: Test | None = None
    holds: Callable[[str, int], bool] | None = None
    following: "tuple[_State, ...]" = ()


@dataclass(frozen=True, slots=True)
class _Fragment:
    """A piece of the automaton with one way in and one way out."""

    first: _State
    last: _State


class RegularExpression:
    """One compiled pattern."""

    __slots__ = ("_final", "_start")

    def __init__(self, pattern: str) -> None:
        fragment = _Parser(pattern).parse()
        self._start = fragment.first
        self._final = fragment.last

    def fullmatch(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        current = self._closure([self._start], text, 0)
        for position, character in enumerate(text):
            moved = [state.following[0] for state in current if state.test is not None and state.test(character)]
            if not moved:
                return False
            current = self._closure(moved, text, position + 1)
        return any(state is self._final for state in current)

    def _closure(self, states: list[_State], text: str, position: int) -> list[_State]:
        """All that is reached without consuming anything."""
        seen: dict[int, _State] = {}
        while states:
            state = states.pop()
            if id(state) in seen:
                continue
            seen[id(state)] = state
            if state.test is None and (state.holds is None or state.holds(text, position)):
                states.extend(state.following)
        return list(seen.values())


class _Parser:
    """Recursive descent over the pattern, building the automaton on the way."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._states = 0
        self._depth = 0
        self._ignore_case = False
        self._dot_all = False

    def parse(self) -> _Fragment:
        fragment = self._alternatives()
        if self._at < len(self._pattern):
            raise self._error("unexpected )")
        return fragment

    def _alternatives(self) -> _Fragment:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        last = self._state()
        for branch in branches:
            branch.last.following = (last,)
        return _Fragment(self._state(following=tuple(branch.first for branch in branches)), last)

    def _sequence(self) -> _Fragment:
        whole = self._empty()
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            whole = self._then(whole, self._repeated())
        return whole

    def _repeated(self) -> _Fragment:
        start = self._at
        flags = self._ignore_case, self._dot_all
        fragment = self._atom()
        end = self._at
        bounds = self._bounds()
        if bounds is None:
            return fragment
        if self._at < len(self._pattern) and self._bounds() is not None:
            raise self._error("nothing to repeat")
        after = self._at
        low, high = bounds
        whole = self._empty()

        def copy() -> _Fragment:
            """Parse the atom again: every repetition has states of its own."""
            self._at, (self._ignore_case, self._dot_all) = start, flags
            again = self._atom()
            assert self._at == end
            return again

        for _ in range(low):
            whole = self._then(whole, copy())
        if high is None:
            whole = self._then(whole, self._star(copy()))
        else:
            for _ in range(high - low):
                whole = self._then(whole, self._optional(copy()))
        self._at = after
        return whole

    def _bounds(self) -> tuple[int, int | None] | None:
        """The repetition that stands here, if one does."""
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(symbol):
                self._take("?")
                return bounds
        close = self._pattern.find("}", self._at)
        if self._peek() != "{" or close < 0:
            return None
        low, comma, high = self._pattern[self._at + 1 : close].partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None  # A brace that is only a brace.
        if len(low) > 4 or len(high) > 4:
            raise self._error("a repetition that is not possible")
        self._at = close + 1
        self._take("?")
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            raise self._error("a repetition that is not possible")
        return least, most

    def _atom(self) -> _Fragment:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return self._consuming((lambda _: True) if self._dot_all else (lambda found: found != "\n"))
            case "^":
                return self._asserting(_at_start)
            case "$":
                return self._asserting(_at_end)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._error("nothing to repeat")
            case _:
                return self._literal(character)

    def _group(self) -> _Fragment:
        flags = self._ignore_case, self._dot_all
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                name_end = self._pattern.find(">", self._at)
                if not self._pattern[self._at : max(name_end, self._at)].isidentifier():
                    raise self._error("a group without a proper name")
                self._at = name_end + 1
            elif self._flags():
                return self._empty()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error("too many groups inside each other")
        fragment = self._alternatives()
        if not self._take(")"):
            raise self._error("a group is not closed")
        self._depth -= 1
        self._ignore_case, self._dot_all = flags
        return fragment

    def _flags(self) -> bool:
        """Read ``i-s`` up to a colon or a parenthesis; True if that was all of the group."""
        value = True
        while (character := self._next()) not in ":)":
            if character == "-" and value:
                value = False
            elif character == "i":
                self._ignore_case = value
            elif character == "s":
                self._dot_all = value
            else:
                raise self._error(f"(?{character} is not supported")
        return character == ")"

    def _class(self) -> _Fragment:
        negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._class_member(ranges, tests)
            if low is None:
                continue
            ranges.append((low, self._range_end(low)))
        self._at += 1
        tests.append(self._in_ranges(ranges))
        return self._consuming(lambda found: any(test(found) for test in tests) != negated)

    def _range_end(self, low: str) -> str:
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return low
        self._at += 1
        high = self._class_member([], [])
        if high is None or high < low:
            raise self._error("a range that is none")
        return high

    def _class_member(self, ranges: list[tuple[str, str]], tests: list[Test]) -> str | None:
        """One character; None if it was a class of its own, which is then in ``ranges`` or ``tests``."""
        character = self._next()
        if character == "[" and self._peek() == ":":
            raise self._error("named classes are not supported")
        if character != "\\":
            return character
        kind = self._next()
        if kind in _CLASSES:
            ranges.extend(_CLASSES[kind])
            return None
        if kind.lower() in _CLASSES:
            inside = self._in_ranges(_CLASSES[kind.lower()])
            tests.append(lambda found: not inside(found))
            return None
        return self._escaped_character(kind)

    def _escape(self) -> _Fragment:
        kind = self._next()
        match kind:
            case "d" | "w" | "s":
                return self._consuming(self._in_ranges(_CLASSES[kind]))
            case "D" | "W" | "S":
                inside = self._in_ranges(_CLASSES[kind.lower()])
                return self._consuming(lambda found: not inside(found))
            case "A":
                return self._asserting(_at_start)
            case "z":
                return self._asserting(_at_end)
            case "b":
                return self._asserting(_at_word_boundary)
            case "B":
                return self._asserting(lambda text, position: not _at_word_boundary(text, position))
            case _:
                return self._literal(self._escaped_character(kind))

    def _escaped_character(self, kind: str) -> str:
        if kind in _CONTROL:
            return _CONTROL[kind]
        if kind == "x":
            digits = self._hexadecimal()
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise self._error("an escape that is no character") from None
        if kind.isascii() and kind.isalnum():
            raise self._error(f"\\{kind} is not supported")
        return kind

    def _hexadecimal(self) -> str:
        if not self._take("{"):
            return self._next() + self._next()
        close = self._pattern.find("}", self._at)
        digits = self._pattern[self._at : max(close, self._at)]
        self._at = close + 1
        return digits

    def _literal(self, character: str) -> _Fragment:
        if self._ignore_case:
            folded = character.casefold()
            return self._consuming(lambda found: found.casefold() == folded)
        return self._consuming(lambda found: found == character)

    def _in_ranges(self, ranges: list[tuple[str, str]]) -> Test:
        def test(found: str) -> bool:
            return any(low <= found <= high for low, high in ranges)

        if not self._ignore_case:
            return test
        return lambda found: test(found) or test(found.lower()) or test(found.upper())

    # The automaton

    def _state(
        self,
        *,
        test: Test | None = None,
        holds: Callable[[str, int], bool] | None = None,
        following: tuple[_State, ...] = (),
    ) -> _State:
        self._states += 1
        if self._states > MAX_STATES:
            raise self._error("the pattern is too large")
        return _State(test, holds, following)

    def _empty(self) -> _Fragment:
        state = self._state()
        return _Fragment(state, state)

    def _consuming(self, test: Test) -> _Fragment:
        last = self._state()
        return _Fragment(self._state(test=test, following=(last,)), last)

    def _asserting(self, holds: Callable[[str, int], bool]) -> _Fragment:
        last = self._state()
        return _Fragment(self._state(holds=holds, following=(last,)), last)

    def _then(self, one: _Fragment, other: _Fragment) -> _Fragment:
        one.last.following = (other.first,)
        return _Fragment(one.first, other.last)

    def _optional(self, fragment: _Fragment) -> _Fragment:
        last = self._state()
        fragment.last.following = (last,)
        return _Fragment(self._state(following=(fragment.first, last)), last)

    def _star(self, fragment: _Fragment) -> _Fragment:
        last = self._state()
        first = self._state(following=(fragment.first, last))
        fragment.last.following = (first,)
        return _Fragment(first, last)

    # The text of the pattern

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("the pattern ends too early")
        self._at += 1
        return character

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _error(self, reason: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"{self._pattern!r}, character {self._at}: {reason}")


def _at_start(text: str, position: int) -> bool:
    return position == 0


def _at_end(text: str, position: int) -> bool:
    return position == len(text)


def _at_word_boundary(text: str, position: int) -> bool:
    def is_word(index: int) -> bool:
        return 0 <= index < len(text) and any(low <= text[index] <= high for low, high in _WORD)

    return is_word(position - 1) != is_word(position)

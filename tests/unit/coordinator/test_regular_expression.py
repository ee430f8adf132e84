"""RE2 syntax: patterns beside Python's own engine where both know them, and patterns that engine would hang on."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.regular_expression import (
    MAX_PATTERN_LENGTH,
    MAX_PROGRAM_SIZE,
    InvalidRegularExpression,
    RegularExpression,
)


@pytest.mark.parametrize(
    ("pattern", "matches", "does_not"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "xabc"]),
        ("my-app-.*", ["my-app-", "my-app-0-1"], ["my-ap", "your-app-1"]),
        ("a|bc|", ["a", "bc", ""], ["abc", "b"]),
        ("a?b*c+", ["c", "abbcc", "bc"], ["ab", "aac"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{1,3}b", ["ab", "aaab"], ["b", "aaaab"]),
        ("a{,3}", ["a{,3}"], ["aaa"]),
        ("(ab|c)*d", ["d", "abcabd"], ["abc", "acd"]),
        ("(?:x)(?P<name>y)(?<other>z)", ["xyz"], ["xy"]),
        ("[a-c_]+", ["ab_c"], ["abd", ""]),
        ("[^a-c]", ["d", "\n"], ["a", "dd"]),
        ("[]a-]", ["]", "a", "-"], ["b"]),
        (r"[\d\-x]+", ["12-x"], ["a"]),
        (r"[^\D]", ["5"], ["a"]),
        (r"\d\D\w\W\s\S", ["1a_- x"], ["aa_- x"]),
        (r"\.\*\\", [".*\\"], ["xx\\"]),
        (r"\x41\x{1F600}\t", ["A\U0001f600\t"], ["A"]),
        ("a.c", ["abc"], ["a\nc"]),
        ("(?s)a.c", ["a\nc"], ["ac"]),
        ("(?i)aBc[d-f]", ["AbCE", "abcd"], ["abcg"]),
        ("(?i:a)b", ["Ab", "ab"], ["aB"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("^a$", ["a"], ["aa"]),
        (r"a\b-b", ["a-b"], []),
        (r"a\Bb", ["ab"], []),
        (r"a\bb", [], ["ab"]),
        ("a+?b??", ["aab", "a"], ["b"]),
        ("é.𝄞", ["éx𝄞"], ["e.𝄞"]),
        (r"\p{L}+", ["aß漢"], ["a1"]),
        (r"\Qa.b*\E", ["a.b*"], ["axb"]),
        ("[[:alpha:]]+", ["ab"], ["a1"]),
    ],
)
def test_pattern_matches_whole_texts_only(pattern: str, matches: list[str], does_not: list[str]) -> None:
    expression = RegularExpression(pattern)
    assert [text for text in matches if not expression.fullmatch(text)] == []
    assert [text for text in does_not if expression.fullmatch(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[", "[a", "[b-a]", r"[a-\d]", "*", "a**", "a{2}{3}", "a{3,2}", "a{1001}",
        "\\", r"\p{Nowhere}", r"\1", r"(?=a)", r"(?!a)", r"(?<=a)b", "(?P<>a)", "(?P<a", "(?x)a",
        r"\xZZ", r"\x{110000}", "[[:letter:]]", "((a{100}){100}){100}", ".{1000}" * 10, "a" * 5_000,
    ],
)  # fmt: skip
def test_invalid_or_too_large_pattern_raises_error(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        RegularExpression(pattern)


@pytest.mark.parametrize("pattern", [".{300}", "(a?){900}a{900}", r"\pL\pL\pL", "(.*a.{200}){4}"])
def test_pattern_of_too_many_instructions_is_refused_and_the_limit_is_named(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match=f"instructions, more than {MAX_PROGRAM_SIZE}"):
        RegularExpression(pattern)


@pytest.mark.parametrize("pattern", ["a" * MAX_PATTERN_LENGTH, r"\pL+", ".{200}", ".*(a|b).*(a|b){800}x"])
def test_match_of_the_longest_id_takes_some_milliseconds_at_most(pattern: str) -> None:
    expression = RegularExpression(pattern)
    assert expression.match_units("a" * 1_024) <= 16_500
    assert expression.match_units("é" * 1_024) > expression.match_units("a" * 1_024)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)*x", "(.*.*.*.*)*x", "(a?){50}a{50}b"])
def test_pattern_that_makes_others_backtrack_is_matched_at_once(pattern: str) -> None:
    assert not RegularExpression(pattern).fullmatch("a" * 1_000)


atoms = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "^", "$", "1", r"\.", "-"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map("({})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(patterns, st.text(alphabet="ab1.-\n", max_size=7))
def test_pattern_matches_what_python_matches(pattern: str, text: str) -> None:
    theirs = re.fullmatch(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert RegularExpression(pattern).fullmatch(text) is theirs

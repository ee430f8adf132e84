"""A value is taken for what it says, or refused with its key, itself and what was expected."""

import pytest

from oncelog.broker.config.settings import ConfigError, Kind, Setting


def setting(kind: Kind, **options: object) -> Setting:
    return Setting(key="a.key", kind=kind, default=0, doc="", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, "true", True),
        (Kind.BOOLEAN, " FALSE ", False),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.SHORT, "32767", 32_767),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.STRING, "any thing", "any thing"),
        (Kind.LIST, "a, b,,c ", ("a", "b", "c")),
        (Kind.LIST, "", ()),
        (Kind.PASSWORD, "secret", "secret"),
    ],
)
def test_values_of_every_kind_are_parsed(kind: Kind, text: str, value: object) -> None:
    parsed = setting(kind).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "options", "text", "expected"),
    [
        (Kind.BOOLEAN, {}, "yes", "true or false"),
        (Kind.INT, {}, "2147483648", "a whole number"),
        (Kind.INT, {}, "1.5", "a whole number"),
        (Kind.INT, {}, "", "a whole number"),
        (Kind.INT, {"low": 1}, "0", "a whole number, at least 1"),
        (Kind.SHORT, {}, "40000", "a whole number"),
        (Kind.LONG, {}, "9223372036854775808", "a whole number"),
        (Kind.DOUBLE, {"low": 0, "high": 1}, "1.1", "a number from 0 to 1"),
        (Kind.STRING, {"choices": ("a", "b")}, "c", "one of a, b"),
        (Kind.LIST, {"choices": ("a", "b")}, "a,c", "a list of a, b"),
    ],
)
def test_wrong_value_is_reported_with_key_and_expected_values(
    kind: Kind, options: dict[str, object], text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        setting(kind, **options).parse(text)
    assert str(refusal.value) == f"a.key={text!r} is not valid: expected {expected}"


def test_password_value_is_never_shown() -> None:
    with pytest.raises(ConfigError) as refusal:
        setting(Kind.PASSWORD, choices=("x",)).parse("hunter2")
    assert "hunter2" not in str(refusal.value)


def test_optional_key_may_be_empty() -> None:
    assert Setting(key="k", kind=Kind.LONG, default=None, doc="").parse("") is None


@pytest.mark.parametrize("value", [True, 5, 0.25, "text", ("a", "b"), ()])
def test_formatted_value_parses_to_itself(value: object) -> None:
    kinds = {bool: Kind.BOOLEAN, int: Kind.INT, float: Kind.DOUBLE, str: Kind.STRING, tuple: Kind.LIST}
    one = setting(kinds[type(value)])
    assert one.parse(one.format(value) or "") == value

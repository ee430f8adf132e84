"""The messages of OAUTHBEARER."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.sasl.oauthbearer import (
    MAX_TOKEN_BYTES,
    BadOauthMessage,
    encode_oauth_first,
    parse_oauth_first,
)


def test_first_message_round_trips_with_its_extensions() -> None:
    message = encode_oauth_first("a.b-c_d.e", {"logicalCluster": "lkc 1", "pool": "x=y"})
    assert message == b"n,,\x01auth=Bearer a.b-c_d.e\x01logicalCluster=lkc 1\x01pool=x=y\x01\x01"
    parsed = parse_oauth_first(message)
    assert (parsed.authorization_id, parsed.token) == ("", "a.b-c_d.e")
    assert parsed.extensions == {"logicalCluster": "lkc 1", "pool": "x=y"}
    assert "a.b-c_d.e" not in repr(parsed)


@pytest.mark.parametrize(
    ("header", "expected"),
    [(b"n,a=alice,", "alice"), (b"n,a=al=2Ci=3Dce,", "al,i=ce"), (b"n,,", "")],
)
def test_authorization_id_is_unescaped(header: bytes, expected: str) -> None:
    assert parse_oauth_first(header + b"\x01auth=Bearer t\x01\x01").authorization_id == expected


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER   "])
def test_scheme_is_bearer_in_any_case(scheme: bytes) -> None:
    assert parse_oauth_first(b"n,,\x01auth=" + scheme + b"t\x01\x01").token == "t"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=x,,\x01auth=Bearer t\x01\x01",
        b"n,\x01auth=Bearer t\x01\x01",
        b"n,,,\x01auth=Bearer t\x01\x01",
        b"n,b=x,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=x=y,\x01auth=Bearer t\x01\x01",
        b"n,a=" + b"x" * 2000 + b",\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t",
        b"n,,\x01auth=Bearer t\x01\x01x",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer t+t\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x01k=v\x01k=v\x01\x01",
        b"n,,\x01auth=Bearer t\x01k\x01\x01",
        b"n,,\x01auth=Bearer t\x01k1=v\x01\x01",
        b"n,,\x01auth=Bearer t\x01k=\x01\x01",
        b"n,,\x01auth=Bearer t\x01k=\x7f\x01\x01",
        b"n,,\x01auth=Bearer t\x01" + b"".join(b"%s=v\x01" % bytes([97 + n % 26] * (1 + n // 26)) for n in range(40))
        + b"\x01",
        b"n,,\x01auth=Bearer \xc3\xa9\x01\x01",
        b"n,,\x01auth=Bearer " + b"t" * (MAX_TOKEN_BYTES + 1) + b"\x01\x01",
        b"n,,\x01auth=Bearer " + b"t" * 200_000 + b"\x01\x01",
    ],
    ids=lambda message: repr(message[:40]),
)  # fmt: skip
def test_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(BadOauthMessage):
        parse_oauth_first(message)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"n,,\x01auth=Bearer " + rest))
def test_bytes_of_any_kind_are_parsed_or_refused(message: bytes) -> None:
    with suppress(BadOauthMessage):
        assert parse_oauth_first(message).token

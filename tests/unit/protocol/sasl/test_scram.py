"""SCRAM's keys and messages: the examples of the RFCs, and what is refused."""

import base64
from typing import NamedTuple

import pytest

from oncelog.protocol.sasl.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    BadCredential,
    ScramCredential,
    ScramMechanism,
    client_proof,
    format_credential,
    is_proof,
    new_credential,
    parse_credential,
    salt_of,
    salt_password,
    server_signature,
    signed_text,
)
from oncelog.protocol.sasl.scram_messages import (
    LONGEST_MESSAGE,
    BadScramMessage,
    encode_client_final,
    encode_client_final_without_proof,
    encode_client_first,
    encode_server_final,
    encode_server_first,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
)


class Example(NamedTuple):
    """One exchange of an RFC; user and password are ``user`` and ``pencil``."""

    mechanism: ScramMechanism
    client_nonce: str
    nonce: str
    server_first: bytes
    client_final: bytes
    server_final: bytes


RFC_5802 = Example(
    ScramMechanism("SCRAM-SHA-1", 0, "sha1", 20),
    "fyko+d2lbbFgONRv9qkxdawL",
    "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
    b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = Example(
    SCRAM_SHA_256,
    "rOprNGfwEbeRWgbNEkqO",
    "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


@pytest.mark.parametrize("example", [RFC_5802, RFC_7677])
def test_exchange_is_that_of_the_rfc(example: Example) -> None:
    header, bare = encode_client_first("user", example.client_nonce)
    first = parse_server_first(example.server_first)
    assert encode_server_first(first.nonce, first.salt, first.iterations) == example.server_first
    salted = salt_password(example.mechanism, "pencil", first.salt, first.iterations)
    without_proof = encode_client_final_without_proof(header, first.nonce)
    signed = signed_text(bare, example.server_first, without_proof)
    proof = client_proof(example.mechanism, salted, signed)
    assert encode_client_final(without_proof, proof) == example.client_final

    credential = new_credential(example.mechanism, salted, salt=first.salt, iterations=first.iterations)
    final = parse_client_final(example.client_final)
    assert final.without_proof == without_proof
    assert is_proof(example.mechanism, credential, final.proof, signed)
    assert not is_proof(example.mechanism, credential, final.proof, signed + b"x")
    signature = server_signature(example.mechanism, credential.server_key, signed)
    assert encode_server_final(signature) == example.server_final
    assert parse_server_final(example.server_final) == signature


def test_client_first_message_has_its_parts() -> None:
    first = parse_client_first(b"n,a=al=2Cice,n=al=2Cice,r=abc,t=true")
    assert first.authorization_id == first.user == "al,ice"
    assert (first.nonce, first.header) == ("abc", b"n,a=al=2Cice,")
    assert first.bare == b"n=al=2Cice,r=abc,t=true"
    assert not first.is_token


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        (b",tokenauth=true", True),
        (b",tokenauth=TRUE", True),
        (b",x=y,tokenauth=true,other=1", True),
        (b",tokenauth=false", False),
        (b",tokenauth=1", False),
        (b",token=true", False),
        (b",Tokenauth=true", False),
    ],
)
def test_extension_says_whether_the_name_is_that_of_a_token(extensions: bytes, is_token: bool) -> None:
    assert parse_client_first(b"n,,n=id,r=abc" + extensions).is_token is is_token


def test_client_first_message_of_a_token_is_that_of_kafka() -> None:
    header, bare = encode_client_first("ua5cey91Qx2ffVPJ39yBcw", "abc", is_token=True)
    assert header + bare == b"n,,n=ua5cey91Qx2ffVPJ39yBcw,r=abc,tokenauth=true"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"y,,n=user,r=abc", "channel binding"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,,m=ext,n=user,r=abc", "mandatory"),
        (b"n,,n=user,r=abc,m=ext", "mandatory"),
        (b"n,,n=,r=abc", "name"),
        (b"n,,n=us=er,r=abc", "equals sign"),
        (b"n,,n=us\0er,r=abc", "NUL"),
        (b"n,,n=" + b"u" * 4_000 + b",r=abc", "too long"),
        (b"n,,n=user,r=", "nonce"),
        (b"n,,n=user,r=a\x7fb", "nonce"),
        (b"n,,n=user,r=" + b"r" * 300, "nonce"),
        (b"n,,n=user,r=abc,", "malformed"),
        (b"n,,n=user,r=abc,tokenauth", "malformed"),
        (b"n,,n=user,r=abc,tokenauth=", "malformed"),
        (b"n,,n=user,r=abc,tokenauth=true,tokenauth=false", "twice"),
        (b"n,,n=user,r=abc,=x", "malformed"),
        (b"n,,r=abc,n=user", "attribute n"),
        (b"n,user,n=user,r=abc", "attribute a"),
        (b"n,,n=user", "lacks a field"),
        (b"", "lacks a field"),
        (b"n,,n=\xff,r=abc", "UTF-8"),
        (b"n,,n=user,r=abc,x=" + b"x" * LONGEST_MESSAGE, "too long"),
    ],
)
def test_malformed_client_first_message_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(BadScramMessage, match=why):
        parse_client_first(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"c=biws,r=abc", "lacks a field"),
        (b"c=biws,r=abc,p=!", "base64"),
        (b"c=biws,r=abc,p=", "empty"),
        (b"c=biws,r=abc,p=" + base64.b64encode(bytes(65)), "too long"),
        (b"c=biws,r=abc,m=x,p=YWJj", "mandatory"),
        (b"r=abc,c=biws,p=YWJj", "attribute c"),
        (b"c=biws,r=abc,p=YWJj,x=y", "attribute p"),
    ],
)
def test_malformed_client_final_message_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(BadScramMessage, match=why):
        parse_client_final(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"r=abc,s=YWJj,i=0x10", "not a number"),
        (b"r=abc,s=YWJj,i=99999999999", "not a number"),
        ("r=abc,s=YWJj,i=\u0664".encode(), "not a number"),
        (b"m=x,r=abc,s=YWJj,i=4096", "mandatory"),
        (b"r=abc,s=,i=4096", "empty"),
    ],
)
def test_malformed_server_first_message_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(BadScramMessage, match=why):
        parse_server_first(message)


def test_error_of_a_server_is_in_the_exception() -> None:
    with pytest.raises(BadScramMessage, match="invalid-proof"):
        parse_server_final(b"e=invalid-proof")


KAFKAS_TEXT = (
    "salt=M2dwNGp2dGxzZHE1Z2hrN2ljOTlvbGdqYWw=,stored_key=7g6F2qjWQF5bjVQx3vSj7H7mP9Yb3v7oQ7Jk0hGkq2s=,"
    "server_key=SkYgR7tP1s1n2c6Yw1sXq3w9d3cQ3n7Qw8m0m3Qk1bE=,iterations=8192"
)


def test_credential_is_kept_in_the_form_of_kafka() -> None:
    credential = parse_credential(SCRAM_SHA_256, KAFKAS_TEXT)
    assert credential.iterations == 8192
    assert format_credential(credential) == KAFKAS_TEXT
    assert "stored_key" not in repr(credential)


@pytest.mark.parametrize(
    "text",
    [
        "",
        KAFKAS_TEXT.replace("iterations=8192", "iterations=x"),
        KAFKAS_TEXT.replace(",iterations=8192", ""),
        KAFKAS_TEXT.replace("salt=M2", "salt=!"),
        KAFKAS_TEXT.replace("stored_key=7g6F", "stored_key="),
    ],
)
def test_malformed_credential_is_refused(text: str) -> None:
    with pytest.raises(BadCredential):
        parse_credential(SCRAM_SHA_256, text)


def test_credential_of_another_mechanism_is_refused() -> None:
    with pytest.raises(BadCredential):
        parse_credential(SCRAM_SHA_512, KAFKAS_TEXT)


def test_salt_has_the_form_of_kafkas_tools() -> None:
    assert len(salt_of((1 << 130) - 1)) == 26
    assert salt_of(35) == b"z"


def test_proof_of_another_length_is_no_proof() -> None:
    credential = ScramCredential(salt=b"s", iterations=4096, stored_key=bytes(32), server_key=bytes(32))
    assert not is_proof(SCRAM_SHA_256, credential, bytes(20), b"signed")

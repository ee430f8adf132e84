"""Kafka's names of versions and cipher suites of TLS."""

import pytest

from oncelog.protocol.tls.settings import parse_cipher_suites, parse_versions


def test_versions_are_returned_oldest_first() -> None:
    assert parse_versions(["TLSv1.3", " TLSv1.2"]) == ("TLSv1.2", "TLSv1.3")
    assert parse_versions(["TLSv1.3"]) == ("TLSv1.3",)


@pytest.mark.parametrize(("names", "why"), [(["TLSv1.1", "TLSv1.2"], "has TLSv1.1"), ([], "has no version")])
def test_versions_that_are_not_served_are_refused(names: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=f"{why}: expected TLSv1.2 or TLSv1.3"):
        parse_versions(names)


def test_cipher_suites_by_either_name_have_that_of_openssl() -> None:
    names = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "AES128-SHA"]
    assert parse_cipher_suites(names) == ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "AES128-SHA")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "has no cipher suite"),
        (["TLS_AES_128_GCM_SHA256"], "of TLS 1.3"),
        (["HIGH:!aNULL"], "is not the name of one cipher suite"),
    ],
)
def test_cipher_suites_that_cannot_be_chosen_are_refused(names: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_cipher_suites(names)

"""What a broker says when it and another one do not accept each other."""

import pytest

from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.clients.errors import AuthenticationFailed, TlsFailed, Unreachable


def test_refusals_of_a_broker_are_reported_once_a_minute_with_the_settings(caplog: pytest.LogCaptureFixture) -> None:
    security = PeerSecurity(listener_name="INTERNAL")
    refused = AuthenticationFailed("b:9093: SCRAM-SHA-512: Authentication failed")
    for now in (100.0, 100.1, 159.0):  # All lanes to it try again.
        security.note_failure(2, refused, now)
    security.note_failure(3, refused, 110.0)
    security.note_failure(2, refused, 161.0)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert [record.getMessage() for record in caplog.records][::2] == [
        "This broker and broker 2 do not accept each other: b:9093: SCRAM-SHA-512: Authentication failed. See the "
        "login in sasl.jaas.config and sasl.mechanism.inter.broker.protocol, for listener INTERNAL at both"
    ] * 2


def test_certificate_is_reported_with_the_stores_and_an_absent_broker_is_not(caplog: pytest.LogCaptureFixture) -> None:
    security = PeerSecurity(listener_name="INTERNAL")
    security.note_failure(2, Unreachable("b:9093: Connection refused"), 0.0)
    assert not caplog.records
    security.note_failure(2, TlsFailed("b:9093: its certificate is not accepted"), 0.0)
    assert "ssl.truststore.location, for listener INTERNAL" in caplog.text

"""The mechanisms that a broker lists, in messages: any program may be at the other end."""

import pytest

from oncelog.clients.connection import connect
from oncelog.clients.errors import AuthenticationFailed
from oncelog.clients.mechanism_names import shown_mechanisms
from oncelog.clients.required_login import require_no_login
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.protocol.sasl.login import SaslLogin
from tests.unit.clients.scripted_broker import ScriptedBroker

HOSTILE = SaslHandshakeResponse(
    error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    mechanisms=["PLAIN", "PLAIN\r\nERROR forged", *["M" * 32_000] * 100],
)


def test_names_of_mechanisms_are_shown_in_their_order() -> None:
    names = ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "X_1"]
    assert list(shown_mechanisms(names)) == names


@pytest.mark.parametrize(
    "name", ["", "plain", "PLAIN\r\nERROR forged", "PLAIN\n", "\x1b[2JPLAIN", "A" * 21, "M" * 32_000]
)
def test_text_that_is_no_name_of_a_mechanism_is_not_shown(name: str) -> None:
    assert list(shown_mechanisms([name, "PLAIN"])) == ["PLAIN"]


def test_ten_mechanisms_are_shown_at_most() -> None:
    assert len(shown_mechanisms(f"M{number}" for number in range(3_000))) == 10


@pytest.mark.real_loop
async def test_errors_show_no_other_mechanisms_of_a_hostile_broker() -> None:
    broker = ScriptedBroker({SaslHandshakeRequest: HOSTILE})
    address = await broker.start()
    try:
        with pytest.raises(AuthenticationFailed, match=r"requires authentication \(PLAIN\)$"):
            await require_no_login(address, "client", 5, None)
        login = SaslClient(SaslLogin(mechanism="SCRAM-SHA-256", username="alice", password="x"))
        with pytest.raises(AuthenticationFailed, match=r"not enabled; enabled: PLAIN$"):
            await connect(address, client_id="client", sasl=login)
    finally:
        broker.stop()

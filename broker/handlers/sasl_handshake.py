"""SaslHandshake (API key 17): chooses the SASL mechanism of a connection.

On listeners with SASL the gate of a connection takes it (``oncelog.broker.network.authentication_gate``). It comes here
from a client that is authenticated and may not authenticate again now, or on a listener without SASL.

Versions: 0 is served because librdkafka takes a broker without it for one without SASL.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(ApiKey.SASL_HANDSHAKE, versions="0-1")
def handle_sasl_handshake(broker: Broker, context: RequestContext, request: SaslHandshakeRequest) -> Outcome:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

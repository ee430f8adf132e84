"""SaslAuthenticate (API key 36): a token of a SASL exchange.

On listeners with SASL the gate of a connection takes it (``oncelog.broker.network.authentication_gate``). It comes here
from a client that is authenticated and has sent no SaslHandshake before it, or on a listener without SASL.

Versions: 1 has the lifetime of the session (KIP-368); 2 is flexible.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(ApiKey.SASL_AUTHENTICATE, versions="0-2")
def handle_sasl_authenticate(broker: Broker, context: RequestContext, request: SaslAuthenticateRequest) -> Outcome:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )

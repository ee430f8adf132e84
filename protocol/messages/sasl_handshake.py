"""SaslHandshake (API key 17): versions 0-1, never flexible.

Chooses the SASL mechanism of a connection.

1: tokens follow in SaslAuthenticate. After version 0 they follow as bare frames, without a header.
"""

from oncelog.protocol.schema import Message, array_of, int16, string


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = string("0+", default="")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = int16("0+", default=0)
    mechanisms: list[str] = array_of(string, "0+", default_factory=list)

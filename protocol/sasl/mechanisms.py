"""The SASL mechanisms, by the names that clients and brokers exchange."""

from typing import Final

from oncelog.protocol.sasl.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER
from oncelog.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
WITH_PASSWORD: Final = (PLAIN, *SCRAM_MECHANISMS)
"""Those by which a client has a name and a password."""
SERVED: Final = (*WITH_PASSWORD, OAUTHBEARER)
LOGIN_MODULES: Final = {
    PLAIN: PLAIN_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_MODULE),
}
"""The login module of each mechanism."""

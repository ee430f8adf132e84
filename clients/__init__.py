"""The other end of the wire: connections, producers, consumers, administration and the command line.

Works against any broker that speaks Kafka's protocol. Knows the protocol only: nothing here imports a broker's code.
"""

from typing import Final

VERSION: Final = "0.2.0"
"""The distribution's version; what clients name as theirs when they connect (KIP-511)."""

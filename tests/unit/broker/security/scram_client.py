"""The client's side of SCRAM for tests, with a place to put in each message."""

from oncelog.protocol.sasl.scram import (
    ScramCredential,
    ScramMechanism,
    client_proof,
    new_credential,
    salt_password,
    signed_text,
)
from oncelog.protocol.sasl.scram_messages import (
    encode_client_final,
    encode_client_final_without_proof,
    encode_client_first,
    parse_server_first,
)

NONCE = "clientnonce"
SALT = b"salt"
ITERATIONS = 4_096


def credential_of(mechanism: ScramMechanism, password: str) -> ScramCredential:
    salted = salt_password(mechanism, password, SALT, ITERATIONS)
    return new_credential(mechanism, salted, salt=SALT, iterations=ITERATIONS)


class ScramClient:
    """One exchange; ``nonce`` and ``header`` of the final message can be others than those that are right."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, *, is_token: bool = False) -> None:
        self._mechanism = mechanism
        self._password = password
        self._header, self._bare = encode_client_first(user, NONCE, is_token=is_token)

    def extend(self, extensions: str) -> None:
        """Put extensions, each behind a comma, at the end of the first message."""
        self._bare += extensions.encode()

    @property
    def first(self) -> bytes:
        return self._header + self._bare

    def final(self, server_first: bytes, *, nonce: str | None = None, header: bytes | None = None) -> bytes:
        first = parse_server_first(server_first)
        without_proof = encode_client_final_without_proof(
            self._header if header is None else header, first.nonce if nonce is None else nonce
        )
        salted = salt_password(self._mechanism, self._password, first.salt, first.iterations)
        signed = signed_text(self._bare, server_first, without_proof)
        return encode_client_final(without_proof, client_proof(self._mechanism, salted, signed))

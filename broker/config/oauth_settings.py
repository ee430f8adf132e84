"""The settings of OAUTHBEARER, a part of the broker's table (``BrokerConfig``), under Kafka's names where it has them.

Each can be set for one listener, as ``listener.name.NAME.oauthbearer.KEY`` (``oncelog.broker.config.oauth_config``).
"""

from dataclasses import dataclass
from typing import Final

from oncelog.broker.config.settings import boolean, integer, long, password, string, strings
from oncelog.broker.config.tls_settings import TlsSettings

_LOGIN: Final = "For this broker's login to the others by OAUTHBEARER:"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class OauthSettings(TlsSettings):
    """Which tokens are accepted from clients, and where this broker has its own from."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None,
        "Address of the JWKS with the public keys that verify tokens of clients: http:, https: or, with "
        "oncelog.sasl.oauthbearer.allow.files, file:.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000, "Milliseconds between two fetches of the JWKS.", low=1000
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100, "Milliseconds before the first retry of a fetch of the JWKS that has failed; each further one doubles it.",
        low=1,
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000, "Maximum milliseconds between two retries of a fetch of the JWKS.", low=1
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = strings(
        (), "Audiences of which a token must have one in its claim aud."
    )
    sasl_oauthbearer_expected_issuer: str | None = string(None, "What a token must have in its claim iss.")
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        False, "Whether tokens for any audience are accepted, if sasl.oauthbearer.expected.audience is not set."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        False, "Whether tokens from any issuer are accepted, if sasl.oauthbearer.expected.issuer is not set."
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "Maximum difference between the clocks of the issuer and of this broker, in seconds.", low=0, high=3600
    )
    sasl_oauthbearer_sub_claim_name: str = string("sub", "The claim of a token with the name of the user.")
    sasl_oauthbearer_scope_claim_name: str = string(
        "scope", "The claim of a token with its scopes; it must be a text or a list of texts, if it is there."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = string(
        None,
        f"{_LOGIN} address of the token endpoint (http:, https:), or of a file with a token (file:, with "
        "oncelog.sasl.oauthbearer.allow.files).",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = string(
        None, f"{_LOGIN} client id at the token endpoint; in its place the option clientId of sasl.jaas.config."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = password(
        f"{_LOGIN} client secret at the token endpoint; in its place the option clientSecret of sasl.jaas.config."
    )
    sasl_oauthbearer_scope: str | None = string(
        None, f"{_LOGIN} scope to request from the token endpoint; in its place the option scope of sasl.jaas.config."
    )
    oncelog_sasl_oauthbearer_allow_files: bool = boolean(
        False, "Whether settings of OAUTHBEARER may name files of this machine, by file:."
    )
    oncelog_sasl_oauthbearer_allow_unsecured_tokens: bool = boolean(
        False,
        "Whether tokens without a signature are accepted, by which every client can be every user: for tests only. "
        "Such a listener has no JWKS.",
    )

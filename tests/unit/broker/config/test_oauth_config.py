"""OAUTHBEARER in the settings: what a listener accepts, and what is refused at the start."""

from collections.abc import Iterable

import pytest

from oncelog.broker.config.dynamic_config import why_not_dynamic
from oncelog.broker.config.listeners import checked_listeners, inter_broker_login, sasl_listeners
from oncelog.broker.config.oauth_config import OauthListener
from oncelog.broker.config.prefixed_settings import is_prefixed, is_secret
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import LoadedConfig, load_config
from oncelog.protocol.sasl.login import OauthLogin

NAME = "listener.name.sasl_plaintext"
OAUTH = f"{NAME}.oauthbearer.sasl.oauthbearer"
OWN = f"{NAME}.oauthbearer.oncelog.sasl.oauthbearer"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BARE = ("listeners=SASL_PLAINTEXT://localhost:1", f"{NAME}.sasl.enabled.mechanisms=OAUTHBEARER")
KEYS = f"{OAUTH}.jwks.endpoint.url=https://issuer.example/jwks"
AUDIENCE = f"{OAUTH}.expected.audience=a, b"
ISSUER = f"{OAUTH}.expected.issuer=https://issuer.example"
GOOD = (*BARE, KEYS, AUDIENCE, ISSUER)
CLUSTER = (
    *GOOD,
    "zookeeper.connect=localhost:2181",
    "security.inter.broker.protocol=SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
)
ENDPOINT = f"{OAUTH}.token.endpoint.url=https://issuer.example/token"


def load(settings: Iterable[str]) -> LoadedConfig:
    return load_config(overrides=settings, environment={})


def parsed(*settings: str) -> OauthListener:
    config = load(settings).config
    listener = sasl_listeners(config, checked_listeners(config))["SASL_PLAINTEXT"].oauth
    assert listener is not None
    return listener


def test_settings_are_those_of_the_listener_with_defaults_of_kafka() -> None:
    listener = parsed(*GOOD)
    assert listener.checks == (("a", "b"), "https://issuer.example", 30, "sub", "scope")
    assert listener.jwks is not None
    assert (listener.jwks.url, listener.jwks.path) == ("https://issuer.example/jwks", "")
    times = (listener.jwks.refresh_seconds, listener.jwks.backoff_seconds, listener.jwks.max_backoff_seconds)
    assert times == (3600, 0.1, 10)


def test_narrower_scope_wins() -> None:
    wide = ("sasl.oauthbearer.clock.skew.seconds=1", "oauthbearer.sasl.oauthbearer.sub.claim.name=upn")
    assert parsed(*GOOD, *wide).checks[2:4] == (1, "upn")
    narrow = (f"{NAME}.sasl.oauthbearer.clock.skew.seconds=2", f"{OAUTH}.sub.claim.name=oid")
    assert parsed(*GOOD, *wide, *narrow).checks[2:4] == (2, "oid")
    assert load([*GOOD, *wide, *narrow]).warnings == ()


def test_settings_of_a_listener_come_from_the_environment_too() -> None:
    environment = {
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://localhost:1",
        "KAFKA_SASL_ENABLED_MECHANISMS": "OAUTHBEARER",
        "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_OAUTHBEARER_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": "https://i.example/k",
        "KAFKA_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": "a",
        "KAFKA_SASL_OAUTHBEARER_EXPECTED_ISSUER": "i",
    }
    config = load_config(environment=environment).config
    listener = sasl_listeners(config, checked_listeners(config))["SASL_PLAINTEXT"].oauth
    assert listener is not None
    assert listener.jwks is not None
    assert listener.jwks.url == "https://i.example/k"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (BARE, rf"OAUTHBEARER is enabled on listener SASL_PLAINTEXT without keys .* set {OAUTH}\.jwks\.endpoint\.url"),
        ((*BARE, KEYS, ISSUER), rf"{OAUTH}\.expected\.audience is missing: .* {OAUTH}\.allow\.unverified\.aud"),
        ((*BARE, KEYS, AUDIENCE), rf"{OAUTH}\.expected\.issuer is missing"),
        ((*BARE, KEYS, ISSUER, f"{OAUTH}.expected.audience= , "), r"expected\.audience is missing"),
        ((*GOOD, f"{OAUTH}.jwks.endpoint.url=file:///etc/jwks.json"),
         r"names a file: set oncelog\.sasl\.oauthbearer\.allow\.files=true"),
        ((*GOOD, f"{OAUTH}.jwks.endpoint.url=ftp://x/y"), "expected http://, https:// or file:///"),
        ((*GOOD, f"{OAUTH}.jwks.endpoint.url=jwks"), "expected http://"),
        ((*GOOD, f"{OAUTH}.jwks.endpoint.url=https://[x"), "is no address"),
        ((*GOOD, f"{OAUTH}.jwks.endpoint.url=https://x:99999/"), "is no address"),
        ((*GOOD, f"{OAUTH}.jwks.endpoint.url=https://u:hidden@x/"), "has a user or a password"),
        ((*GOOD, f"{OWN}.allow.files=true", f"{OAUTH}.jwks.endpoint.url=file://host/x"), "expected http://"),
        ((*GOOD, f"{OWN}.allow.unsecured.tokens=true"), "drop one"),
        ((*GOOD, f"{OAUTH}.clock.skew.seconds=soon"), rf"{OAUTH}\.clock\.skew\.seconds='soon' is not valid"),
        ((*GOOD, f"{OWN}.allow.files=perhaps"), "is not valid: expected true or false"),
        ((*GOOD, "listener.name.other.oauthbearer.sasl.oauthbearer.scope=x"), "which is none of listeners"),
        (CLUSTER, rf"{OAUTH}\.token\.endpoint\.url is missing: this broker needs a token"),
        ((*CLUSTER, ENDPOINT), r"without the client id and secret"),
        ((*CLUSTER, ENDPOINT, f"{OAUTH}.client.credentials.client.id=b"), r"without the client id and secret"),
        ((*CLUSTER, ENDPOINT, f'{NAME}.oauthbearer.sasl.jaas.config={MODULE} required clientSecret="hidden";'),
         r"without the client id and secret"),
        ((*CLUSTER, f"{OAUTH}.token.endpoint.url=file:///run/token"), r"names a file: set"),
        ((*GOOD, f"{NAME}.oauthbearer.sasl.jaas.config=com.evil.Jndi required x=\"hidden\";"), "is not known"),
    ],
)  # fmt: skip
def test_setting_that_cannot_work_is_refused_without_its_secrets(settings: tuple[str, ...], sentence: str) -> None:
    config = load(settings).config
    with pytest.raises(ConfigError, match=sentence) as refused:
        checked_listeners(config)
    assert "hidden" not in str(refused.value)


def test_checks_are_left_out_only_by_the_settings_that_name_them() -> None:
    both = [f"{OAUTH}.allow.unverified.audience=true", f"{OAUTH}.allow.unverified.issuer=true"]
    assert parsed(*BARE, KEYS, *both).checks[:2] == ((), "")
    assert parsed(*GOOD, *both).checks[:2] == (("a", "b"), "https://issuer.example")
    assert parsed(*BARE, f"{OWN}.allow.unsecured.tokens=true").jwks is None


def test_file_is_allowed_by_its_setting() -> None:
    jwks = parsed(*GOOD, f"{OWN}.allow.files=true", f"{OAUTH}.jwks.endpoint.url=file:///etc/a%20b.json").jwks
    assert jwks is not None
    assert jwks.path == "/etc/a b.json"


@pytest.mark.parametrize(
    "given",
    [
        (f"{OAUTH}.client.credentials.client.id=b", f"{OAUTH}.client.credentials.client.secret=s", f"{OAUTH}.scope=k"),
        (f'{NAME}.oauthbearer.sasl.jaas.config={MODULE} required clientId="b" clientSecret="s" scope="k";',),
        (f'{NAME}.oauthbearer.sasl.jaas.config={MODULE} required clientId="x" clientSecret="s" scope="y";',
         f"{OAUTH}.client.credentials.client.id=b", f"{OAUTH}.scope=k"),
    ],
)  # fmt: skip
def test_brokers_log_in_with_a_token_of_the_endpoint(given: tuple[str, ...]) -> None:
    config = load([*CLUSTER, ENDPOINT, *given]).config
    login = inter_broker_login(config, checked_listeners(config))
    url = "https://issuer.example/token"
    assert login == OauthLogin(token_endpoint_url=url, client_id="b", client_secret="s", scope="k")
    assert "client_secret" not in repr(login)


def test_settings_are_fixed_at_the_start_and_the_secret_is_hidden() -> None:
    keys = [
        "sasl.oauthbearer.jwks.endpoint.url",
        "oncelog.sasl.oauthbearer.allow.files",
        "sasl.oauthbearer.client.credentials.client.secret",
        f"{OAUTH}.jwks.endpoint.url",
        f"{OAUTH}.client.credentials.client.secret",
    ]
    assert all(why_not_dynamic(key, "x") for key in keys)
    assert [key for key in keys if is_secret(key)] == [keys[2], keys[4]]
    assert not is_prefixed("sasl.oauthbearer.scope")
    assert is_prefixed("oauthbearer.sasl.oauthbearer.scope")

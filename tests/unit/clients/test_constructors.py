"""What a producer, a consumer and an administrator can be made of."""

import re
from collections.abc import Callable
from random import Random
from typing import get_type_hints

import pytest

from oncelog import (
    Admin,
    Consumer,
    ConsumerConfig,
    ConsumerRecord,
    Producer,
    ProducerConfig,
    TimestampType,
    TlsSettings,
)
from oncelog.clients.admin.admin_config import AdminConfig
from oncelog.clients.admin.admin_settings import AdminSettings
from oncelog.clients.consumer.consumer_settings import ConsumerSettings
from oncelog.clients.producer.producer_settings import ProducerSettings
from oncelog.clients.runtime import system_clock_ms

BOOTSTRAP = "localhost:9092,[::1]:9093"
Client = Producer | Consumer | Admin
KINDS = [Producer, Consumer, Admin]
of_each_kind = pytest.mark.parametrize("kind", KINDS)


@of_each_kind
async def test_client_of_an_address_alone_connects_to_its_brokers_first(kind: Callable[[str], Client]) -> None:
    client = kind(BOOTSTRAP)
    cluster = client.cluster if isinstance(client, Admin) else client._runtime.cluster
    assert [str(each) for each in cluster._bootstrap] == ["localhost:9092", "[::1]:9093"]
    await client.close()


@of_each_kind
@pytest.mark.parametrize("address", ["", "localhost:port", "localhost:9092,:"])
async def test_client_of_a_malformed_address_raises_value_error(kind: Callable[[str], Client], address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        kind(address)


@of_each_kind
@pytest.mark.parametrize("given", [{"bootstrap.servers": BOOTSTRAP}, ("localhost", 9092), None, b"localhost:9092"])
async def test_client_of_another_type_raises_type_error_that_names_both_types(
    kind: Callable[[object], Client], given: object
) -> None:
    expected = f"'host:port,host:port', not {type(given).__name__}"
    with pytest.raises(TypeError, match=re.escape(expected)):
        kind(given)


@of_each_kind
async def test_client_of_a_bootstrap_setting_equals_that_of_the_address(kind: Callable[..., Client]) -> None:
    client, same = kind(bootstrap=BOOTSTRAP, client_id="c"), kind(BOOTSTRAP, client_id="c")
    assert repr(client) == repr(same)
    await client.close()
    await same.close()


@of_each_kind
@pytest.mark.parametrize(
    ("arguments", "settings", "text"),
    [
        ((), {"bootstrap_servers": BOOTSTRAP}, "Config has no setting bootstrap_servers: did you mean bootstrap?"),
        ((), {"bootstrap.servers": BOOTSTRAP}, "Config has no setting bootstrap.servers: did you mean bootstrap?"),
        ((), {}, "'host:port,host:port', not NoneType"),
        ((), {"client_id": "c"}, "'bootstrap'"),
        ((BOOTSTRAP,), {"bootstrap": BOOTSTRAP}, "are given twice: leave out bootstrap"),
        ((), {"bootstrap": ["localhost:9092"]}, "bootstrap must be str, not list"),
    ],
)
async def test_client_without_one_address_raises_type_error_that_names_bootstrap(
    kind: Callable[..., Client], arguments: tuple[str, ...], settings: dict[str, object], text: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        kind(*arguments, **settings)


async def test_client_of_another_clients_configuration_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"pass a ProducerConfig .* not ConsumerConfig"):
        Producer(ConsumerConfig(bootstrap=BOOTSTRAP))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"pass a ConsumerConfig .* not ProducerConfig"):
        Consumer(ProducerConfig(bootstrap=BOOTSTRAP))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "settings", "config"),
    [
        (Producer, {"transactional_id": "t", "compression": "lz4"}, ProducerConfig),
        (Consumer, {"group_id": "g", "max_poll_records": 7}, ConsumerConfig),
        (Admin, {"client_id": "a"}, AdminConfig),
    ],
)
async def test_client_of_an_address_and_settings_equals_that_of_its_configuration(
    kind: Callable[..., Client], settings: dict[str, object], config: Callable[..., object]
) -> None:
    first, second = kind(BOOTSTRAP, **settings), kind(config(bootstrap=BOOTSTRAP, **settings))
    for client in (first, second):
        if not isinstance(client, Admin):
            assert client._config == config(bootstrap=BOOTSTRAP, **settings)
        await client.close()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Consumer(BOOTSTRAP, groupid="g"), "ConsumerConfig has no setting groupid: did you mean group_id?"),
        (lambda: Producer(BOOTSTRAP, batch_size=1), "ProducerConfig has no setting batch_size: did you mean batch_byt"),
        (lambda: Admin(BOOTSTRAP, clientid="a"), "AdminConfig has no setting clientid: did you mean client_id?"),
        (lambda: Consumer(BOOTSTRAP, group_id=7), "ConsumerConfig: group_id must be str or None, not int"),
        (lambda: Consumer(ConsumerConfig(bootstrap=BOOTSTRAP), group_id="g"), "set group_id in the ConsumerConfig"),
    ],
)
async def test_setting_that_cannot_be_raises_type_error_that_names_configuration_and_field(
    make: Callable[[], Client], text: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("settings", "config"),
    [(ProducerSettings, ProducerConfig), (ConsumerSettings, ConsumerConfig), (AdminSettings, AdminConfig)],
)
def test_keyword_arguments_for_type_checkers_are_the_fields_of_the_configuration(settings: type, config: type) -> None:
    assert get_type_hints(settings) == get_type_hints(config)


async def test_representation_of_a_client_names_its_brokers_and_no_object_id() -> None:
    for made, text in (
        (Producer(BOOTSTRAP, transactional_id="t"), f"<Producer of {BOOTSTRAP}, transactional id t>"),
        (Consumer(BOOTSTRAP, group_id="g"), f"<Consumer of {BOOTSTRAP}, group g>"),
        (Admin(BOOTSTRAP), f"<Admin of {BOOTSTRAP}>"),
    ):
        assert repr(made) == text
        await made.close()


def test_representation_of_tls_settings_hides_the_password() -> None:
    assert "secret" not in repr(TlsSettings(own_file="key.pem", own_password="secret"))


def test_representation_of_a_record_shows_its_headers() -> None:
    record = ConsumerRecord("t", 0, 7, 5, None, b"v", b"\x02\x02a\x02b", TimestampType.CREATE_TIME, 3)
    assert repr(record) == (
        "ConsumerRecord(topic='t', partition=0, offset=7, timestamp_ms=5, key=None, value=b'v', headers=[('a', b'b')])"
    )
    assert repr(record._replace(encoded_headers=b"\x02")).endswith("headers=<corrupt>)")


@pytest.mark.parametrize("client", [Producer, Consumer])
async def test_client_with_sources_of_its_own_uses_them(client: Callable[..., Producer | Consumer]) -> None:
    rng = Random(1)
    made = client(BOOTSTRAP, rng=rng, wall_clock=lambda: 17)
    assert made._runtime.rng is rng
    assert made._runtime.wall_clock() == 17
    await made.close()
    made = client(BOOTSTRAP)
    assert made._runtime.rng is not rng
    assert made._runtime.wall_clock is system_clock_ms
    await made.close()

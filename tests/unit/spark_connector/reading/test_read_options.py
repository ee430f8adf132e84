"""Options of reading: what they become, and how all problems with them are reported at once."""

import pickle

import pytest

from oncelog.clients.tls import TlsSettings
from oncelog.protocol.sasl.login import OauthLogin, SaslLogin
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.columnar.columns import NAMES, WITHOUT_HEADERS
from oncelog.spark_connector.options import OptionsInvalid
from oncelog.spark_connector.reading.offset_bounds import FROM_EARLIEST, FROM_LATEST, Offsets, Timestamp, Timestamps
from oncelog.spark_connector.reading.read_options import ReadOptions, read_columns, read_options
from oncelog.spark_connector.reading.topic_selection import Assign, Subscribe, SubscribePattern
from oncelog.spark_connector.security_options import SECRET_OPTIONS, SECURITY_OPTIONS

SECRET = "wonderland"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(*, streaming: bool = False, **options: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    return read_options(
        {name.lower(): value for name, value in given.items() if value != "absent"}, streaming=streaming
    )


def problems(*, streaming: bool = False, **options: str) -> tuple[str, ...]:
    return problems_of(options, streaming)


def problems_of(options: dict[str, str], streaming: bool) -> tuple[str, ...]:
    with pytest.raises(OptionsInvalid) as raised:
        parse(streaming=streaming, **options)
    return raised.value.problems


def test_read_options_without_settings_have_the_defaults() -> None:
    batch, stream = parse(), parse(streaming=True)
    assert (batch.start, batch.end) == (FROM_EARLIEST, FROM_LATEST)
    assert stream.start == FROM_LATEST
    assert batch.selection == Subscribe(("t",))
    assert batch.columns.names == WITHOUT_HEADERS
    assert batch.fetch.read_committed
    assert batch.fail_on_data_loss
    assert not batch.push_filters
    assert stream.max_trigger_delay_seconds == 900


def test_options_with_several_problems_report_all_at_once() -> None:
    found = problems(
        subscribe="absent",
        kafka__bootstrap__servers="absent",
        startingOffsets="newest",
        failOnDataLoss="maybe",
        minPartitions="0",
        includeHeaders="ja",
        kafka__isolation__level="serializable",
        kafka__sasl__mechanism="PLAIN",
        kafka__auto__offset__reset="latest",
        startingOffset="earliest",
        groupId="g",
    )
    named = [problem.split(":")[0] for problem in found]
    assert sorted(named) == sorted(
        [
            "kafka.bootstrap.servers",
            "assign, subscribe, subscribePattern",
            "startingOffsets",
            "failOnDataLoss",
            "minPartitions",
            "includeHeaders",
            "kafka.isolation.level",
            "kafka.sasl.mechanism",
            "kafka.auto.offset.reset",
            "startingoffset",
            "groupId",
        ]
    )


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        ("failOnDataLoss", "maybe", "true or false"),
        ("minPartitions", "-4", "a whole number from 1 to"),
        ("maxOffsetsPerTrigger", "many", "a whole number of 1 or more"),
        ("maxTriggerDelay", "soon", "15m"),
        ("startingOffsets", "newest", '{"topic": {"0": 23, "1": -1}}'),
        ("startingOffsets", '{"t": [1]}', '{"topic": {"0": 23'),
        ("startingOffsets", '{"t": {"0": -3}}', "-2 for earliest and -1 for latest"),
        ("startingOffsetsByTimestamp", '{"t": {"0": -1}}', "ms since the epoch"),
        ("startingOffsetsByTimestampStrategy", "guess", "error or latest"),
        ("columns", "key,values", "key,value,topic,partition,offset,timestamp,timestampType,headers"),
        ("columns", "key,key", "key,value"),
        ("kafka.isolation.level", "x", "read_committed or read_uncommitted"),
        ("kafka.bootstrap.servers", "host:port", "host:port,host:port"),
        ("kafka.security.protocol", "TLS", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not TLS"),
        ("kafka.ssl.truststore.type", "PEM", "has no effect without kafka.security.protocol='SSL' or 'SASL_SSL'"),
        ("kafka.ssl.truststore.certificates", "x", "has no effect without kafka.security.protocol='SSL' or"),
        ("kafka.ssl.protocol", "TLSv1.3", "kafka.ssl.truststore.location"),
        ("kafka.sasl.jaas.config", "x", "has no effect without kafka.security.protocol='SASL_PLAINTEXT'"),
        ("kafka.sasl.password", "x", "is not supported; there are"),
        ("startingOfsets", "earliest", "did you mean startingOffsets?"),
        ("kafka.max.partition.fetch.byte", "1", "did you mean kafka.max.partition.fetch.bytes?"),
        ("entirely.else", "1", "there are"),
    ],
)
def test_problem_names_the_option_and_its_valid_values(option: str, value: str, valid: str) -> None:
    problem = problems_of({option.replace(".", "__"): value}, True)[0]
    assert problem.lower().startswith(option.lower())
    assert valid in problem


@pytest.mark.parametrize("given", [{"assign": '{"t": [0]}'}, {"subscribePattern": "t.*"}])
def test_options_without_exactly_one_selection_are_refused(given: dict[str, str]) -> None:
    (problem,) = problems_of(given, False)
    assert "one of them is required" in problem


def test_selection_options_are_parsed_into_selections() -> None:
    assert parse(subscribe="a, b,a").selection == Subscribe(("a", "b"))
    assert parse(subscribe="absent", assign='{"t": [1, 0]}').selection == Assign((T0, T1))
    pattern = parse(subscribe="absent", subscribePattern="t[0-9]").selection
    assert isinstance(pattern, SubscribePattern)
    assert pattern.matches("t1")
    assert not pattern.matches("t11")
    everything = parse(subscribe="absent", subscribePattern=".*").selection
    assert isinstance(everything, SubscribePattern)
    assert not everything.matches("__spark_sink_state")
    assert everything.matches("decisions")
    named = parse(subscribe="absent", subscribePattern=".*", stateTopic="decisions").selection
    assert isinstance(named, SubscribePattern)
    assert not named.matches("__spark_sink_state")
    assert not named.matches("decisions")
    assert "not valid" in problems(subscribe="absent", subscribePattern="t[")[0]


def test_timestamps_override_offsets_and_one_for_all_overrides_many() -> None:
    each = '{"t": {"0": 5}}'
    offsets = '{"t": {"0": 7}}'
    assert parse(startingOffsets=offsets).start == Offsets("startingOffsets", {T0: 7})
    by_each = parse(startingOffsets=offsets, startingOffsetsByTimestamp=each)
    assert by_each.start == Timestamps("startingOffsetsByTimestamp", {T0: 5}, False)
    by_one = parse(startingOffsetsByTimestamp=each, startingTimestamp="9", startingOffsetsByTimestampStrategy="latest")
    assert by_one.start == Timestamp("startingTimestamp", 9, True)
    assert parse(endingTimestamp="9", endingOffsets=offsets).end == Timestamp("endingTimestamp", 9, True)


def test_partition_whose_start_time_is_after_its_end_time_is_refused() -> None:
    """Also where it has no records, so that the offsets of both times are the same."""
    starts, ends = '{"t": {"0": 5, "1": 9}}', '{"t": {"0": 5, "1": 8}}'
    assert problems(startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends) == (
        "startingOffsetsByTimestamp: is after endingOffsetsByTimestamp in t-1",
    )
    assert parse(startingOffsetsByTimestamp=ends, endingOffsetsByTimestamp=starts)
    assert parse(startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp='{"t": {"0": 5}}')


def test_options_of_streams_and_of_batches_are_refused_by_the_other() -> None:
    assert problems(startingOffsets="latest")[0].startswith("startingOffsets")
    assert problems(startingOffsets='{"t": {"0": -1}}')[0].startswith("startingOffsets")
    assert parse(streaming=True, startingOffsets='{"t": {"0": -1}}').start == Offsets("startingOffsets", {T0: -1})
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters"):
        assert problems_of({name: "true"}, True)[0].startswith(name)
    assert problems(endingOffsets='{"t": {"0": -2}}')[0].startswith("endingOffsets")


def test_trigger_options_are_parsed_into_limits() -> None:
    limits = parse(streaming=True, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10", maxTriggerDelay="90s")
    assert (limits.max_offsets_per_trigger, limits.min_offsets_per_trigger) == (10, 10)
    assert limits.max_trigger_delay_seconds == 90
    found = problems(streaming=True, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="11")
    assert found == ("minOffsetsPerTrigger: 11 is more than maxOffsetsPerTrigger, 10",)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("500", 0.5), ("15m", 900), ("1h", 3600), ("2 d", 172800)]
)
def test_durations_are_parsed_into_seconds(text: str, seconds: float) -> None:
    assert parse(streaming=True, maxTriggerDelay=text).max_trigger_delay_seconds == seconds


def test_column_options_are_parsed_into_columns() -> None:
    assert parse(includeHeaders="true").columns.names == NAMES
    assert parse(columns="value, timestampTYPE").columns.names == ("value", "timestampType")
    assert problems(columns="value", includeHeaders="true")[0].startswith("includeHeaders")
    assert read_columns({"columns": "offset", "any": "thing"}).ddl == "`offset` bigint"
    with pytest.raises(OptionsInvalid) as raised:
        read_columns({"columns": "offset,x", "any": "thing"})
    assert len(raised.value.problems) == 1


def test_client_options_are_parsed_into_settings() -> None:
    options = parse(
        kafka__client__id="me",
        kafka__request__timeout__ms="1500",
        kafka__security__protocol="PLAINTEXT",
        kafka__max__partition__fetch__bytes="1000",
        kafkaConsumer__pollTimeoutMs="absent",
    )
    assert options.client.client_id == "me"
    assert options.client.request_seconds == 1.5
    assert options.fetch.max_partition_bytes == 1000


def test_tls_options_are_parsed_or_refused() -> None:
    options = parse(
        kafka__security__protocol="ssl",
        kafka__ssl__truststore__type="PEM",
        kafka__ssl__truststore__location="/ca.pem",
        kafka__ssl__keystore__location="/me.p12",
        kafka__ssl__keystore__password=SECRET,
        kafka__ssl__key__password=SECRET,
        kafka__ssl__endpoint__identification__algorithm="",
        kafka__ssl__enabled__protocols="TLSv1.2, TLSv1.3",
    )
    assert options.client.tls == TlsSettings(
        trusted_file="/ca.pem",
        trusted_type="PEM",
        own_file="/me.p12",
        own_store_password=SECRET,
        own_password=SECRET,
        checks_host=False,
    )
    assert pickle.loads(pickle.dumps(options)) == options
    assert SECRET not in repr(options)
    assert parse(kafka__security__protocol="SSL").client.tls == TlsSettings()
    found = problems(
        kafka__security__protocol="SSL",
        kafka__ssl__truststore__location="/ca.jks",
        kafka__ssl__truststore__certificates="x",
        kafka__ssl__keystore__key=SECRET,
    )
    assert found == (
        "kafka.ssl.truststore.location: is given, and kafka.ssl.truststore.certificates too: leave one out",
        "kafka.ssl.keystore.certificate.chain: is missing: kafka.ssl.keystore.key is given",
    )


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", "plain.Plain"), ("SCRAM-SHA-512", "scram.Scram")])
def test_sasl_options_are_parsed(protocol: str, mechanism: str, module: str) -> None:
    jaas = f'org.apache.kafka.common.security.{module}LoginModule required username="alice" password="{SECRET}";'
    options = parse(
        kafka__security__protocol=protocol, kafka__sasl__mechanism=mechanism, kafka__sasl__jaas__config=jaas
    )
    assert options.client.login == SaslLogin(mechanism=mechanism, username="alice", password=SECRET)
    assert (options.client.tls is not None) == (protocol == "SASL_SSL")
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.client)
    assert SECRET not in repr(options)


def test_options_of_oauthbearer_are_parsed() -> None:
    options = parse(
        kafka__security__protocol="SASL_SSL",
        kafka__sasl__mechanism="OAUTHBEARER",
        kafka__sasl__oauthbearer__token__endpoint__url="https://issuer.example/token",
        kafka__sasl__oauthbearer__client__credentials__client__id="app",
        kafka__sasl__oauthbearer__client__credentials__client__secret=SECRET,
        kafka__sasl__oauthbearer__scope="kafka",
    )
    assert options.client.login == OauthLogin(
        token_endpoint_url="https://issuer.example/token", client_id="app", client_secret=SECRET, scope="kafka"
    )
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.client)
    assert SECRET not in repr(options)
    assert "kafka.sasl.oauthbearer.client.credentials.client.secret" in SECRET_OPTIONS


def test_token_provider_is_no_option() -> None:
    assert "kafka.sasl.oauthbearer.token.provider" not in SECURITY_OPTIONS
    given = {"kafka__sasl__oauthbearer__token__provider": "print"}
    assert "is not supported" in problems_of(given, False)[0]


def test_sasl_options_that_cannot_work_are_refused_without_their_secrets() -> None:
    found = problems(
        kafka__security__protocol="SASL_SSL", kafka__sasl__mechanism="PLAIN", kafka__sasl__jaas__config=f"x {SECRET}"
    )
    assert found[0].startswith("kafka.sasl.jaas.config: names a login module that is not known")
    assert SECRET not in str(found)


def test_options_that_spark_adds_are_accepted() -> None:
    parse(streaming=True, checkpointLocation="/tmp/x", queryName="q")


def test_options_and_their_errors_survive_pickling() -> None:
    options = parse()
    assert pickle.loads(pickle.dumps(options)) == options
    error = OptionsInvalid(["a: is wrong"])
    assert pickle.loads(pickle.dumps(error)).problems == error.problems
    assert str(error) == "1 option is not valid for format oncelog:\n  - a: is wrong"

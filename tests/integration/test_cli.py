"""The command line against a broker process, each verb as a user types it.

``INTEROP_BROKER=kafka`` runs the same against Apache Kafka, to prove that the verbs ask nothing special of a broker.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.bound_process import start_bound
from tests.command import SECONDS, Oncelog
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess, free_port

LOOKS = 300
"""Of a process each, at something that comes to be by itself."""
IS_KAFKA = os.environ.get("INTEROP_BROKER") == "kafka"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    kind = KafkaProcess if IS_KAFKA else OncelogProcess
    with kind(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture(scope="module")
def oncelog(broker: BrokerProcess) -> Oncelog:
    return Oncelog(broker.address)


@pytest.fixture
def topic(oncelog: Oncelog, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, named like the test."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    oncelog(f"topic create {name} --partitions 2 --replication-factor 1")
    return name


def test_topics_are_created_listed_described_and_deleted(oncelog: Oncelog) -> None:
    oncelog("topic create alpha beta -p 3 -c retention.ms=60000")
    listed = {topic["topic"]: topic for topic in oncelog.json("topic list")}
    assert listed["alpha"]["partitions"] == listed["beta"]["partitions"] == 3
    described = oncelog.json("topic describe alpha --offsets")
    assert described["replication_factor"] == 1
    assert [(p["partition"], p["begin"], p["end"]) for p in described["partitions"]] == [(i, 0, 0) for i in range(3)]
    assert all(p["isr"] == p["replicas"] == [p["leader"]] for p in described["partitions"])
    oncelog("topic delete alpha beta")
    assert not {"alpha", "beta"} & {topic["topic"] for topic in oncelog.json("topic list")}


def test_topic_that_exists_is_refused_unless_that_is_wanted(oncelog: Oncelog, topic: str) -> None:
    said = oncelog.fails(f"topic create {topic}")
    assert "TOPIC_ALREADY_EXISTS" in said
    assert "--if-not-exists" in said
    oncelog(f"topic create {topic} --if-not-exists")


def test_topic_that_would_be_refused_is_not_created_by_a_dry_run(oncelog: Oncelog) -> None:
    assert "INVALID_REPLICATION_FACTOR" in oncelog.fails("topic create gamma -r 99 --validate-only")
    oncelog("topic create gamma --validate-only")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in oncelog.fails("topic describe gamma")


def test_partitions_are_added(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"topic add-partitions {topic} --num 3")
    assert len(oncelog.json(f"topic describe {topic}")["partitions"]) == 5
    assert "UNKNOWN_TOPIC_OR_PARTITION" in oncelog.fails("topic add-partitions nothing --num 1")


def test_configurations_are_changed_and_tell_their_sources(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"topic alter-config {topic} --set retention.ms=60000 --set segment.bytes=1048576")
    oncelog(f"config alter topic {topic} --delete segment.bytes --append cleanup.policy=compact")
    changed = {entry["name"]: entry for entry in oncelog.json(f"config describe topic {topic}")}
    assert changed["retention.ms"]["value"] == "60000"
    assert changed["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert changed["cleanup.policy"]["value"] == "delete,compact"
    assert "segment.bytes" not in changed
    (documented,) = oncelog.json(f"config describe topic {topic} --key retention.ms --docs")
    assert documented["documentation"]
    assert "INVALID_CONFIG" in oncelog.fails(f"config alter topic {topic} --set retention.ms=soon")


def test_broker_describes_its_configuration(oncelog: Oncelog) -> None:
    broker_id = oncelog.json("health")["brokers"][0]["broker"]
    names = {entry["name"] for entry in oncelog.json(f"config describe broker {broker_id} --all")}
    assert {"log.retention.ms", "num.partitions", "message.max.bytes"} <= names


def test_settings_of_all_brokers_are_changed_and_all_that_is_set_is_listed(oncelog: Oncelog, topic: str) -> None:
    broker_id = oncelog.json("health")["brokers"][0]["broker"]
    oncelog("config alter broker --default --set log.cleaner.backoff.ms=14000")
    oncelog(f"config alter broker {broker_id} --set log.cleaner.backoff.ms=16000")
    oncelog(f"config alter topic {topic} --set retention.ms=60000")
    try:
        described = {entry["name"]: entry for entry in oncelog.json("config describe broker --default")}
        assert described["log.cleaner.backoff.ms"]["value"] == "14000"
        assert described["log.cleaner.backoff.ms"]["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
        listed = {(row["type"], row["name"], row["setting"], row["value"]) for row in oncelog.json("config list")}
        assert {
            ("broker", "(all)", "log.cleaner.backoff.ms", "14000"),
            ("broker", str(broker_id), "log.cleaner.backoff.ms", "16000"),
            ("topic", topic, "retention.ms", "60000"),
        } <= listed
        assert len({row for row in listed if row[2] == "log.cleaner.backoff.ms"}) == 2
    finally:
        oncelog(f"config alter broker {broker_id} --delete log.cleaner.backoff.ms")
        oncelog("config alter broker --default --delete log.cleaner.backoff.ms")
    names = {entry["name"] for entry in oncelog.json("config describe broker --default")}
    assert "log.cleaner.backoff.ms" not in names


def test_settings_of_internal_topics_are_listed_only_with_all(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic}", "a\n")
    oncelog(f"consume {topic} --group {topic} -n 1")
    assert not [row for row in oncelog.json("config list") if row["name"].startswith("__")]
    assert "__consumer_offsets" in {row["name"] for row in oncelog.json("config list --all")}
    assert "of internal topics not shown: see --all" in oncelog.run("config list").stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("group list --state Dead", "No groups in state Dead."),
        ("txn list --producer-id 987654", "No transactional ids match."),
    ],
)
def test_empty_table_is_a_sentence_on_standard_error_and_an_empty_list_in_json(
    oncelog: Oncelog, words: str, sentence: str
) -> None:
    done = oncelog.run(words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{sentence}\n")
    assert oncelog.json(words) == []


@pytest.mark.parametrize(
    "words",
    [
        "topic describe nothing",
        "topic trim-prefix nothing --before end",
        "consume nothing -e",
        "consume nothing --group nothing -n 1",
        "group seek nothing --topic nothing --to end",
        "txn producers nothing",
        "txn find-hanging --topic nothing --partition 0",
        "txn abort --topic nothing --partition 0 --start-offset 0",
        "log-dirs --topic nothing",
    ],
)
def test_missing_topic_is_an_error_that_leads_to_the_list_of_topics(oncelog: Oncelog, words: str) -> None:
    said = oncelog.fails(words)
    assert said.startswith("Error: ")
    assert "nothing" in said
    assert "UNKNOWN_TOPIC_OR_PARTITION" in said
    assert "`oncelog topic list`" in said


@pytest.mark.parametrize(
    "words",
    [
        "produce {} --partition 9",
        "consume {} --partition 9 -e",
        "topic trim-prefix {} --before end --partition 9",
        "group seek nothing --topic {}:9 --to end",
        "txn producers {} --partition 9",
        "txn find-hanging --topic {} --partition 9",
        "txn abort --topic {} --partition 9 --start-offset 0",
    ],
)
def test_missing_partition_is_an_error_that_names_those_that_exist(oncelog: Oncelog, words: str) -> None:
    topic = "halves"
    oncelog(f"topic create {topic} -p 2 -r 1 --if-not-exists")
    said = oncelog.fails(f"{words.format(topic)} --timeout 600", text="a line\n")  # The limit of a test is far below.
    assert f"Error: partition 9 of topic {topic}: UNKNOWN_TOPIC_OR_PARTITION: it has partitions 0 to 1\n" in said
    assert "`oncelog topic add-partitions TOPIC --num N`" in said
    assert "topic create" not in said


def test_deleting_offsets_of_a_missing_group_fails(oncelog: Oncelog, topic: str) -> None:
    said = oncelog.fails(f"group offset-delete nothing --topic {topic}")
    assert "group nothing: GROUP_ID_NOT_FOUND" in said
    assert "`oncelog group list`" in said


def test_reading_from_behind_the_end_warns_and_names_the_end(oncelog: Oncelog, topic: str) -> None:
    done = oncelog.run(f"consume {topic} --from 99 -e --partition 0")
    assert f"Warning: no offset 99: {topic}-0 ends at 0" in done.stderr
    assert "oncelog topic describe" in done.stderr


def test_time_without_its_sign_is_refused_with_the_sign(oncelog: Oncelog, topic: str) -> None:
    said = oncelog.fails(f"consume {topic} --from 2030-01-01T00:00:00", exit_code=2)
    assert "a time has an @ in front: @2030-01-01T00:00:00" in said


def test_static_setting_is_refused_with_its_remedy(oncelog: Oncelog, broker: BrokerProcess) -> None:
    said = oncelog.fails("config alter broker --default --set log.dirs=/elsewhere")
    for remedy in ("--set log.dirs=", "KAFKA_LOG_DIRS", "--config", "restart that broker"):
        assert remedy in said


def test_unknown_setting_is_refused_with_the_nearest(oncelog: Oncelog, topic: str) -> None:
    assert "did you mean retention.ms?" in oncelog.fails(f"config alter topic {topic} --set retention.mss=1")
    assert "did you mean retention.ms?" in oncelog.fails(f"config describe topic {topic} --key retention.mss")
    assert "did you mean log.retention.ms?" in oncelog.fails("config alter broker --default --set retention.ms=1")
    assert "did you mean retention.ms?" in oncelog.fails(f"topic create {topic}-2 --config log.retention.ms=1")


def test_config_command_without_resource_requires_one(oncelog: Oncelog) -> None:
    assert "--default" in oncelog.fails("config describe broker", exit_code=2)
    assert "--default" in oncelog.fails("config describe broker 1 --default", exit_code=2)
    assert "--default" in oncelog.fails("config describe topic --default", exit_code=2)


def test_hints_lead_to_what_is_wrong(oncelog: Oncelog) -> None:
    oncelog("topic create dots.and_more -p 1")
    assert "names of metrics have an underscore for each dot" in oncelog.fails("topic create dots_and.more")
    assert "249 letters" in oncelog.fails("topic create spaces_@_")
    done = oncelog.run("config describe topic dots.and_more")
    assert done.returncode == 0
    assert "have their defaults: see --all" in done.stderr
    assert "--all" in oncelog.fails("config alter topic dots.and_more --set nonsense=1")
    assert "ports are 1 to 65535" in oncelog.fails("topic list -b localhost:99999", exit_code=2)
    assert "TLS and SASL are not supported yet" in oncelog.fails("topic list -b SASL_SSL://localhost:9092", exit_code=2)


def test_bootstrap_address_may_name_its_listener(oncelog: Oncelog) -> None:
    oncelog(f"topic list -b PLAINTEXT://{oncelog.environment['ONCELOG_BOOTSTRAP']}")


def test_lines_become_records_and_lines_again(oncelog: Oncelog, topic: str) -> None:
    lines = [f"line {number}" for number in range(100)]
    oncelog(f"produce {topic}", "\n".join(lines))
    assert sorted(oncelog(f"consume {topic} --until-end --format value").splitlines()) == sorted(lines)


def test_keys_headers_and_nulls(oncelog: Oncelog, topic: str) -> None:
    oncelog(["produce", topic, "-K", ":", "-H", "trace=7", "-Z", "--partition", "1"], "k1:v1\nk2:\n")
    oncelog(f"produce {topic} --partition 1", "no key\n")
    records = [json.loads(line) for line in oncelog(f"consume {topic} -n 3 --format json").splitlines()]
    assert [(r["partition"], r["offset"], r["key"], r["value"]) for r in records] == [
        (1, 0, "k1", "v1"),
        (1, 1, "k2", None),
        (1, 2, None, "no key"),
    ]
    assert records[0]["headers"] == [{"name": "trace", "value": "7"}]


def test_line_without_its_separator_is_refused_by_its_number_and_the_others_are_written(
    oncelog: Oncelog, topic: str
) -> None:
    done = oncelog.run(f"produce {topic} -p 0 -K :", "a:1\nb:2\nc3\nd:4\n")
    assert done.returncode == 1
    assert "Error: line 3 is not written: it has no key separator ':'\n  with --key" in done.stderr
    assert done.stderr.endswith("Error: 3 written, 1 not: line 3\n")
    assert oncelog(f"consume {topic} -e --format value").split() == ["1", "2", "4"]


def test_lines_without_keys_for_a_compacted_topic_are_refused_with_the_options_that_give_them_keys(
    oncelog: Oncelog,
) -> None:
    oncelog("topic create compacted-lines -p 1 --replication-factor 1 -c cleanup.policy=compact")
    lines = "".join(f"{number}\n" for number in range(3))
    done = oncelog.run("produce compacted-lines", lines)
    assert "INVALID_RECORD" in done.stderr
    assert "--key-separator" in done.stderr
    assert done.stderr.endswith("Error: 0 written, 3 not: lines 1-3\n")


def test_equal_keys_share_a_partition(oncelog: Oncelog, topic: str) -> None:
    oncelog(["produce", topic, "-K", ":"], "".join(f"{number % 10}:v\n" for number in range(100)))
    records = [json.loads(line) for line in oncelog(f"consume {topic} -e --format json").splitlines()]
    assert len(records) == 100
    assert len({(record["key"], record["partition"]) for record in records}) == 10
    assert {record["partition"] for record in records} == {0, 1}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_compresses_with_the_chosen_codec(oncelog: Oncelog, topic: str, compression: str) -> None:
    oncelog(f"produce {topic} -z {compression} -p 0", "the same\n" * 50)
    assert oncelog(f"consume {topic} -e --format value") == "the same\n" * 50


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_produce_accepts_each_level_of_acks(oncelog: Oncelog, topic: str, acks: str) -> None:
    oncelog(f"produce {topic} --acks {acks} -p 0", "one\ntwo\n")
    assert oncelog(f"consume {topic} -n 2 --format value") == "one\ntwo\n"


def test_producing_tells_where_records_are(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 1", "a\nb\n")
    (row,) = json.loads(oncelog(f"produce {topic} -p 1 --format json", "c\nd\ne\n"))
    assert row == {"topic": topic, "partition": 1, "records": 3, "first_offset": 2, "last_offset": 4}


def test_producing_creates_a_topic_where_brokers_do(oncelog: Oncelog) -> None:
    oncelog("produce created-by-producing", "first\n")
    assert oncelog("consume created-by-producing -e --format value") == "first\n"


def test_record_that_is_too_large_is_refused_with_a_remedy(oncelog: Oncelog, topic: str) -> None:
    done = oncelog.run(f"produce {topic}", "x" * 2_000_000)
    assert done.returncode == 1
    assert "MESSAGE_TOO_LARGE" in done.stderr
    assert "max.message.bytes" in done.stderr


def test_consume_begins_where_the_options_say(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "".join(f"{number}\n" for number in range(10)))
    stamps = [json.loads(line)["timestamp"] for line in oncelog(f"consume {topic} -e --format json").splitlines()]

    def values(position: str) -> list[str]:
        return oncelog(["consume", topic, "-e", "--format", "value", "--from", position]).split()

    assert values("beginning") == [str(number) for number in range(10)]
    assert values("7") == ["7", "8", "9"]
    assert values("-2") == ["8", "9"]
    assert values("end") == []
    assert values(f"@{stamps[0]}") == [str(number) for number in range(10)]
    assert values(f"@{stamps[-1] + 60_000}") == []
    assert "OFFSET_OUT_OF_RANGE" in oncelog.fails(f"consume {topic} -p 0 --from 99 -n 1")


def test_prefixes_are_trimmed(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "".join(f"{number}\n" for number in range(10)))
    oncelog(f"topic trim-prefix {topic} --before 4 --partition 0")
    assert oncelog(f"consume {topic} -e --format value").split() == [str(number) for number in range(4, 10)]
    oncelog(f"topic trim-prefix {topic} --before end")
    assert [p["begin"] for p in oncelog.json(f"topic describe {topic} --offsets")["partitions"]] == [10, 0]
    assert "OFFSET_OUT_OF_RANGE" in oncelog.fails(f"topic trim-prefix {topic} --before 99")


def test_group_is_followed_moved_and_forgotten(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "".join(f"{number}\n" for number in range(10)))
    group = f"{topic}-group"
    assert oncelog(f"consume {topic} --group {group} -n 4 --format value").split() == ["0", "1", "2", "3"]
    assert oncelog(f"consume {topic} --group {group} -n 2 --format value").split() == ["4", "5"]
    described = oncelog.json(f"group describe {group}")
    assert (described["state"], described["members"], described["lag"]) == ("Empty", 0, 4)
    assert [(p["partition"], p["committed"], p["end"]) for p in described["partitions"]] == [(0, 6, 10), (1, 0, 0)]
    assert group in {listed["group"] for listed in oncelog.json("group list --state Empty")}

    oncelog(f"group seek {group} --to 1 --dry-run")
    assert oncelog.json(f"group describe {group}")["lag"] == 4
    oncelog(f"group seek {group} --to -1 --topic {topic}:0")
    assert oncelog.json(f"group describe {group}")["lag"] == 1
    oncelog(f"group seek {group} --to beginning --topic {topic}")
    assert [p["committed"] for p in oncelog.json(f"group describe {group}")["partitions"]] == [0, 0]

    oncelog(f"group offset-delete {group} --topic {topic}:1")
    assert [p["partition"] for p in oncelog.json(f"group describe {group}")["partitions"]] == [0]
    oncelog(f"group delete {group}")
    assert "GROUP_ID_NOT_FOUND" in oncelog.fails(f"group describe {group}")
    assert "oncelog group list" in oncelog.fails(f"group delete {group}")


def test_group_is_moved_no_farther_than_the_log_reaches_with_a_warning(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "".join(f"{number}\n" for number in range(4)))
    oncelog(f"topic trim-prefix {topic} --before 2 --partition 0")
    group = f"{topic}-group"
    beyond = f"Warning: {topic}-0: offset 999 is beyond the end of the log: 4 is used, its end\n"
    for dry_run in ("--dry-run", ""):
        done = oncelog.run(f"group seek {group} --to 999 -t {topic}:0 {dry_run}")
        assert (done.returncode, done.stderr) == (0, beyond)
        assert done.stdout.splitlines()[1].split() == [topic, "0", "-", "4"]
    (partition,) = oncelog.json(f"group describe {group}")["partitions"]
    assert (partition["committed"], partition["lag"]) == (4, 0)
    done = oncelog.run(f"group seek {group} --to 1 -t {topic}:0")
    assert done.stderr == f"Warning: {topic}-0: offset 1 is before the log begins: 2 is used, its beginning\n"
    assert oncelog.json(f"group describe {group}")["lag"] == 2


def test_partition_that_a_topic_does_not_have_is_refused_with_those_that_it_has(oncelog: Oncelog, topic: str) -> None:
    for words in (f"group seek {topic} --to 0 --topic {topic}:0,9", f"consume {topic} -p 9 -p 0"):
        said = oncelog.fails(words)
        assert f"Error: partition 9 of topic {topic}: UNKNOWN_TOPIC_OR_PARTITION: it has partitions 0 to 1\n" in said
        assert "oncelog topic add-partitions" in said


def test_group_that_has_read_everything_has_no_lag(oncelog: Oncelog, topic: str) -> None:
    """Markers at the end are passed, too."""
    oncelog(f"produce {topic} -p 0", "before\n")
    transact(oncelog, topic, "committed", commit=True)
    oncelog(f"consume {topic} --group {topic} --until-end --format value")
    assert oncelog.json(f"group describe {topic}")["lag"] == 0


def make_producer(oncelog: Oncelog, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": oncelog.environment["ONCELOG_BOOTSTRAP"], "transactional.id": transactional_id}
    )
    producer.init_transactions(SECONDS)
    return producer


def transact(oncelog: Oncelog, topic: str, value: str, *, commit: bool) -> None:
    producer = make_producer(oncelog, f"{topic}-id")
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.flush(SECONDS)
    if commit:
        producer.commit_transaction(SECONDS)
    else:
        producer.abort_transaction(SECONDS)


def test_aborted_records_are_shown_only_with_read_uncommitted(oncelog: Oncelog, topic: str) -> None:
    transact(oncelog, topic, "first", commit=True)
    transact(oncelog, topic, "aborted", commit=False)
    transact(oncelog, topic, "last", commit=True)
    assert oncelog(f"consume {topic} -e --format value").split() == ["first", "last"]
    everything = oncelog(f"consume {topic} -e --format value --isolation read_uncommitted").split()
    assert everything == ["first", "aborted", "last"]


def test_open_transaction_is_shown_and_holds_readers_back(oncelog: Oncelog, topic: str) -> None:
    producer = make_producer(oncelog, "open-one")
    producer.begin_transaction()
    producer.produce(topic, "pending", partition=1)
    producer.flush(SECONDS)
    (listed,) = [t for t in oncelog.json("txn list --state Ongoing") if t["transactional_id"] == "open-one"]
    described = oncelog.json("txn describe open-one")
    assert described["state"] == "Ongoing"
    assert described["producer_id"] == listed["producer_id"]
    assert described["partitions"] == [{"topic": topic, "partition": 1}]
    assert 0 <= described["open_for_ms"] < SECONDS * 1000
    (active,) = oncelog.json(f"txn producers {topic}")
    assert (active["partition"], active["producer_id"], active["transaction_start_offset"]) == (
        1,
        listed["producer_id"],
        0,
    )
    assert oncelog(f"consume {topic} -e --format value") == ""
    producer.abort_transaction(SECONDS)
    described = oncelog.json("txn describe open-one")
    assert (described["state"], described["start_ms"], described["open_for_ms"]) == ("CompleteAbort", None, None)
    assert oncelog.json(f"txn producers {topic} -p 1")[0]["transaction_start_offset"] is None


def test_transactional_id_that_was_never_used_is_not_found(oncelog: Oncelog) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in oncelog.fails("txn describe nobody")


def test_health_readiness_and_waiting(oncelog: Oncelog, topic: str) -> None:
    health = oncelog.json("health")
    assert health["healthy"] is True
    assert health["partitions"] >= 2
    assert [broker["reached"] for broker in health["brokers"]] == [True]
    assert oncelog("health --ready").strip() == "ready"
    assert oncelog("wait --brokers 1").strip() == "1 broker and a controller"
    assert "1 of 2 brokers" in oncelog.fails("wait --brokers 2 --timeout 8", exit_code=3)


def test_command_without_broker_fails_and_names_the_address(oncelog: Oncelog) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for words in ("topic list", "health --ready", "wait --timeout 8"):
        assert "Connection refused" in oncelog.fails(f"{words} --bootstrap {nobody}", exit_code=3)


def test_address_of_another_service_is_reported(oncelog: Oncelog, tmp_path: Path) -> None:
    """A web server, say: its response is not taken for a frame of a gigabyte."""
    script = (
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    print(server.getsockname()[1], flush=True)\n"
        "    client, _ = server.accept()\n"
        "    client.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n')\n"
        "    client.recv(1000)\n"
        "    client.close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        said = oncelog.fails(f"topic list --bootstrap 127.0.0.1:{port}", exit_code=3)
    assert f"127.0.0.1:{port} does not respond like a Kafka broker: it speaks HTTP" in said


@contextmanager
def reading(oncelog: Oncelog, words: str) -> Iterator["subprocess.Popen[str]"]:
    """``oncelog consume`` without an end, whose lines come as they are printed."""
    with start_bound(
        [sys.executable, "-u", "-m", "oncelog", "consume", "--format", "value", *words.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=oncelog.environment,
    ) as reader:
        try:
            yield reader
        finally:
            reader.kill()


def lines_of(reader: "subprocess.Popen[str]", count: int) -> list[str]:
    assert reader.stdout is not None
    return [reader.stdout.readline().rstrip("\n") for _ in range(count)]


def rest_of(reader: "subprocess.Popen[str]", signal_number: int) -> tuple[list[str], str]:
    """End it in order: the lines that it had printed, and what it says at the end."""
    reader.send_signal(signal_number)
    printed, said = reader.communicate(timeout=SECONDS)
    assert reader.returncode == 0, said
    return printed.splitlines(), said


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_reading_without_end_stops_at_a_signal_commits_and_counts(
    oncelog: Oncelog, topic: str, signal_number: int
) -> None:
    oncelog(f"produce {topic} -p 0", "one\ntwo\n")
    with reading(oncelog, f"{topic} --group {topic}") as reader:
        assert lines_of(reader, 2) == ["one", "two"]
        assert rest_of(reader, signal_number) == ([], "Read 2 records.\n")
    assert oncelog.json(f"group describe {topic}")["lag"] == 0


def until_no_lag(oncelog: Oncelog, group: str) -> None:
    for _ in range(LOOKS):
        if not oncelog.json(f"group describe {group}")["lag"]:
            return
    pytest.fail(f"group {group} commits nothing")


def until_members_have_partitions(oncelog: Oncelog, group: str, count: int) -> None:
    for _ in range(LOOKS):
        described = oncelog.run(f"group describe {group} --format json")
        rows = json.loads(described.stdout)["partitions"] if described.returncode == 0 else []
        if len({row["member_id"] for row in rows if row["member_id"]}) == count:
            return
    pytest.fail(f"group {group} never has {count} members with partitions")


def test_records_printed_before_a_kill_are_committed(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "one\ntwo\n")
    with reading(oncelog, f"{topic} --group {topic}") as reader:
        assert lines_of(reader, 2) == ["one", "two"]
        until_no_lag(oncelog, topic)


def test_members_of_a_group_share_the_partitions_and_print_each_record_once(oncelog: Oncelog, topic: str) -> None:
    with reading(oncelog, f"{topic} --group {topic}") as first, reading(oncelog, f"{topic} --group {topic}") as second:
        until_members_have_partitions(oncelog, topic, 2)
        for partition in range(2):
            oncelog(f"produce {topic} -p {partition}", "".join(f"{partition}-{number}\n" for number in range(10)))
        printed = [lines_of(first, 10), lines_of(second, 10)]
        ended = [rest_of(reader, signal.SIGTERM) for reader in (first, second)]
    assert sorted(printed[0] + printed[1]) == sorted(
        f"{partition}-{number}" for partition in range(2) for number in range(10)
    )
    assert [rest for rest, _ in ended] == [[], []]
    assert oncelog.json(f"group describe {topic}")["lag"] == 0


def test_member_with_from_begins_there_only_without_a_commit(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "0\n1\n2\n")
    assert oncelog(f"consume {topic} --group {topic} --from -2 -n 1 --format value").split() == ["1"]
    oncelog(f"produce {topic} -p 1", "a\nb\n")
    rest = oncelog(f"consume {topic} --group {topic} --from end -e --format value").split()
    assert sorted(rest) == ["2", "a", "b"]


def test_member_with_from_behind_the_end_begins_there_and_warns(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "0\n1\n2\n")
    oncelog(f"produce {topic} -p 1", "".join(f"{number}\n" for number in range(5)))
    done = oncelog.run(f"consume {topic} --group {topic} --from 4 -e --format value")
    assert (done.returncode, done.stdout.split()) == (0, ["4"])
    assert f"{topic}-0 ends at 3" in done.stderr
    assert f"{topic}-1" not in done.stderr
    oncelog(f"topic trim-prefix {topic} --before 3 --partition 1")
    done = oncelog.run(f"consume {topic} --group {topic}-2 --from 1 -e --format value")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["1", "2", "3", "4"])
    assert f"{topic}-1 begins at 3" in done.stderr


def test_member_that_stops_at_the_end_reads_what_a_leaving_member_leaves(oncelog: Oncelog, topic: str) -> None:
    """It joins while another member has everything, and that one leaves without having committed."""
    for partition in range(2):
        oncelog(f"produce {topic} -p {partition}", "".join(f"{partition}-{number}\n" for number in range(10)))
    settings = {
        "bootstrap.servers": oncelog.environment["ONCELOG_BOOTSTRAP"],
        "group.id": topic,
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    leaving = Consumer(settings)
    leaving.subscribe([topic])
    while len(leaving.assignment()) < 2:
        leaving.poll(0.1)
    with reading(oncelog, f"{topic} --group {topic} -e") as reader:
        for _ in range(LOOKS):
            described = oncelog.json(f"group describe {topic}")
            if (described["state"], described["members"]) == ("Stable", 2) or reader.poll() is not None:
                break
            leaving.poll(0.1)
        with pytest.raises(subprocess.TimeoutExpired):  # The other one has not given anything up.
            reader.wait(4.0)
        leaving.close()
        printed, said = reader.communicate(timeout=2 * SECONDS)
    assert sorted(printed.split()) == sorted(f"{partition}-{number}" for partition in range(2) for number in range(10))
    assert said == "Read 20 records.\n"


def test_member_that_stops_at_the_end_leaves_later_records_to_its_successor(oncelog: Oncelog, topic: str) -> None:
    oncelog(f"produce {topic} -p 0", "0\n1\n")
    done = oncelog.run(f"consume {topic} --group {topic} -e --format value")
    assert (done.stdout.split(), done.stderr) == (["0", "1"], "Read 2 records.\n")
    oncelog(f"produce {topic} -p 0", "2\n")
    assert oncelog(f"consume {topic} --group {topic} -e --format value").split() == ["2"]


@pytest.mark.parametrize("output", ["table", "value", "json"])
def test_control_characters_reach_the_terminal_only_with_the_option(oncelog: Oncelog, topic: str, output: str) -> None:
    evil = "\x1b]0;owned\x07 \x9b2J \u202e \u2066 \u2028 \u200b \x7f \r"
    oncelog(["produce", topic, "-p", "0", "-K", "|"], f"{evil}|{evil}\n")
    shown = oncelog(f"consume {topic} -e --format {output}")
    assert not set(shown) & set("\x1b\x07\x9b\u202e\u2066\u2028\u200b\x7f\r")
    assert "owned" in shown
    if output == "value":
        assert oncelog(f"consume {topic} -e --format value --raw").startswith(evil[:-1])


def test_producing_line_by_line(oncelog: Oncelog, topic: str) -> None:
    """A line is sent when it is there, not when the input ends."""
    words = [sys.executable, "-m", "oncelog", "produce", topic, "-p", "0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=oncelog.environment) as writer:
        assert writer.stdin is not None
        for number in range(2):
            writer.stdin.write(f"line {number}\n".encode())
            writer.stdin.flush()
            assert oncelog(f"consume {topic} -p 0 --from {number} -n 1 --format value") == f"line {number}\n"
        writer.stdin.close()
        assert writer.wait(SECONDS) == 0


def test_files_of_a_broker_are_dumped_without_complaint(oncelog: Oncelog, broker: BrokerProcess, topic: str) -> None:
    transact(oncelog, topic, "kept", commit=True)
    transact(oncelog, topic, "dropped", commit=False)
    assert isinstance(broker, OncelogProcess | KafkaProcess)
    directory = broker.data_directory / f"{topic}-0"
    shown = oncelog(["dump-log", "--print-data-log", *map(str, sorted(directory.glob("0*")))])
    assert [word for word in ("payload: kept", "payload: dropped", "endTxnMarker: ABORT") if word in shown] == [
        "payload: kept",
        "payload: dropped",
        "endTxnMarker: ABORT",
    ]
    logs = [str(path) for path in broker.data_directory.glob("__transaction_state-*/*.log") if path.stat().st_size]
    assert f'"transactionalId":"{topic}-id"' in oncelog(["dump-log", "--transaction-log-decoder", *logs])


def test_state_machine_and_the_version_are_printed(oncelog: Oncelog) -> None:
    assert "PrepareCommit" in oncelog("txn states")
    assert oncelog("version").startswith("oncelog ")


def test_features_are_described_lowered_and_raised(tmp_path: Path) -> None:
    with (KafkaProcess if IS_KAFKA else OncelogProcess)(tmp_path) as process:
        oncelog = Oncelog(process.address)
        name = "transaction.version"

        def described() -> tuple[list[int], int]:
            (row,) = (row for row in oncelog.json("feature describe") if row["feature"] == name)
            return [row["lowest"], row["highest"], row["finalized"]], row["epoch"]

        levels, epoch = described()
        assert levels == [0, 2, 2]
        assert oncelog.json(f"feature downgrade {name} 1 --dry-run") == [{"feature": name, "result": "valid"}]
        assert "INVALID_UPDATE_VERSION" in oncelog.fails(f"feature upgrade {name} 3")
        assert "INVALID_UPDATE_VERSION" in oncelog.fails(f"feature upgrade {name} 1")
        assert "INVALID_UPDATE_VERSION" in oncelog.fails("feature upgrade nonsense.version 1 --dry-run")
        assert described()[0] == [0, 2, 2]
        oncelog(f"feature downgrade {name} 0")
        levels, later = described()
        assert levels == [0, 2, 0]
        assert later > epoch
        assert "oncelog feature describe" in oncelog.fails(f"feature downgrade {name} 2")
        oncelog(f"feature upgrade {name} 2")
        assert described()[0] == [0, 2, 2]

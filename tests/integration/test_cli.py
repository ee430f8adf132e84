"""The command line against a broker process, each verb as a user types it: topics, settings, transactions, errors.

``INTEROP_BROKER=kafka`` runs the same against Apache Kafka.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.command import SECONDS, Oncelog
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess, free_port

IS_KAFKA = os.environ.get("INTEROP_BROKER") == "kafka"


def test_topics_are_created_listed_described_and_deleted(oncelog: Oncelog) -> None:
    oncelog("topic create alpha beta -p 3 -c retention.ms=60000")
    listed = {topic["topic"]: topic for topic in oncelog.json("topic list")}
    assert listed["alpha"]["partitions"] == listed["beta"]["partitions"] == 3
    described = oncelog.json("topic describe alpha --offsets")
    assert described["replication_factor"] == 1
    assert described["problems"] == []
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
    assert "valid" in oncelog(f"topic alter-config {topic} --validate-only --set retention.ms=1")
    assert "INVALID_CONFIG" in oncelog.fails(f"topic alter-config {topic} --validate-only --set retention.ms=soon")
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


def test_minimum_above_the_replication_factor_is_warned_of_by_each_command_that_sets_it(
    oncelog: Oncelog, topic: str
) -> None:
    assert oncelog.run("config alter broker --default --set min.insync.replicas=1").stderr == ""
    for command in (
        f"topic create {topic}-2 --validate-only -c min.insync.replicas=4",
        f"topic create {topic}-2 -c min.insync.replicas=4",
        f"topic create {topic}-3 -r 1 -c min.insync.replicas=4",
        f"topic alter-config {topic} --set min.insync.replicas=4",
        f"config alter topic {topic} --set min.insync.replicas=4",
    ):
        done = oncelog.run(command)
        assert done.returncode == 0
        assert "Warning: min.insync.replicas=4 is above the replication factor of" in done.stderr, command


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
    assert "security.protocol=SASL_SSL" in oncelog.fails("topic list -b SASL_SSL://localhost:9092", exit_code=2)


def test_bootstrap_address_may_name_its_listener(oncelog: Oncelog) -> None:
    oncelog(f"topic list -b PLAINTEXT://{oncelog.environment['ONCELOG_BOOTSTRAP']}")


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


def test_group_that_has_read_everything_has_no_lag(oncelog: Oncelog, topic: str) -> None:
    """Markers at the end are passed, too."""
    oncelog(f"produce {topic} -p 0", "before\n")
    transact(oncelog, topic, "committed", commit=True)
    oncelog(f"consume {topic} --group {topic} --until-end --format value")
    assert oncelog.json(f"group describe {topic}")["lag"] == 0


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
    found = oncelog.json("wait --brokers 1")
    assert (found["brokers"], isinstance(found["controller"], int)) == (1, True)
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

"""``oncelog produce`` and ``oncelog consume`` against a broker process, as a user types them."""

import json
import subprocess
import sys

import pytest

from tests.command import SECONDS, Oncelog


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


def test_produce_to_a_topic_that_did_not_exist_notes_that_it_was_created(oncelog: Oncelog, topic: str) -> None:
    said = oncelog.run(f"produce {topic}-typo", "a\n").stderr
    assert f"Note: topic {topic}-typo did not exist, and was created (auto.create.topics.enable)" in said
    assert f"oncelog topic delete {topic}-typo" in said
    assert oncelog.run(f"produce {topic}-typo", "b\n").stderr == ""
    assert oncelog.run(f"produce {topic}-more --format json", "a\n").stderr == ""


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

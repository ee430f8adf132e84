"""Consumer groups on the command line: their verbs, and members that run until a signal."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from tests.bound_process import start_bound
from tests.command import SECONDS, Oncelog

LOOKS = 300
"""Of a process each, at something that comes to be by itself."""


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

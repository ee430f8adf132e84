"""What ``oncelog health`` makes of a cluster: text, JSON and exit code come from one judgement."""

from dataclasses import replace

import pytest

from oncelog.clients.admin.topic_pages import LogEnd, PagedPartitionDescription, RecoveryDescription
from oncelog.clients.cli.cluster_health import SeenBroker, assess, table_rows
from oncelog.clients.cli.election_settings import ElectionSettings
from oncelog.clients.connection import Address
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def broker(broker_id: int, *, failure: str | None = None, store: bool | None = True) -> SeenBroker:
    address = Address(f"host{broker_id}", 9092)
    return SeenBroker(broker_id=broker_id, address=address, rack=None, failure=failure, reaches_store=store)


def without_space(broker_id: int) -> SeenBroker:
    return replace(broker(broker_id), failed_directories=("/data",))


def loading(broker_id: int) -> SeenBroker:
    return replace(broker(broker_id), unserved_coordinators=("__consumer_offsets-3",))


def without_offsets_topic(broker_id: int) -> SeenBroker:
    return replace(broker(broker_id), uncreatable_topics=("__consumer_offsets cannot be created",))


def metadata(**partitions: tuple[int, list[int], list[int]]) -> MetadataResponse:
    """Each topic has one partition: its leader, replicas and in-sync replicas."""
    return MetadataResponse(
        cluster_id="c",
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=0, leader_id=leader, replica_nodes=all_, isr_nodes=isr)
                ],
            )
            for name, (leader, all_, isr) in partitions.items()
        ],
    )


WHOLE = metadata(a=(1, [1, 2], [1, 2]))


def test_assess_healthy_cluster_returns_no_problems() -> None:
    for store in (True, None):
        health = assess(WHOLE, 1, [broker(1, store=store), broker(2, store=store)])
        assert health.is_healthy
        assert health.summary["healthy"] is True
        assert (health.problems, health.partitions) == ([], [])


@pytest.mark.parametrize(
    ("seen", "controller", "brokers", "sentence"),
    [
        (WHOLE, None, [broker(1), broker(2)], "no controller is known"),
        (WHOLE, 1, [broker(1), broker(2, failure="Connection refused")], "broker 2 is not reached at host2:9092"),
        (WHOLE, 2, [broker(1), broker(2, failure="Connection refused")], "the controller, broker 2, is not reached"),
        (WHOLE, 1, [broker(1), broker(2, store=False)], "broker 2: its metadata store (ZooKeeper) does not respond"),
        (WHOLE, 1, [broker(1), without_space(2)], "broker 2: /data takes no writes (KAFKA_STORAGE_ERROR)"),
        (WHOLE, 1, [without_offsets_topic(1), without_offsets_topic(2)], "__consumer_offsets cannot be created"),
        (WHOLE, 1, [broker(1), loading(2)], "broker 2: 1 partition is not served, so its groups and"),
        (metadata(a=(1, [1, 2], [1])), 1, [broker(1), broker(2)], "1 partition without all replicas in sync"),
        (metadata(a=(-1, [1, 2], [1, 2])), 1, [broker(1), broker(2)], "1 partition without a leader"),
        (metadata(a=(3, [3], [3])), 1, [broker(1), broker(2)], "1 partition without a leader"),
    ],
)
def test_assess_cluster_with_a_problem_returns_unhealthy(
    seen: MetadataResponse, controller: int | None, brokers: list[SeenBroker], sentence: str
) -> None:
    health = assess(seen, controller, brokers)
    assert not health.is_healthy
    assert health.summary["healthy"] is False
    assert [problem for problem in health.problems if problem.startswith(sentence)]


def test_assess_offline_and_under_replicated_partitions_names_them() -> None:
    seen = metadata(z=(-1, [1, 3], [3]), b=(1, [1, 2, 3], [1]), a=(1, [1, 2], [1, 2]))
    health = assess(seen, 1, [broker(1), broker(2)])
    assert health.partitions == [
        {"partition": "z-0", "state": "offline", "leader": None, "in_sync": [3], "not_in_sync": [1]},
        {"partition": "b-0", "state": "under-replicated", "leader": 1, "in_sync": [1], "not_in_sync": [2, 3]},
    ]
    assert (health.summary["offline"], health.summary["under_replicated"]) == (1, 2)


@pytest.mark.parametrize(
    ("seen", "failure", "remedy"),
    [
        (metadata(a=(-1, [1, 2, 3], [])), None, "start brokers 2, 3"),
        (metadata(a=(-1, [1], [])), None, "they follow a leader as soon as there is one"),
        (metadata(a=(4, [1, 4], [4])), None, "check that broker 1 reaches the leaders, then its replicas catch up"),
        (metadata(a=(4, [1, 4], [4])), "refused", "check that broker 1 runs and reaches the leaders, then its "),
    ],
)
def test_assess_replicas_out_of_sync_sends_the_reader_to_brokers_that_can_change_it(
    seen: MetadataResponse, failure: str | None, remedy: str
) -> None:
    health = assess(seen, 4, [broker(1, failure=failure), broker(4)])
    (lacking,) = [each for each in health.problems if "without all replicas in sync: " in each]
    assert lacking.partition(": ")[2].startswith(remedy)
    assert "broker 1" in remedy or "broker 1" not in lacking


def test_assess_cluster_with_a_broker_away_names_it_and_what_it_holds_up() -> None:
    seen = metadata(a=(1, [1, 2], [1]), b=(-1, [2], [2]), c=(1, [1, 3], [1]))
    health = assess(seen, 1, [broker(1), broker(3)])
    assert health.problems[0] == (
        "broker 2 is not in the cluster: if it has ended, start it (of `oncelog cluster`: `oncelog cluster start 2`); "
        "if its process is there, it is paused (`oncelog cluster resume 2`) or cut off from ZooKeeper, as its output "
        "says; 2 partitions lack its replica, 1 of them without a leader"
    )
    (lacking,) = [each for each in health.problems if "without all replicas in sync" in each]
    assert lacking == (
        "2 partitions without all replicas in sync: start broker 2, and check that broker 3 reaches the leaders, "
        "then its replicas catch up"
    )
    assert [(row["broker"], row["in_cluster"], row["reached"]) for row in health.brokers] == [
        (1, True, True),
        (2, False, False),
        (3, True, True),
    ]


def test_assess_broker_with_many_unserved_partitions_names_the_remedy_and_then_the_first() -> None:
    many = replace(broker(2), unserved_coordinators=tuple(f"__consumer_offsets-{index}" for index in range(50)))
    (problem,) = assess(WHOLE, 1, [broker(1), many]).problems
    assert problem.startswith("broker 2: 50 partitions are not served, so their groups and transactional ids wait; ")
    assert problem.endswith("(__consumer_offsets-0, __consumer_offsets-1, __consumer_offsets-2 and 47 more)")


def test_table_of_partitions_has_those_of_users_before_internal_ones() -> None:
    seen = metadata(__consumer_offsets=(1, [1, 2], [1]), orders=(1, [1, 2], [1]), z=(-1, [2], [2]))
    rows = assess(seen, 1, [broker(1)]).partitions
    assert [row["partition"] for row in rows] == ["z-0", "orders-0", "__consumer_offsets-0"]


def test_assess_partition_that_waits_shows_the_in_sync_replicas_that_describe_shows() -> None:
    described = {("a", 0): replace(leaderless((2, 3)), isr=())}
    (row,) = assess(metadata(a=(-1, [1, 2, 3], [2])), 1, [broker(1)], leaderless=described).partitions
    assert (row["in_sync"], row["not_in_sync"]) == ([], [1, 2, 3])


def test_assess_broker_that_is_not_reached_names_its_session_and_what_it_leads() -> None:
    brokers = [broker(1), broker(2, failure="Connection refused")]
    (idle,) = assess(WHOLE, 1, brokers).problems
    assert "start it: brokers count as alive until their ZooKeeper session ends, and this one still does; if it" in idle
    assert idle.endswith("if it runs, `oncelog doctor` says what to set")
    (leading,) = assess(metadata(a=(2, [1, 2], [1, 2])), 1, brokers).problems
    assert "and this one still does, as leader of 1 partition; if it runs" in leading
    (alone,) = assess(metadata(a=(2, [2], [2])), 2, [brokers[1]]).problems
    assert alone.endswith("which it advertises: Connection refused; `oncelog doctor` says what to set")


def test_table_of_partitions_groups_internal_ones_of_the_same_leader_and_isr() -> None:
    def row(name: str, leader: int | None, in_sync: list[int]) -> dict[str, object]:
        return {"partition": name, "state": "offline", "leader": leader, "in_sync": in_sync, "not_in_sync": [3]}

    offsets = [row(f"__consumer_offsets-{index}", None, [1, 2] if index % 2 else [2, 1]) for index in range(50)]
    other, user = row("__consumer_offsets-50", 1, [1, 2]), [row("a-0", None, [1]), row("a-1", None, [1])]
    assert table_rows([*offsets, other, *user]) == [
        row("__consumer_offsets (50 partitions)", None, [1, 2]),
        other,
        *user,
    ]


def leaderless(elr: tuple[int, ...], recovery: RecoveryDescription | None = None) -> PagedPartitionDescription:
    return PagedPartitionDescription(
        partition=0,
        leader=None,
        leader_epoch=4,
        replicas=(1, 2, 3),
        isr=(2,),
        offline=(),
        eligible_leaders=elr,
        last_known_eligible_leaders=(),
        recovery=recovery,
    )


def test_assess_partition_that_compares_logs_says_what_would_be_lost() -> None:
    timed = RecoveryDescription(
        strategy="balanced",
        waits_for=(3,),
        elects=2,
        decides_at_ms=1_700_000_000_000,
        log_ends={2: LogEnd(5, 17), 1: LogEnd(4, 30)},
    )
    (problem,) = about_a(timed)
    assert problem.splitlines() == [
        "1 partition waits for broker 3, which may alone have all acknowledged records (a-0)",
        "  cause:       no replica that is up certainly has every acknowledged record",
        "  until:       2023-11-14T22:13:20Z at the latest: then the longest log that is known leads",
        "  loss:        a-0: if broker 2 leads without waiting, acknowledged records from offset 17 on, and "
        "earlier ones of leader epochs above 5, are lost, if there are any; log end offsets: broker 1: 30 (leader "
        "epoch 4), broker 2: 17 (leader epoch 5)",
        "  to wait:     start broker 3 (of `oncelog cluster`: `oncelog cluster start 3`)",
        "  not to wait: oncelog topic alter-config a --set unclean.recovery.strategy=longest_log",
        "               elects a replica that is up, and acknowledged records that it lacks are lost; afterwards",
        "               oncelog topic alter-config a --delete unclean.recovery.strategy",
    ]


def test_assess_partitions_of_which_one_is_decided_in_time_says_so_of_that_one_only() -> None:
    endless = RecoveryDescription(strategy="balanced", waits_for=(3,), elects=2, decides_at_ms=None, log_ends={})
    timed = replace(endless, strategy="longest_log", decides_at_ms=1_700_000_000_000)
    waiting = {(name, 0): leaderless((3,), each) for name, each in (("a", endless), ("b", timed))}
    health = assess(
        metadata(a=(-1, [1, 2, 3], [2]), b=(-1, [1, 2, 3], [2])), 1, [broker(1), broker(2)], leaderless=waiting
    )
    first, second = (problem for problem in health.problems if "which may alone" in problem)
    assert first.startswith("1 partition waits for broker 3, which may alone have all acknowledged records (a-0)\n")
    assert "  until:       broker 3 is back\n" in first
    assert "  until:       2023-11-14T22:13:20Z at the latest" in second


@pytest.mark.parametrize(
    ("elects", "sentence"),
    [
        (
            2,
            "a-0: if broker 2 leads without waiting, acknowledged records that it lacks are lost; log end offsets: n",
        ),
        (None, "a-0: no replica is up that could lead"),
    ],
)
def test_assess_partition_of_which_no_log_is_known_says_so(elects: int | None, sentence: str) -> None:
    recovery = RecoveryDescription(strategy="balanced", waits_for=(3,), elects=elects, decides_at_ms=None, log_ends={})
    (problem,) = about_a(recovery)
    assert sentence in problem


def about_a(recovery: RecoveryDescription) -> list[str]:
    """Return the problems that say for whom partition a-0, without a leader, waits."""
    described = {("a", 0): leaderless((), recovery)}
    health = assess(metadata(a=(-1, [1, 2, 3], [2])), 1, [broker(1), broker(2)], leaderless=described)
    return [problem for problem in health.problems if "waits for" in problem]


def test_assess_partition_without_leader_names_the_brokers_that_it_waits_for() -> None:
    seen = metadata(a=(-1, [1, 2, 3], [2]), b=(-1, [1, 2, 3], [2]), c=(-1, [1, 2], [1]), d=(1, [1, 2], [1]))
    described = {("a", 0): leaderless((1, 3)), ("b", 0): leaderless((3,))}
    health = assess(seen, 1, [broker(1)], leaderless=described)
    waiting = [problem for problem in health.problems if "wait for" in problem]
    assert len(waiting) == 1
    assert waiting[0].startswith(
        "2 partitions wait for broker 2 or 3, which may alone have all acknowledged records (a-0, b-0)\n"
    )
    assert "  until:       broker 2 or 3 is back\n" in waiting[0]
    assert "`oncelog cluster start 2 3`); one is enough\n" in waiting[0]
    assert "oncelog topic alter-config a b --set" in waiting[0]
    older = [problem for problem in assess(seen, 1, [broker(1)]).problems if "wait for" in problem]
    assert older[0].startswith("2 partitions wait for broker 2, which may alone")
    assert all("--set unclean.leader.election.enable=true" in problem for problem in (*waiting, *older))


def recovery(
    waits_for: tuple[int, ...],
    *,
    elects: int | None = 1,
    strategy: str = "balanced",
    ends: dict[int, LogEnd] | None = None,
) -> RecoveryDescription:
    return RecoveryDescription(
        strategy=strategy, waits_for=waits_for, elects=elects, decides_at_ms=None, log_ends=ends or {}
    )


def about_waiting_a(described: PagedPartitionDescription, *alive: int) -> str:
    health = assess(
        metadata(a=(-1, [1, 2, 3], [2])), 1, [broker(each) for each in alive], leaderless={("a", 0): described}
    )
    (problem,) = [problem for problem in health.problems if "which may alone" in problem]
    return problem


def test_assess_partition_for_which_one_of_two_brokers_is_enough_says_or() -> None:
    waiting = replace(leaderless((2, 3), recovery((2, 3))), isr=())
    text = about_waiting_a(waiting, 1)
    assert text.startswith("1 partition waits for broker 2 or 3, which may alone")
    assert "  until:       broker 2 or 3 is back with an intact log, or brokers 2, 3 are back\n" in text
    assert "`oncelog cluster start 2 3`); one is enough if its log is intact\n" in text
    damaged = about_waiting_a(replace(leaderless((), recovery((2, 3))), isr=()), 1)
    assert damaged.startswith("1 partition waits for brokers 2, 3, which may alone")
    assert "  until:       brokers 2, 3 are back\n" in damaged
    assert "enough" not in damaged


def test_assess_partition_that_waits_for_a_broker_with_a_session_says_that_it_may_have_ended() -> None:
    text = about_waiting_a(replace(leaderless((2, 3), recovery((2, 3))), isr=()), 1, 3)
    assert "to wait:     start broker 2 (of `oncelog cluster`: `oncelog cluster start 2`)\n" in text
    assert "               broker 3 has a ZooKeeper session, and the controller does not know the log end: " in text


def test_assess_partition_under_longest_log_does_not_recommend_that_again() -> None:
    text = about_waiting_a(leaderless((3,), recovery((3,), strategy="longest_log")), 1)
    assert "--set" not in text
    assert text.endswith(
        "oncelog config describe topic a --key unclean.recovery.strategy --key unclean.leader.election.enable"
    )
    unled = about_waiting_a(leaderless((3,), recovery((3,), elects=None)), 1)
    assert "--set" not in unled
    assert unled.endswith("  not to wait: no replica is up that could lead: start its broker first")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ({1: LogEnd(-1, 0)}, "are lost, if there are any: its log is empty; log end offsets: broker 1: 0\n"),
        ({1: LogEnd(-1, 0), 3: LogEnd(-1, 0)}, "a-0: nothing: all logs are empty"),
    ],
)
def test_assess_partition_with_empty_logs_says_that_there_may_be_nothing_to_lose(
    ends: dict[int, LogEnd], said: str
) -> None:
    assert said in about_waiting_a(leaderless((3,), recovery((3,), ends=ends)), 1)


def about_all(recoveries: dict[str, RecoveryDescription]) -> str:
    """Return the problem that says what partition 0 of each of these topics waits for."""
    seen = metadata(**{name: (-1, [1, 2, 3], [2]) for name in recoveries})
    described = {(name, 0): leaderless((3,), each) for name, each in recoveries.items()}
    health = assess(seen, 1, [broker(1)], leaderless=described)
    (problem,) = [problem for problem in health.problems if "which may alone" in problem]
    return problem


def test_assess_partitions_that_wait_names_those_first_that_lose_most() -> None:
    empty = recovery((3,), ends={1: LogEnd(-1, 0), 3: LogEnd(-1, 0)})
    level = recovery((3,), ends={1: LogEnd(4, 9), 2: LogEnd(4, 9)})
    short = recovery((3,), ends={1: LogEnd(4, 9), 2: LogEnd(4, 11)})
    text = about_all({"__consumer_offsets": empty, "a": empty, "b": level, "c": short})
    assert text.startswith(
        "4 partitions wait for broker 3, which may alone have all acknowledged records (c-0, b-0, __"
    )
    first, second, rest = [line.strip().removeprefix("loss:").strip() for line in text.splitlines()[3:6]]
    assert first.startswith("c-0: if broker 1 leads")
    assert second.startswith("b-0: if broker 1 leads")
    assert rest == "nothing of 2 partitions: all their logs are empty"


def test_assess_partitions_that_lose_counts_those_that_are_not_shown() -> None:
    text = about_all({name: recovery((3,), ends={1: LogEnd(4, 9)}) for name in "abcde"})
    shown = text.splitlines()[3:7]
    assert ["if broker 1 leads" in line for line in shown] == [True, True, True, False]
    assert shown[-1].strip() == "and 2 more, which `oncelog topic describe TOPIC --format json` shows"


def test_assess_many_topics_that_wait_names_them_in_a_command_that_can_be_pasted() -> None:
    names = [f"t{index:02}" for index in range(22)]
    text = about_all({name: recovery((3,), ends={1: LogEnd(4, 9)}) for name in names})
    assert f"oncelog topic alter-config {' '.join(names[:20])} --set unclean.recovery" in text
    assert "and again for 2 more topics, which `oncelog health` names then" in text
    assert "…" not in text


def test_assess_partition_with_one_replica_is_not_said_to_elect_another() -> None:
    seen = metadata(a=(-1, [2], [2]))
    (problem,) = [
        each
        for each in assess(seen, 1, [broker(1)], elections=ElectionSettings(compares_logs=True)).problems
        if "which may" in each
    ]
    assert "cause:       its leader is not reached, and there is no replica on another broker" in problem
    assert "elects" not in problem

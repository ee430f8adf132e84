"""Histories that no correct cluster can cause, each with all anomalies that it shows, the one it was made for first."""

from typing import NamedTuple


class BadHistory(NamedTuple):
    """``anomalies``: exactly what the checker finds, allowed ones included."""

    name: str
    anomalies: str
    text: str
    infer_ww: bool = False


BAD_HISTORIES = (
    # inconsistent-offsets
    BadHistory(
        "two consumers read different values at one offset",
        "inconsistent-offsets",
        """
        w send 0-1 ok >a@0=x
        v send 0-1 info >a=y
        c poll 2-3 ok <a@0=x
        d poll 2-3 ok <a@0=y
        """,
    ),
    BadHistory(
        "an acknowledged offset holds another value",
        "inconsistent-offsets",
        """
        w send 0-1 ok >a@0=x
        v send 2-3 ok >a@0=y
        """,
    ),
    BadHistory(
        "a truncated log is written again under the same offset",
        "inconsistent-offsets",
        """
        w txn 0-1 ok >a@4=x
        c poll 2-3 ok <a@4=x
        v txn 4-5 ok >a@4=y
        d poll 6-7 ok <a@4=y
        """,
    ),
    # duplicate
    BadHistory(
        "a retry was appended twice",
        "duplicate",
        """
        w send 0-1 ok >a@0=x
        c poll 2-3 ok <a@0=x <a@1=x
        """,
    ),
    BadHistory(
        "the acknowledged offset is not where the value is",
        "duplicate",
        """
        w txn 0-1 ok >a@0=x
        c poll 2-3 ok <a@7=x
        """,
    ),
    BadHistory(
        "two consumers find one value at two offsets",
        "duplicate",
        """
        w txn 0-1 info >a=x
        c poll 2-3 ok <a@0=x
        d poll 4-5 ok <a@3=x
        """,
    ),
    BadHistory(
        "a consumer processed again although it had committed",
        "duplicate consumed-twice",
        """
        p send 0-1 ok >in@0=1
        w txn 2-3 ok <in@0=1 >out@0=f1 #g/in=1
        v txn 4-5 ok <in@0=1 >out@2=f1 #g/in=1
        """,
    ),
    # unknown-value
    BadHistory("a value comes from nowhere", "unknown-value", "c poll 0-1 ok <a@0=x"),
    BadHistory(
        "a value of another partition is read",
        "unknown-value",
        """
        w send 0-1 ok >a@0=x
        c poll 2-3 ok <a@0=x <b@0=x
        """,
    ),
    # G1a
    BadHistory(
        "a poll reads an aborted transaction",
        "G1a",
        """
        w txn 0-1 fail >a@0=x
        c poll 2-3 ok <a@0=x
        """,
    ),
    BadHistory(
        "a poll reads an aborted transaction before it ends",
        "G1a",
        """
        w txn 0-9 fail >a=x
        c poll 2-3 ok <a@0=x
        """,
    ),
    BadHistory(
        "a transaction reads an aborted one",
        "G1a",
        """
        w txn 0-1 fail >a=x
        v txn 2-3 ok <a@0=x >b@0=y
        """,
    ),
    BadHistory(
        "a transaction that fails later reads an aborted one",
        "G1a",
        """
        w txn 0-1 fail >a=x
        v txn 2-3 fail <a@0=x
        """,
    ),
    BadHistory(
        "a refused record is in the log",
        "G1a",
        """
        w send 0-1 fail >a=x
        f final 5-6 ok [a] <a@0=x
        """,
    ),
    BadHistory(
        "the aborted attempt is visible beside the committed one",
        "G1a duplicate",
        """
        w txn 0-1 fail >a@0=x
        w txn 2-3 ok >a@2=x
        c poll 4-5 ok <a@0=x <a@2=x
        """,
    ),
    # precommitted-read
    BadHistory("a transaction reads its own write", "precommitted-read", "w txn 0-1 ok >a@0=x <a@0=x"),
    BadHistory(
        "a transaction of unknown outcome reads its own write",
        "precommitted-read",
        "w txn 0-1 info >a=x <a@3=x",
    ),
    BadHistory("a transaction that fails reads its own write", "precommitted-read G1a", "w txn 0-1 fail >a=x <a@3=x"),
    # lost-write
    BadHistory(
        "a consumer skips an acknowledged record",
        "lost-write int-poll-skip",
        """
        w send 0-1 ok >a@0=x
        w send 2-3 ok >a@1=y
        w send 4-5 ok >a@2=z
        c poll 6-7 ok <a@0=x <a@2=z
        """,
    ),
    BadHistory(
        "the first record is never read",
        "lost-write",
        """
        w send 0-1 ok >a@0=x
        w send 2-3 ok >a@1=y
        c poll 4-5 ok <a@1=y
        """,
    ),
    BadHistory(
        "one visible write proves that the other was committed",
        "lost-write",
        """
        w txn 0-1 info >a@0=x >b@0=y
        v send 2-3 ok >b@1=z
        c poll 4-5 ok <a@0=x <b@1=z
        """,
    ),
    BadHistory(
        "a transaction of three is read without its middle",
        "lost-write int-poll-skip",
        """
        w txn 0-1 ok >a@0=x >a@1=y >a@2=z
        c poll 2-3 ok <a@0=x <a@2=z
        """,
    ),
    BadHistory(
        "only a transaction that failed read the record",
        "lost-write",
        """
        w send 0-1 ok >a@0=x
        w send 2-3 ok >a@1=y
        v txn 4-5 fail <a@0=x
        c poll 6-7 ok <a@1=y
        """,
    ),
    # unseen
    BadHistory(
        "an acknowledged record is missing in the end",
        "unseen",
        """
        w send 0-1 ok >a@0=x
        w send 2-3 ok >a@1=y
        f final 9-10 ok [a] <a@0=x
        """,
    ),
    BadHistory(
        "everything acknowledged is gone",
        "unseen",
        """
        w txn 0-1 ok >a@0=x >b@0=y
        f final 9-10 ok [a,b]
        """,
    ),
    BadHistory(
        "an acknowledged record without an offset is missing",
        "unseen",
        """
        w send 0-1 ok >a=x
        f final 9-10 ok [a]
        """,
    ),
    # vanished
    BadHistory(
        "a record that was read is missing in the end",
        "vanished",
        """
        w send 0-1 ok >a@0=x
        c poll 2-3 ok <a@0=x
        f final 9-10 ok [a]
        """,
    ),
    BadHistory(
        "a record of unknown outcome was read and is missing in the end",
        "vanished",
        """
        w send 0-1 info >a=x
        c poll 2-3 ok <a@0=x
        f final 9-10 ok [a]
        """,
    ),
    BadHistory(
        "a transaction was visible and half of it is missing",
        "vanished torn-txn",
        """
        w txn 0-1 info >a=x >b=y
        c poll 2-3 ok <a@0=x <b@0=y
        f final 9-10 ok [a,b] <a@0=x
        """,
    ),
    # int-poll-skip
    BadHistory(
        "one poll skips what another consumer reads",
        "int-poll-skip",
        """
        w send 0-1 ok >a=x >a=y >a=z
        c poll 2-3 ok <a@0=x <a@2=z
        d poll 4-5 ok <a@0=x <a@1=y <a@2=z
        """,
    ),
    BadHistory(
        "a poll of two partitions skips in one of them",
        "int-poll-skip",
        """
        w send 0-1 ok >a@0=x >a@3=y >a@7=z >b@0=u
        c poll 2-3 ok <a@0=x <b@0=u <a@7=z
        d poll 4-5 ok <a@3=y
        """,
    ),
    # int-nonmonotonic-poll
    BadHistory(
        "one poll goes back",
        "int-nonmonotonic-poll",
        """
        w send 0-1 ok >a@0=x >a@1=y
        c poll 2-3 ok <a@1=y <a@0=x
        """,
    ),
    BadHistory(
        "one poll returns a record twice",
        "int-nonmonotonic-poll",
        """
        w send 0-1 ok >a@0=x
        c poll 2-3 ok <a@0=x <a@0=x
        """,
    ),
    # poll-skip
    BadHistory(
        "a consumer skips between two polls",
        "poll-skip lost-write",
        """
        w send 0-1 ok >a@0=x >a@1=y >a@2=z
        c poll 2-3 ok <a@0=x
        c poll 4-5 ok <a@2=z
        """,
    ),
    BadHistory(
        "an assigned consumer skips what another one reads",
        "poll-skip",
        """
        w send 0-1 ok >a@0=x >a@1=y >a@2=z
        c assign 1-1 ok [a]
        c poll 2-3 ok <a@0=x
        c assign 3-3 ok [a,b]
        c poll 4-5 ok <a@2=z
        d poll 6-7 ok <a@0=x <a@1=y
        """,
    ),
    BadHistory(
        "a transaction that failed leaves its reads behind",
        "poll-skip",
        """
        w send 0-1 ok >a@0=x >a@1=y >a@2=z
        c txn 2-3 ok <a@0=x >b@0=u
        c txn 4-5 fail <a@1=y >b@2=v
        c txn 6-7 ok <a@2=z >b@4=t
        d poll 8-9 ok <a@1=y
        """,
    ),
    # nonmonotonic-poll
    BadHistory(
        "a consumer goes back between two polls",
        "nonmonotonic-poll",
        """
        w send 0-1 ok >a@0=x >a@1=y
        c poll 2-3 ok <a@0=x <a@1=y
        c poll 4-5 ok <a@0=x
        """,
    ),
    BadHistory(
        "a consumer reads its last record again",
        "nonmonotonic-poll",
        """
        w send 0-1 ok >a@0=x
        c assign 1-1 ok [a]
        c poll 2-3 ok <a@0=x
        c poll 4-5 ok <a@0=x
        """,
    ),
    # int-nonmonotonic-send
    BadHistory(
        "a transaction's records are in reverse order",
        "int-nonmonotonic-send",
        """
        w txn 0-1 ok >a@1=x >a@0=y
        c poll 2-3 ok <a@0=y <a@1=x
        """,
    ),
    BadHistory(
        "records without known offsets are found in reverse order",
        "int-nonmonotonic-send",
        """
        w txn 0-1 info >a=x >b=u >a=y
        c poll 2-3 ok <a@4=y <a@6=x <b@0=u
        """,
    ),
    # int-send-skip is allowed by default
    BadHistory(
        "another transaction's record lies between two",
        "int-send-skip",
        """
        w txn 0-9 ok >a@0=x >a@2=z
        v txn 0-9 ok >a@1=y
        """,
    ),
    BadHistory(
        "a plain record lies inside a transaction",
        "int-send-skip",
        """
        w txn 0-9 ok >a=x >a=z
        v send 3-4 ok >a=y
        c poll 10-11 ok <a@0=x <a@1=y <a@2=z
        """,
    ),
    # nonmonotonic-send
    BadHistory(
        "a later record comes before an earlier one",
        "nonmonotonic-send",
        """
        w send 0-1 ok >a@1=x
        w send 2-3 ok >a@0=y
        """,
    ),
    BadHistory(
        "a transaction of unknown outcome comes behind its successor",
        "nonmonotonic-send",
        """
        w txn 0-1 info >a=x
        w txn 2-3 ok >a@0=y
        c poll 4-5 ok <a@0=y <a@2=x
        """,
    ),
    # G0, allowed by default
    BadHistory(
        "two transactions are before each other in two partitions",
        "G0",
        """
        v txn 0-9 ok >a@0=x >b@1=y
        w txn 1-9 ok >a@1=z >b@0=u
        """,
        infer_ww=True,
    ),
    BadHistory(
        "three transactions are before each other in a ring",
        "G0",
        """
        u txn 0-9 ok >a@0=1 >c@1=1
        v txn 1-9 ok >b@0=2 >a@1=2
        w txn 2-9 ok >c@0=3 >b@1=3
        """,
        infer_ww=True,
    ),
    BadHistory(
        "a process writes before what it wrote before",
        "G0-process nonmonotonic-send",
        """
        w txn 0-1 ok >a@1=x
        w txn 2-3 ok >a@0=y
        """,
        infer_ww=True,
    ),
    BadHistory(
        "a process writes before another that is behind it elsewhere",
        "G0-process",
        """
        w txn 0-1 ok >b@1=x
        w txn 2-9 ok >a@0=y
        v txn 0-9 ok >a@1=z >b@0=u
        """,
        infer_ww=True,
    ),
    BadHistory(
        "a later transaction of another process is before an earlier one",
        "G0-realtime",
        """
        w txn 0-1 ok >a@1=x
        v txn 2-3 ok >a@0=y
        """,
        infer_ww=True,
    ),
    BadHistory(
        "time and writes form a circle of three",
        "G0-realtime",
        """
        w txn 0-1 ok >a@2=x
        v txn 2-9 ok >b@0=y
        u txn 0-9 ok >b@1=z >a@1=u
        """,
        infer_ww=True,
    ),
    # G1c
    BadHistory(
        "two transactions read each other",
        "G1c",
        """
        v txn 0-9 ok >a@0=x <b@0=y
        w txn 1-9 ok >b@0=y <a@0=x
        """,
    ),
    BadHistory(
        "three transactions read each other in a ring",
        "G1c",
        """
        u txn 0-9 ok >a@0=1 <c@0=3
        v txn 1-9 ok >b@0=2 <a@0=1
        w txn 2-9 ok >c@0=3 <b@0=2
        """,
    ),
    BadHistory(
        "transactions of unknown outcome read each other",
        "G1c",
        """
        v txn 0-9 info >a=x <b@0=y
        w txn 1-9 info >b=y <a@0=x
        """,
    ),
    BadHistory(
        "a transaction reads one that is behind it in the log",
        "G1c",
        """
        v txn 0-9 ok >a@0=x <b@0=y
        w txn 1-9 ok >a@1=z >b@0=y
        """,
        infer_ww=True,
    ),
    BadHistory(
        "a process reads what it writes later",
        "G1c-process",
        """
        w txn 0-1 ok <a@0=x
        w txn 2-3 ok >a@0=x
        """,
    ),
    BadHistory(
        "a process reads what follows from its later write",
        "G1c-process",
        """
        w poll 0-1 ok <b@0=y
        w txn 2-9 ok >a@0=x
        v txn 0-9 ok <a@0=x >b@0=y
        """,
    ),
    BadHistory(
        "a record is read before its write begins",
        "G1c-realtime",
        """
        c poll 0-1 ok <a@0=x
        w txn 2-3 ok >a@0=x
        """,
    ),
    BadHistory(
        "a record is read before what it was made from",
        "G1c-realtime",
        """
        c poll 0-1 ok <b@0=y
        w send 2-3 ok >a@0=x
        v txn 0-9 ok <a@0=x >b@0=y
        """,
    ),
    # torn-txn
    BadHistory(
        "of a transaction of unknown outcome one record is there",
        "torn-txn unseen",
        """
        w txn 0-1 info >a=x >b=y
        f final 9-10 ok [a,b] <a@0=x
        """,
    ),
    BadHistory(
        "of a committed transaction one record is missing",
        "torn-txn unseen lost-write",
        """
        w txn 0-1 ok >a@0=x >a@1=y
        f final 9-10 ok [a] <a@1=y
        """,
    ),
    BadHistory(
        "of an aborted transaction one record is there",
        "torn-txn G1a",
        """
        w txn 0-1 fail >a@0=x >b@0=y
        f final 9-10 ok [a,b] <b@0=y
        """,
    ),
    BadHistory(
        "of a dead client's transaction one partition is committed",
        "torn-txn unseen",
        """
        w txn 0-? info >a=x >b=y >c=z
        f final 9-10 ok [a] <a@0=x
        f final 11-12 ok [b,c] <c@0=z
        """,
    ),
    # torn-offsets
    BadHistory(
        "outputs are visible and the position is not there",
        "torn-offsets",
        """
        p send 0-1 ok >in@0=1
        w txn 2-3 ok <in@0=1 >out@0=f1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 <out@0=f1 #g/in=0
        """,
    ),
    BadHistory(
        "a position is committed and the outputs are not",
        "torn-offsets",
        """
        p send 0-1 ok >in@0=1
        w txn 2-3 fail <in@0=1 >out@0=f1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 #g/in=1
        """,
    ),
    BadHistory(
        "the position of a transaction of unknown outcome is committed without its outputs",
        "torn-offsets",
        """
        p send 0-1 ok >in@0=1
        w txn 2-3 info <in@0=1 >out=f1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 #g/in=1
        """,
    ),
    BadHistory(
        "a transaction of unknown outcome is visible without its position",
        "torn-offsets",
        """
        p send 0-1 ok >in@0=1
        w txn 2-3 info <in@0=1 >out=f1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 <out@0=f1 #g/in=0
        """,
    ),
    BadHistory(
        "a group's position is beyond the end of its input",
        "torn-offsets",
        """
        p send 0-1 ok >in@0=1
        w txn 2-3 ok <in@0=1 >out@0=f1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 <out@0=f1 #g/in=100
        """,
    ),
    BadHistory(
        "a group has a position in a partition that it never processed",
        "torn-offsets",
        """
        p send 0-1 ok >in@0=1 >other@0=2
        w txn 2-3 ok <in@0=1 >out@0=f1 #g/in=1
        f final 9-10 ok [in,other,out] <in@0=1 <other@0=2 <out@0=f1 #g/in=1 #g/other=1
        """,
    ),
    # consumed-twice
    BadHistory(
        "two workers commit the same input",
        "consumed-twice",
        """
        p send 0-1 ok >in@0=1
        w txn 2-5 ok <in@0=1 >out@0=w1 #g/in=1
        v txn 3-6 ok <in@0=1 >out@2=v1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 <out@0=w1 <out@2=v1 #g/in=1
        """,
    ),
    BadHistory(
        "a zombie's transaction of unknown outcome is visible beside its successor's",
        "consumed-twice",
        """
        p send 0-1 ok >in@0=1
        w txn 2-3 info <in@0=1 >out=w1 #g/in=1
        v txn 4-5 ok <in@0=1 >out@0=v1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 <out@0=v1 <out@3=w1 #g/in=1
        """,
    ),
    # skipped-input
    BadHistory(
        "a group skips an input",
        "skipped-input",
        """
        p send 0-1 ok >in@0=1 >in@1=2 >in@2=3
        w subscribe 1-1 ok [in]
        w txn 2-3 ok <in@0=1 >out@0=f1 #g/in=1
        w txn 4-5 ok <in@2=3 >out@2=f3 #g/in=3
        f final 9-10 ok [in,out] <in@0=1 <in@1=2 <in@2=3 <out@0=f1 <out@2=f3 #g/in=3
        """,
    ),
    BadHistory(
        "the position is beyond the last input that was processed",
        "skipped-input torn-offsets",
        """
        p send 0-1 ok >in@0=1 >in@1=2
        w txn 2-3 ok <in@0=1 >out@0=f1 #g/in=1
        f final 9-10 ok [in,out] <in@0=1 <in@1=2 <out@0=f1 #g/in=2
        """,
    ),
)

---------------------------- MODULE Transactions ----------------------------
(***************************************************************************)
(* The transaction protocol of Oncelog, in version 1 and in version 2      *)
(* (KIP-890), for one transactional id.                                    *)
(*                                                                         *)
(* Several producer processes use the id, one after the other or at the    *)
(* same time; partitions hold their records; brokers take turns as the     *)
(* transaction coordinator.  The network delivers a request at once, late  *)
(* or never: a client that waits too long abandons its connection and      *)
(* repeats the request over a new one, and the abandoned frame may arrive  *)
(* at any later time.                                                      *)
(*                                                                         *)
(* docs/internals/transaction-model.md explains the model, names the code  *)
(* of each action, and has the table of results.  `make model` checks it.  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Producers,         \* Processes that use the transactional id.
    Partitions,
    OffsetPartitions,  \* Those of __consumer_offsets: written by TxnOffsetCommit, which has no sequence.
    Version,           \* Of the transaction protocol: 1 or 2.
    Without,           \* Names of safeguards that are taken out.
    Pipelines,         \* Whether a client also repeats a request on the connection where it waits for a response.
    FramesApart,       \* Whether pipelined frames arrive so far apart that the first response is flushed between.
    Narrates,          \* Whether a state says which step led to it, for people; a view hides that from TLC.
    MaxTransactions, MaxLateFrames, MaxLateMarkers, MaxFailovers, MaxTimeOuts

Safeguards == {
    "challenge",             \* A version-1 request over another connection than the last acts only when repeated.
    "batch challenge",       \* So does a version-1 batch.
    "flushed response",      \* A repetition counts only when the response that asked for it was flushed.
    "challenge remembered",  \* A client that was challenged gets through by its repetition.
    "owner forgotten",       \* The connection that acted last is forgotten when the coordinator loads.
    "owner forgotten at abort", \* An abort marker makes a partition forget which connection acted last.
    "one challenge",         \* Acting over one connection withdraws the challenges of all others.
    "marker identity",       \* A marker of a transaction that has its marker ends no open transaction.
    "coordinator epoch",     \* A marker of an older coordinator than the last one is refused.
    "marker epoch",          \* Version 2: a marker of the present epoch ends no open transaction (KIP-1228).
    "epoch at end",          \* Version 2: every end of a transaction bumps the epoch.
    "epoch at fence",        \* InitProducerId and time-outs bump the epoch in the record that aborts.
    "verification",          \* The first batch of a transaction is verified at the coordinator.
    "guard",                 \* A marker between verification and append refuses the batch.
    "owner at append",       \* What was verified is appended only if no other connection has acted since.
    "own duplicate",         \* A batch is a duplicate only of one in the transaction that is open.
    "sequence",              \* A batch that was appended before is not appended again.
    "epoch after unknown",   \* A client that abandons a batch gets a new epoch before the next transaction (KIP-360).
    "prepare first"}         \* Markers are sent after Prepare* is durable, not before.

ASSUME Without \subseteq Safeguards
Has(safeguard) == safeguard \notin Without

Brokers == {1, 2}
None == <<>>                       \* No connection.
Transactions == 1..MaxTransactions

VARIABLES
    log,         \* What __transaction_state says of the id, durable: state, epoch, partitions, start.
    coordinator, \* The broker that coordinates and what it has in memory.
    partition,   \* By partition: its records and what its leader knows of the producer.
    producer,    \* By process: its state, and the request that it waits for.
    late,        \* Requests on abandoned connections.
    parked,      \* Late batches that were verified and are not appended yet.
    lateMarkers, \* WriteTxnMarkers on abandoned connections.
    history,     \* By transaction: what its client wrote and was told.
    counts,      \* How much of each bound is used.
    step         \* What happened last, in words.

vars == <<log, coordinator, partition, producer, late, parked, lateMarkers, history, counts>>

-----------------------------------------------------------------------------
(* Values *)

Idle == {"Empty", "CompleteCommit", "CompleteAbort"}
Prepared == {"PrepareCommit", "PrepareAbort"}

NoRequest == [kind |-> "none", p |-> "none", commit |-> FALSE]
InitRequest == [NoRequest EXCEPT !.kind = "InitProducerId"]
Add(p) == [NoRequest EXCEPT !.kind = "AddPartitionsToTxn", !.p = p]
Write(p) == [NoRequest EXCEPT !.kind = "Write", !.p = p]        \* Produce, or TxnOffsetCommit to an offsets partition.
End(commit) == [NoRequest EXCEPT !.kind = "EndTxn", !.commit = commit]

FirstRequest(p) == IF Version = 1 THEN Add(p) ELSE Write(p)

Init ==
    /\ log = [state |-> "Empty", epoch |-> 0, partitions |-> {}, start |-> 0, tx |-> 0]
    /\ coordinator = [broker |-> 1, epoch |-> 1, owner |-> None, challenged |-> {}, flushed |-> TRUE,
                      waiting |-> {}, memory |-> None]
    /\ partition = [p \in Partitions |->
          [epoch |-> -1, sequence |-> -1, open |-> FALSE, decided |-> 0, coordinatorEpoch |-> 0, records |-> <<>>,
           ownerEpoch |-> -1, owner |-> None, challenged |-> {}, flushed |-> TRUE]]
    /\ producer = [i \in Producers |->
          [state |-> "down", epoch |-> -1, connection |-> 0, tx |-> 0, request |-> NoRequest, written |-> {},
           sequence |-> [p \in Partitions |-> 0], bump |-> FALSE]]
    /\ late = {} /\ parked = {} /\ lateMarkers = {}
    /\ history = [t \in Transactions |-> [fate |-> "none", written |-> {}]]
    /\ step = <<"nothing has happened">>
    /\ counts = [transactions |-> 0, late |-> 0, markers |-> 0, failovers |-> 0, timeOuts |-> 0]

(* The request of a producer as a frame on the wire. *)
Frame(i) == [
    request |-> producer[i].request, from |-> <<i, producer[i].connection>>, to |-> coordinator.broker,
    epoch |-> producer[i].epoch, tx |-> producer[i].tx, age |-> IF Pipelines THEN counts.late ELSE 0,
    sequence |-> IF producer[i].request.kind = "Write" THEN producer[i].sequence[producer[i].request.p] ELSE 0]

-----------------------------------------------------------------------------
(* The challenge.  A gate has the connection that acted last, and those that were challenged since. *)

IsChallenged(request) ==
    /\ Version = 1 /\ Has("challenge")
    /\ \/ request.kind \in {"AddPartitionsToTxn", "EndTxn"}
       \/ request.kind = "Write" /\ (request.p \in OffsetPartitions \/ Has("batch challenge"))

(* The first write of an epoch needs no challenge: no transaction of this epoch has ended on the partition. *)
GateOf(f) == IF f.request.kind = "Write"
             THEN LET p == partition[f.request.p]
                  IN IF p.ownerEpoch = f.epoch
                     THEN [owner |-> p.owner, challenged |-> p.challenged, flushed |-> p.flushed]
                     ELSE [owner |-> IF p.epoch < f.epoch THEN f.from ELSE None, challenged |-> {}, flushed |-> TRUE]
             ELSE [owner |-> coordinator.owner, challenged |-> coordinator.challenged,
                   flushed |-> coordinator.flushed]

Passes(f) ==
    \/ ~IsChallenged(f.request)
    \/ GateOf(f).owner = f.from
    \/ f.from \in GateOf(f).challenged /\ (GateOf(f).flushed \/ ~Has("flushed response"))

(* Another frame of the connection has arrived already, so that it cannot be the reaction to a response. *)
IsFollowed(f) == \/ \E g \in late \ {f}: g.from = f.from
                 \/ \E i \in Producers: f # Frame(i) /\ <<i, producer[i].connection>> = f.from
                                        /\ producer[i].request.kind # "none"

AfterChallenge(f) ==
    LET gate == GateOf(f)
    IN [owner |-> gate.owner,
        challenged |-> IF ~Has("challenge remembered") THEN {}
                       ELSE IF Has("one challenge") THEN {f.from} ELSE gate.challenged \cup {f.from},
        flushed |-> FramesApart \/ ~IsFollowed(f)]

AfterAct(f) ==
    LET gate == GateOf(f)
    IN [owner |-> f.from,
        challenged |-> IF Has("one challenge") THEN {} ELSE gate.challenged \ {f.from},
        flushed |-> TRUE]

WithGate(f, gate, c) ==
    IF IsChallenged(f.request) /\ f.request.kind # "Write"
    THEN [c EXCEPT !.owner = gate.owner, !.challenged = gate.challenged, !.flushed = gate.flushed]
    ELSE c

WithGateAt(f, gate, p) ==
    IF IsChallenged(f.request)
    THEN [p EXCEPT !.ownerEpoch = f.epoch, !.owner = gate.owner, !.challenged = gate.challenged,
                   !.flushed = gate.flushed]
    ELSE p

-----------------------------------------------------------------------------
(* Decisions.  Each returns a response; "wait" is CONCURRENT_TRANSACTIONS, on which a client retries. *)

AddResponse(f) ==
    IF f.epoch # log.epoch THEN "fenced"
    ELSE IF log.state \in Prepared THEN "wait"
    ELSE "ok"

Open(p, tx) ==
    IF log.state = "Ongoing"
    THEN [log EXCEPT !.partitions = @ \cup {p}, !.tx = IF tx > @ THEN tx ELSE @]
    ELSE [log EXCEPT !.state = "Ongoing", !.partitions = {p}, !.start = @ + 1, !.tx = tx]

SameEnd(commit) == IF commit THEN {"PrepareCommit", "CompleteCommit"} ELSE {"PrepareAbort", "CompleteAbort"}

EndResponse(f) ==
    LET state == log.state
        bumps == Version = 2 /\ Has("epoch at end")
        isRetry == IF bumps THEN f.epoch = log.epoch - 1 ELSE f.epoch = log.epoch
    IN IF f.epoch = log.epoch /\ state = "Ongoing" THEN "ok"
       ELSE IF bumps /\ f.epoch = log.epoch
            THEN IF state \in Prepared THEN "wait" ELSE IF f.request.commit THEN "invalid" ELSE "ok"
       ELSE IF isRetry /\ state \in Prepared
            THEN IF state \in SameEnd(f.request.commit) THEN "wait" ELSE "invalid"
       ELSE IF isRetry /\ state \in Idle /\ state \in SameEnd(f.request.commit) THEN "again"
       ELSE IF isRetry /\ state # "Ongoing" THEN "invalid"
       ELSE "fenced"

PrepareByClient(f) ==
    [log EXCEPT !.state = IF f.request.commit THEN "PrepareCommit" ELSE "PrepareAbort",
                !.partitions = IF log.state = "Ongoing" THEN @ ELSE {},
                !.epoch = IF Version = 2 /\ Has("epoch at end") THEN @ + 1 ELSE @,
                !.tx = f.tx]

Fence == [log EXCEPT !.state = "PrepareAbort", !.epoch = IF Has("epoch at fence") THEN @ + 1 ELSE @]

IsOpen(p, epoch) == partition[p].open /\ partition[p].epoch = epoch

(* By epoch and sequence alone. *)
Admission(f) ==
    LET p == partition[f.request.p]
    IN IF f.epoch < p.epoch THEN "fenced"
       ELSE IF f.request.p \in OffsetPartitions THEN "ok"
       ELSE IF f.epoch = p.epoch /\ f.sequence <= p.sequence
            THEN IF ~Has("sequence") THEN "ok"
                 ELSE IF Has("own duplicate") /\ ~(p.open /\ f.sequence = p.sequence) THEN "refused"
                 ELSE "duplicate"
       ELSE IF p.epoch = -1 \/ f.sequence = (IF f.epoch = p.epoch THEN p.sequence + 1 ELSE 0) THEN "ok"
       ELSE "refused"

(* At the coordinator, unless the transaction is open on the partition. *)
Verification(f) ==
    IF Version = 1 /\ ~Has("verification") THEN "ok"
    ELSE IF f.epoch # log.epoch THEN "fenced"
    ELSE IF log.state \in Prepared THEN "wait"
    ELSE IF Version = 2 \/ (log.state = "Ongoing" /\ f.request.p \in log.partitions) THEN "ok"
    ELSE "abortable"

WriteResponse(f) ==
    IF Admission(f) # "ok" THEN Admission(f)
    ELSE IF IsOpen(f.request.p, f.epoch) THEN "ok"
    ELSE Verification(f)

LogAfterWrite(f) ==
    IF Version = 2 /\ ~IsOpen(f.request.p, f.epoch) THEN Open(f.request.p, f.tx) ELSE log

Appended(f, p) ==
    [p EXCEPT !.epoch = f.epoch, !.open = TRUE,
              !.sequence = IF f.request.p \in OffsetPartitions THEN @ ELSE f.sequence,
              !.records = Append(@, [tx |-> f.tx, state |-> "open", own |-> TRUE])]

-----------------------------------------------------------------------------
(* Producers.  The state of a producer is the request that it waits for. *)

(* The producer after it began a transaction, or when it has nothing more to do. *)
Begin(i, now) ==
    {[now EXCEPT !.state = "done", !.request = NoRequest]} \cup
    IF counts.transactions = MaxTransactions THEN {}
    ELSE {[now EXCEPT !.state = "open", !.tx = counts.transactions + 1, !.written = {}, !.bump = FALSE,
                      !.request = FirstRequest(p)] : p \in Partitions}

(* After a write: to another partition, or the end. *)
Continue(i, now) ==
    {[now EXCEPT !.request = FirstRequest(p)] : p \in Partitions \ now.written} \cup
    {[now EXCEPT !.request = End(commit)] : commit \in BOOLEAN}

Failed(now) == {[now EXCEPT !.state = "failed", !.request = NoRequest]}

Next1(i, now) ==
    LET begun == now.tx # producer[i].tx
    IN /\ producer' = [producer EXCEPT ![i] = now]
       /\ counts' = IF begun THEN [counts EXCEPT !.transactions = @ + 1] ELSE counts

(* What the client makes of a response: the next states of the producer. *)
Sequel(i, response) ==
    LET now == producer[i]
        request == now.request
        aborting == [now EXCEPT !.request = End(FALSE)]
        fresh == [now EXCEPT !.epoch = IF Version = 2 /\ Has("epoch at end") THEN @ + 1 ELSE @,
                             !.sequence = IF Version = 2 /\ Has("epoch at end")
                                          THEN [p \in Partitions |-> 0] ELSE @]
    IN CASE response \in {"fenced", "invalid", "refused"} -> Failed(now)
         [] response = "abortable" -> {aborting}
         [] request.kind = "AddPartitionsToTxn" -> {[now EXCEPT !.request = Write(request.p)]}
         [] request.kind = "Write" ->
              Continue(i, [now EXCEPT !.written = @ \cup {request.p}, !.sequence[request.p] = @ + 1])
         [] request.kind = "EndTxn" ->
              IF now.bump /\ Version = 1 /\ Has("epoch after unknown")
              THEN {[now EXCEPT !.request = InitRequest]}
              ELSE Begin(i, fresh)

(* What is known of a transaction when its client goes on. *)
Told(i, now, response) ==
    LET before == producer[i]
        t == before.tx
        ended == before.request.kind = "EndTxn" /\ response \in {"ok", "again"}
        first == IF now.tx # t THEN [history EXCEPT ![now.tx].fate = "running"] ELSE history
    IN history' =
         IF ended THEN [first EXCEPT ![t].fate = IF before.request.commit THEN "committed" ELSE "aborted"]
         ELSE IF now.request.kind = "EndTxn"
              THEN [first EXCEPT ![t].fate = IF now.request.commit THEN "committing" ELSE "aborting",
                                 ![t].written = now.written]
         ELSE first

Respond(i, response) ==
    \E now \in Sequel(i, response): Next1(i, now) /\ Told(i, now, response)

StartProducer(i) ==
    /\ producer[i].state = "down"
    /\ producer' = [producer EXCEPT ![i].state = "starting", ![i].request = InitRequest]
    /\ UNCHANGED <<log, coordinator, partition, late, parked, lateMarkers, history, counts>>

-----------------------------------------------------------------------------
(* Requests over a client's own connection. *)

(* On one connection the requests are served in their order. *)
IsFirst(f) == ~\E g \in late: g.from = f.from /\ g.age < f.age

Waits(i, kind) == producer[i].request.kind = kind /\ IsFirst(Frame(i))

InitProducerId(i) ==
    LET expected == producer[i].epoch
        granted == log.epoch + 1
        now == [producer[i] EXCEPT !.epoch = granted, !.sequence = [p \in Partitions |-> 0]]
    IN
    /\ Waits(i, "InitProducerId")
    /\ log.state \notin Prepared
    /\ IF expected # -1 /\ expected # log.epoch
       THEN /\ \E failed \in Failed(producer[i]): Next1(i, failed)
            /\ UNCHANGED <<log, coordinator, history>>
       ELSE IF log.state = "Ongoing"
       THEN /\ log' = Fence
            /\ coordinator' = [coordinator EXCEPT !.waiting = log.partitions]
            /\ UNCHANGED <<producer, counts, history>>
       ELSE /\ log' = [log EXCEPT !.state = "Empty", !.epoch = granted]
            /\ coordinator' = [coordinator EXCEPT !.owner = Frame(i).from, !.challenged = {}, !.flushed = TRUE]
            /\ \E next \in Begin(i, now):
                 /\ Next1(i, next)
                 /\ history' = IF next.tx # now.tx THEN [history EXCEPT ![next.tx].fate = "running"] ELSE history
    /\ UNCHANGED <<partition, late, parked, lateMarkers>>

(* A batch is challenged only if it would be appended. *)
Concerns(f) == f.request.kind = "Write" /\ f.request.p \notin OffsetPartitions => WriteResponse(f) = "ok"

(* An error that the client retries: COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION for offsets of old    *)
(* clients, NOT_ENOUGH_REPLICAS for batches.                                                                       *)
ChallengeClient(i) ==
    LET f == Frame(i) IN
    /\ f.request.kind # "none" /\ IsFirst(f) /\ ~Passes(f) /\ Concerns(f)
    /\ f.epoch = log.epoch
    /\ IF f.request.kind = "Write"
       THEN /\ partition' = [partition EXCEPT ![f.request.p] = WithGateAt(f, AfterChallenge(f), @)]
            /\ UNCHANGED coordinator
       ELSE /\ coordinator' = WithGate(f, AfterChallenge(f), coordinator)
            /\ UNCHANGED partition
    /\ UNCHANGED <<log, producer, late, parked, lateMarkers, history, counts>>

AddPartitions(i) ==
    LET f == Frame(i)
        response == AddResponse(f)
    IN
    /\ Waits(i, "AddPartitionsToTxn")
    /\ response # "wait"
    /\ response = "ok" => Passes(f)
    /\ IF response = "ok"
       THEN log' = Open(f.request.p, f.tx) /\ coordinator' = WithGate(f, AfterAct(f), coordinator)
       ELSE UNCHANGED <<log, coordinator>>
    /\ Respond(i, response)
    /\ UNCHANGED <<partition, late, parked, lateMarkers>>

WriteRecord(i) ==
    LET f == Frame(i)
        response == WriteResponse(f)
    IN
    /\ Waits(i, "Write")
    /\ response # "wait"
    /\ response = "ok" => Passes(f)
    /\ IF response = "ok"
       THEN /\ log' = LogAfterWrite(f)
            /\ partition' = [partition EXCEPT ![f.request.p] =
                               Appended(f, WithGateAt(f, AfterAct(f), @))]
       ELSE UNCHANGED <<log, partition>>
    /\ Respond(i, response)
    /\ UNCHANGED <<coordinator, late, parked, lateMarkers>>

EndTxn(i) ==
    LET f == Frame(i)
        response == EndResponse(f)
    IN
    /\ Waits(i, "EndTxn")
    /\ response # "wait"
    /\ response # "fenced" => Passes(f)
    /\ IF response = "ok"
       THEN /\ log' = PrepareByClient(f)
            /\ coordinator' = [WithGate(f, AfterAct(f), coordinator) EXCEPT !.waiting = log'.partitions]
       ELSE /\ UNCHANGED log
            /\ coordinator' = IF response = "fenced" THEN coordinator ELSE WithGate(f, AfterAct(f), coordinator)
    /\ Respond(i, response)
    /\ UNCHANGED <<partition, late, parked, lateMarkers>>

-----------------------------------------------------------------------------
(* Clients that wait too long. *)

MayBeLate(i) == producer[i].request.kind \in {"AddPartitionsToTxn", "Write", "EndTxn"} /\ counts.late < MaxLateFrames

(* The client closes its connection and repeats the request over a new one.  A response that is lost is the same: *)
(* the frame is served "late", but before the repetition.                                                         *)
Abandon(i) ==
    /\ MayBeLate(i)
    /\ late' = late \cup {Frame(i)}
    /\ producer' = [producer EXCEPT ![i].connection = @ + 1]
    /\ counts' = [counts EXCEPT !.late = @ + 1]
    /\ UNCHANGED <<log, coordinator, partition, parked, lateMarkers, history>>

(* The client repeats the request without closing the connection. *)
Repeat(i) ==
    /\ Pipelines /\ MayBeLate(i)
    /\ late' = late \cup {Frame(i)}
    /\ counts' = [counts EXCEPT !.late = @ + 1]
    /\ UNCHANGED <<log, coordinator, partition, producer, parked, lateMarkers, history>>

(* The application aborts instead.  A client that has added nothing has nothing to abort. *)
GiveUp(i) ==
    LET request == producer[i].request
        isUnknown == request.kind = "Write" /\ request.p \notin OffsetPartitions
        moved == [producer[i] EXCEPT !.connection = @ + 1, !.bump = @ \/ isUnknown]
        isBegun == moved.written # {} \/ request.kind = "Write"
    IN
    /\ MayBeLate(i) /\ request.kind # "EndTxn"
    /\ late' = late \cup {Frame(i)}
    /\ \E next \in IF isBegun THEN {[moved EXCEPT !.request = End(FALSE)]} ELSE Begin(i, moved):
         /\ producer' = [producer EXCEPT ![i] = next]
         /\ counts' = [counts EXCEPT !.late = @ + 1, !.transactions = IF next.tx # moved.tx THEN @ + 1 ELSE @]
         /\ history' = [t \in Transactions |->
                IF t = moved.tx THEN [fate |-> IF isBegun THEN "aborting" ELSE "dropped", written |-> moved.written]
                ELSE IF t = next.tx THEN [fate |-> "running", written |-> {}]
                ELSE history[t]]
    /\ UNCHANGED <<log, coordinator, partition, parked, lateMarkers>>

-----------------------------------------------------------------------------
(* Frames of abandoned connections. *)

Arrives(f, kind) == f \in late /\ f.request.kind = kind /\ IsFirst(f) /\ late' = late \ {f}

LateChallenged(f) ==
    /\ Arrives(f, f.request.kind)
    /\ ~Passes(f) /\ Concerns(f)
    /\ f.epoch = log.epoch
    /\ IF f.request.kind = "Write"
       THEN /\ partition' = [partition EXCEPT ![f.request.p] = WithGateAt(f, AfterChallenge(f), @)]
            /\ UNCHANGED coordinator
       ELSE /\ f.to = coordinator.broker
            /\ coordinator' = WithGate(f, AfterChallenge(f), coordinator)
            /\ UNCHANGED partition
    /\ UNCHANGED <<log, producer, parked, lateMarkers, history, counts>>

LateAddPartitions(f) ==
    /\ Arrives(f, "AddPartitionsToTxn")
    /\ f.to = coordinator.broker
    /\ AddResponse(f) = "ok" /\ Passes(f)
    /\ log' = Open(f.request.p, f.tx)
    /\ coordinator' = WithGate(f, AfterAct(f), coordinator)
    /\ UNCHANGED <<partition, producer, parked, lateMarkers, history, counts>>

LateEndTxn(f) ==
    /\ Arrives(f, "EndTxn")
    /\ f.to = coordinator.broker
    /\ EndResponse(f) = "ok" /\ Passes(f)
    /\ log' = PrepareByClient(f)
    /\ coordinator' = [WithGate(f, AfterAct(f), coordinator) EXCEPT !.waiting = log'.partitions]
    /\ UNCHANGED <<partition, producer, parked, lateMarkers, history, counts>>

(* The first batch of a transaction: the partition's leader has the coordinator's response, and has not appended. *)
LateVerified(f) ==
    /\ Arrives(f, "Write")
    /\ Passes(f)
    /\ WriteResponse(f) = "ok"
    /\ log' = LogAfterWrite(f)
    /\ parked' = parked \cup {[frame |-> f, guard |-> TRUE]}
    /\ partition' = [partition EXCEPT ![f.request.p] = WithGateAt(f, AfterAct(f), @)]
    /\ UNCHANGED <<coordinator, producer, lateMarkers, history, counts>>

IsStillValid(held) ==
    LET p == held.frame.request.p IN
    /\ held.guard \/ ~Has("guard") \/ IsOpen(p, held.frame.epoch)
    /\ IsChallenged(held.frame.request) /\ Has("owner at append")
         => GateOf(held.frame).owner = held.frame.from

LateAppended(held) ==
    LET f == held.frame IN
    /\ held \in parked
    /\ parked' = parked \ {held}
    /\ Admission(f) = "ok" /\ IsStillValid(held)
    /\ partition' = [partition EXCEPT ![f.request.p] = Appended(f, @)]
    /\ UNCHANGED <<log, coordinator, producer, late, lateMarkers, history, counts>>

-----------------------------------------------------------------------------
(* Markers. *)

Marker(p) == [p |-> p, epoch |-> log.epoch, coordinatorEpoch |-> coordinator.epoch, start |-> log.start,
              commit |-> log.state = "PrepareCommit", tx |-> log.tx]

Accepts(m) ==
    LET p == partition[m.p] IN
    /\ m.epoch >= p.epoch
    /\ Has("coordinator epoch") => m.coordinatorEpoch >= p.coordinatorEpoch
    /\ Version = 2 /\ Has("marker epoch") => ~(p.open /\ m.epoch = p.epoch)
    /\ Version = 1 /\ Has("marker identity") => ~(p.open /\ m.start <= p.decided)

Ended(m, records) ==
    [n \in DOMAIN records |->
        IF records[n].state = "open"
        THEN [records[n] EXCEPT !.state = IF m.commit THEN "committed" ELSE "aborted", !.own = (@ /\ m.tx = records[n].tx)]
        ELSE records[n]]

Marked(m, p) ==
    [p EXCEPT !.sequence = IF m.epoch > p.epoch THEN -1 ELSE @,
              !.epoch = m.epoch, !.open = FALSE, !.coordinatorEpoch = m.coordinatorEpoch,
              !.decided = IF m.start > @ THEN m.start ELSE @,
              !.ownerEpoch = IF ~m.commit /\ Has("owner forgotten at abort") THEN -1 ELSE @,
              !.records = Ended(m, @)]

(* A marker takes away the guard of what was verified for its transaction, or an earlier one. *)
WithoutGuards(m) ==
    {IF held.frame.request.p = m.p
        /\ (IF Version = 2 THEN held.frame.epoch < m.epoch ELSE held.frame.epoch <= m.epoch)
     THEN [held EXCEPT !.guard = FALSE] ELSE held : held \in parked}

Apply(m) ==
    IF Accepts(m)
    THEN partition' = [partition EXCEPT ![m.p] = Marked(m, @)] /\ parked' = WithoutGuards(m)
    ELSE UNCHANGED <<partition, parked>>

WriteMarker(p) ==
    /\ log.state \in Prepared /\ p \in coordinator.waiting
    /\ Apply(Marker(p))
    /\ coordinator' = [coordinator EXCEPT !.waiting = @ \ {p}]
    /\ UNCHANGED <<log, producer, late, lateMarkers, history, counts>>

(* The coordinator repeats a marker over a new connection; the first one may still arrive. *)
AbandonMarker(p) ==
    /\ log.state \in Prepared /\ p \in coordinator.waiting
    /\ counts.markers < MaxLateMarkers
    /\ lateMarkers' = lateMarkers \cup {Marker(p)}
    /\ counts' = [counts EXCEPT !.markers = @ + 1]
    /\ UNCHANGED <<log, coordinator, partition, producer, late, parked, history>>

LateMarker(m) ==
    /\ m \in lateMarkers
    /\ lateMarkers' = lateMarkers \ {m}
    /\ Apply(m)
    /\ UNCHANGED <<log, coordinator, producer, late, history, counts>>

Complete ==
    /\ log.state \in Prepared /\ coordinator.waiting = {}
    /\ log' = [log EXCEPT !.state = IF @ = "PrepareCommit" THEN "CompleteCommit" ELSE "CompleteAbort",
                          !.partitions = {}]
    /\ UNCHANGED <<coordinator, partition, producer, late, parked, lateMarkers, history, counts>>

-----------------------------------------------------------------------------
(* The coordinator. *)

TimeOut ==
    /\ log.state = "Ongoing" /\ counts.timeOuts < MaxTimeOuts
    /\ log' = Fence
    /\ coordinator' = [coordinator EXCEPT !.waiting = log.partitions]
    /\ counts' = [counts EXCEPT !.timeOuts = @ + 1]
    /\ UNCHANGED <<partition, producer, late, parked, lateMarkers, history>>

(* The other broker loads the log.  Everybody connects to it; what a broker has in memory begins empty. *)
Failover ==
    LET other == 3 - coordinator.broker IN
    /\ counts.failovers < MaxFailovers
    /\ coordinator' = [coordinator EXCEPT
           !.broker = other, !.epoch = @ + 1, !.challenged = {}, !.flushed = TRUE,
           !.owner = IF Has("owner forgotten") THEN None ELSE coordinator.memory,
           !.memory = IF Has("owner forgotten") THEN None ELSE coordinator.owner,
           !.waiting = IF log.state \in Prepared THEN log.partitions ELSE {}]
    /\ producer' = [i \in Producers |-> IF producer[i].request.kind = "none" THEN producer[i]
                                        ELSE [producer[i] EXCEPT !.connection = @ + 1]]
    /\ counts' = [counts EXCEPT !.failovers = @ + 1]
    /\ UNCHANGED <<log, partition, late, parked, lateMarkers, history>>

(* Taken out "prepare first": markers of a decision that is lost with its coordinator. *)
MarkerBeforePrepare(i, p) ==
    /\ ~Has("prepare first")
    /\ Waits(i, "EndTxn") /\ EndResponse(Frame(i)) = "ok" /\ Passes(Frame(i))
    /\ p \in log.partitions
    /\ Apply([Marker(p) EXCEPT !.commit = producer[i].request.commit, !.epoch = PrepareByClient(Frame(i)).epoch])
    /\ UNCHANGED <<log, coordinator, producer, late, lateMarkers, history, counts>>

-----------------------------------------------------------------------------

ByClient(i) == StartProducer(i) \/ InitProducerId(i) \/ ChallengeClient(i) \/ AddPartitions(i) \/ WriteRecord(i) \/ EndTxn(i)
ByLateFrame(f) == LateChallenged(f) \/ LateAddPartitions(f) \/ LateEndTxn(f) \/ LateVerified(f)

Says(words) == step' = IF Narrates THEN words ELSE step

RequestText(request, tx) ==
    <<IF request.kind = "Write" /\ request.p \in OffsetPartitions THEN "TxnOffsetCommit" ELSE
      IF request.kind = "Write" THEN "Produce" ELSE request.kind>>
    \o (IF request.kind = "EndTxn" THEN <<IF request.commit THEN "commit" ELSE "abort">> ELSE <<request.p>>)
    \o <<"of transaction", tx>>
FrameText(f) == RequestText(f.request, f.tx) \o <<"epoch", f.epoch, "over connection", f.from[1], f.from[2]>>
LogText == <<"-> log:", log'.state, "epoch", log'.epoch, "partitions", log'.partitions>>
MarkerText(m) == <<IF m.commit THEN "commit" ELSE "abort", "marker of transaction", m.tx, "epoch", m.epoch,
                   "coordinator epoch", m.coordinatorEpoch, "for", m.p>>

NextOfClient(i) ==
    \/ StartProducer(i) /\ Says(<<"process", i, "starts and calls InitProducerId">>)
    \/ InitProducerId(i) /\ Says(<<"InitProducerId of process", i, "is served">> \o LogText)
    \/ ChallengeClient(i) /\ Says(<<"challenged, the client will repeat:">> \o FrameText(Frame(i)))
    \/ AddPartitions(i) /\ Says(<<"served:">> \o FrameText(Frame(i)) \o LogText)
    \/ WriteRecord(i) /\ Says(<<"served:">> \o FrameText(Frame(i)) \o <<"is a", WriteResponse(Frame(i))>> \o LogText)
    \/ EndTxn(i) /\ Says(<<"served:">> \o FrameText(Frame(i)) \o <<"is", EndResponse(Frame(i))>> \o LogText)
    \/ Abandon(i) /\ Says(<<"the client waits too long, reconnects, will repeat:">> \o FrameText(Frame(i)))
    \/ Repeat(i) /\ Says(<<"the client sends a second time on the same connection:">> \o FrameText(Frame(i)))
    \/ GiveUp(i) /\ Says(<<"the application aborts instead of waiting for:">> \o FrameText(Frame(i)))
    \/ \E p \in Partitions: MarkerBeforePrepare(i, p) /\ Says(<<"marker before Prepare* for", p>>)

NextOfLateFrame(f) ==
    \/ LateChallenged(f) /\ Says(<<"LATE, challenged, nobody repeats:">> \o FrameText(f))
    \/ LateAddPartitions(f) /\ Says(<<"LATE, acts:">> \o FrameText(f) \o LogText)
    \/ LateEndTxn(f) /\ Says(<<"LATE, acts:">> \o FrameText(f) \o LogText)
    \/ LateVerified(f) /\ Says(<<"LATE, verified:">> \o FrameText(f) \o LogText)

Next ==
    \/ \E i \in Producers: NextOfClient(i)
    \/ \E f \in late: NextOfLateFrame(f)
    \/ \E held \in parked: LateAppended(held) /\ Says(<<"LATE, appended:">> \o FrameText(held.frame))
    \/ \E p \in Partitions: WriteMarker(p) /\ Says(<<"written:">> \o MarkerText(Marker(p)))
    \/ \E p \in Partitions: AbandonMarker(p) /\ Says(<<"the coordinator reconnects, will repeat:">> \o MarkerText(Marker(p)))
    \/ \E m \in lateMarkers: LateMarker(m) /\ Says(<<"LATE,", IF Accepts(m) THEN "written:" ELSE "refused:">> \o MarkerText(m))
    \/ Complete /\ Says(<<"every marker is written">> \o LogText)
    \/ TimeOut /\ Says(<<"the transaction times out">> \o LogText)
    \/ Failover /\ Says(<<"broker", 3 - coordinator.broker, "becomes coordinator, epoch", coordinator.epoch + 1>>)

Spec == Init /\ [][Next]_vars

(* The brokers serve what arrives over live connections, and complete what is prepared. *)
Fairness ==
    /\ \A i \in Producers: WF_vars(ByClient(i))
    /\ \A p \in Partitions: WF_vars(WriteMarker(p))
    /\ WF_vars(Complete)
    /\ WF_vars(\E f \in late: ByLateFrame(f))

FairSpec == Spec /\ Fairness

-----------------------------------------------------------------------------
(* Properties *)

Records(p) == partition[p].records
InState(p, t, state) == \E n \in DOMAIN Records(p): Records(p)[n].tx = t /\ Records(p)[n].state = state
WillEnd(p, t) == log.state = "PrepareCommit" /\ p \in coordinator.waiting /\ InState(p, t, "open")

(* A transaction's records are all visible, or none is. *)
Atomicity ==
    \A t \in Transactions: \A p, q \in Partitions: ~(InState(p, t, "committed") /\ InState(q, t, "aborted"))

(* Every record of a transaction whose commit was acknowledged is visible, or will be. *)
AcknowledgedCommitIsVisible ==
    \A t \in Transactions: history[t].fate = "committed" =>
        \A p \in history[t].written: InState(p, t, "committed") \/ WillEnd(p, t)

(* A record is visible only if its client asked for the commit of its transaction. *)
AbortedIsInvisible ==
    \A t \in Transactions: history[t].fate \notin {"committing", "committed"} =>
        \A p \in Partitions: ~InState(p, t, "committed")

(* No record of a transaction ends with the outcome of another one. *)
OwnOutcome == \A p \in Partitions: \A n \in DOMAIN Records(p): Records(p)[n].own

(* A partition has an open transaction only while the coordinator will end it: no hanging transactions. *)
NoHangingTransaction ==
    \A p \in Partitions: partition[p].open =>
        \/ log.state = "Ongoing" /\ p \in log.partitions
        \/ log.state \in Prepared /\ p \in coordinator.waiting

(* No request opens a transaction again whose end was acknowledged. *)
NoTransactionReopens == log.state = "Ongoing" => history[log.tx].fate \notin {"committed", "aborted"}

(* A record is appended once. *)
NoDuplicate ==
    \A p \in Partitions \ OffsetPartitions: \A n, m \in DOMAIN Records(p):
        Records(p)[n].tx = Records(p)[m].tx => n = m

(* A client that repeats gets through: each ends its transactions, unless another process fences it. *)
EveryClientEnds == <>[](\A i \in Producers: producer[i].state \in {"done", "failed"})
NoClientFails == \A i \in Producers: producer[i].state # "failed"

Symmetry == Permutations(Producers)
=============================================================================

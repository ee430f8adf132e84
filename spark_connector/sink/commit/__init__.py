"""The commit protocol of the exactly-once sink, without Spark and without sockets; ``sink_broker`` is its port.

Every attempt of a task writes in a transaction of its own and leaves it open (``task``). The driver, which has fenced
all older drivers before (``prelude``), checks that all of them are still open, writes *one* record that lists them, in
a transaction of its own, and then commits them (``batch_commit``). That record is the decision: after a crash before it
the batch is aborted; after a crash later the next driver commits the same list. ``abort_batch`` reads it first.

======================================  ==============================================================================
a crash of                              is recovered by
======================================  ==============================================================================
a task, at any time                     the next attempt, in another transaction; the old one is aborted as a stray
the driver, before the decision         the next prelude: it aborts what is open, and Spark runs the batch again
the driver, after the decision          the next prelude: it commits what is listed; the batch's tasks skip
the driver, after all commits           no step is needed; the batch's tasks skip, its commit finds it decided
======================================  ==============================================================================

Four rules are less obvious; the histories in ``tests/unit/spark_connector/sink`` show the errors without them:

* ``abort_batch`` without any message does not know its driver, so it takes over before it aborts anything: with listing
  alone, a late one would abort what a newer driver decides at the same time.
* An id whose InitProducerId had no response is never used: the request may arrive later, and abort what was decided.
* With version 1 of the transaction protocol, stray transactions are fenced by InitProducerId, not ended by EndTxn: a
  task that still runs would go on in a second transaction of the same epoch, which looks complete and lacks rows.
* Ids that were fenced so are not used again (the generation is incremented): that request may arrive late as well.

A driver or task that is late is fenced: an old driver when it writes its decision, an old task because no decision
lists its transaction. Clean-up is limited to transactions of a driver's own generation and older ones, by their ids.
"""

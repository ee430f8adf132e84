"""The exactly-once sink's protocol, without Spark and without sockets; ``sink_broker`` says what it asks of a cluster.

Every attempt of a task writes in a transaction of its own and leaves it open (``task``). The driver, which has fenced
all older drivers before (``prelude``), looks whether all of them are still open, writes *one* record that lists them,
in a transaction of its own, and then commits them (``commit``). That record is the decision: before it a crash means
that the batch never was, and after it that whoever comes next commits the same list. ``abort`` asks for it first.

======================================  ==============================================================================
a crash of                              is mended by
======================================  ==============================================================================
a task, at any time                     the next attempt, in another transaction; the old one is aborted as a stray
the driver, before the decision         the next prelude: it aborts what is open, and Spark runs the batch again
the driver, after the decision          the next prelude: it commits what is listed; the batch's tasks skip
the driver, after all commits           nothing is to be mended; the batch's tasks skip, its commit finds it decided
======================================  ==============================================================================

Four rules are less obvious; the histories in ``tests/unit/spark_connector/sink`` find what happens without them:

* ``abort`` without any message does not know whose driver it was, so it takes over before it aborts anything: listing
  alone, a late one would abort what a newer driver decides in the same moment.
* An id whose InitProducerId was not answered is never used: the request may arrive later, and abort what was decided.
* With version 1 of the transaction protocol, others' transactions are ended by taking their epoch, not by EndTxn: a
  task that is still at work would go on in a second transaction of the same epoch, which looks whole and lacks rows.
* Names that were fenced so are not used again (the generation goes on), for the request may arrive late as well.

Who wakes late finds himself fenced: an old driver when it writes its decision, an old task because nobody lists its
transaction. Tidying up is limited to transactions of a driver's own generation and older ones, which their names tell.
"""

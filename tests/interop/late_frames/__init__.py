"""Does a late frame ever change a transaction that it was not sent for? The experiment behind B01 (KAFKA-17754).

A client runs some hundreds of transactions (``workload``) through ``tests.frame_proxy``, which makes about a thousand
of its Produce, AddPartitionsToTxn and EndTxn requests late, as ``faults`` decides from a seed: held while their
connection breaks, copied, overtaken, some until after the client is gone. Then everything is read, committed and
uncommitted, with the state of each transaction (``observation``), and compared with what the client was told
(``verdict``).

On our broker nothing may be found. With version 1 of the transaction protocol an EndTxn cannot be told from one of the
next transaction, so the same script tears transactions on Apache Kafka, and on our broker if it does not challenge new
connections: that is the reproduction of KAFKA-17754, and it stays. ``python -m tests.interop.late_frames`` prints both
counts for both brokers.
"""

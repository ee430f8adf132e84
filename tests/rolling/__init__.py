"""``make rolling-upgrade BEFORE=COMMIT``: a cluster upgraded from a former commit and back, under transactional load.

A ZooKeeper and three brokers run as processes. Each broker runs the code of a tree, this one or that of the former
commit, and may change it at a restart, on the same data directory. Meanwhile the clients of the fault tests write
transactions of versions 1 and 2, and transform what they read, with the offsets in the transactions.
"""

"""Rolling changes of a cluster under transactional load, and back: of its code, and of its security.

A ZooKeeper and three brokers run as processes, and each broker is restarted in another way, on the same data directory.
Meanwhile the clients of the fault tests write transactions of versions 1 and 2, and transform what they read, with the
offsets in the transactions.

- ``make rolling-upgrade BEFORE=COMMIT``: brokers run the code of this tree, or that of a former commit (``journey``).
- ``make rolling-security``: brokers get TLS, logins and access control lists (``security_journey``).
"""

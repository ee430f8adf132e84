"""``make faults``: faults on real processes under transactional load, checked record by record.

A ZooKeeper and three brokers run as processes (``oncelog cluster``). Clients of three kinds write transactions and
transform what they read, all the time. Then one fault after another *strikes*: something is killed, paused or cut off,
and after a while *healed*. After each, every client has to go on; then the load pauses and everything is checked.

How a fault is declared (``fault.py``): an object with a ``name``, ``hold_seconds`` and two coroutines,

    class KillSomebody:
        name = "kill-somebody"
        hold_seconds = (1.0, 3.0)          # between strike and heal; the seed says how long

        async def strike(self, scene: Scene) -> str:
            victim = scene.rng.choice(scene.cluster.broker_ids)
            await scene.cluster.order("kill", victim)
            return f"kill -9 broker {victim}"   # For the log: what was done, and to whom.

        async def heal(self, scene: Scene) -> None:
            await scene.cluster.start_whatever_is_down()

``strike`` and ``heal`` may not take longer than 60 s each; ``heal`` is called whatever ``strike`` did, also if it
raised, and must leave nothing of the fault. Faults have no state of their own: what they have to remember they keep in
``scene.notes``, which is empty at the start of each run. Nothing in a fault checks anything: the round does.

What a fault gets (``Scene``):

- ``scene.cluster`` (``cluster_under_test.py``): the processes. ``broker_ids``, ``order(verb, *members)`` with the verbs
  of ``oncelog cluster`` (``kill``, ``pause``, ``resume``, ``stop``, ``start``, ``restart``), ``member(name).pid``,
  ``layout`` with the ports, ``zookeeper_address``, ``place(broker_id)`` (a broker's data directory).
- ``scene.roles`` (``roles.py``): who leads a partition, follows in it, coordinates an id or a group, is the controller.
- ``scene.rng``: the only source of chance, seeded. ``scene.clients``: whose load it is; ``names.py`` has the topics,
  transactional ids and groups. ``await scene.restart_client(name)`` kills one and starts its successor.
- ``scene.network``: what lies between the processes (below).

Network faults. A ``Network`` (``network.py``) is made before the cluster, from the ``Layout`` with the ports of all
processes, and says with which further settings the brokers are started, so that their connections to each other and to
ZooKeeper pass through proxies of its own; clients connect directly. ``links.py`` has the one with proxies and the
faults that need it: ``LinkNetwork`` (a ``Network``) and ``LINK_FAULTS: Sequence[Fault]``. Everything here runs in one
event loop, so proxies may live in it.

``python -m tests.faults --help`` says how to run some of them, and how to repeat a run.
"""

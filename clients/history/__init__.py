"""Histories of clients, and the decision whether a cluster kept its promises: files in, anomalies out. Pure.

A history has what the clients saw, of any broker: who wrote which value, who read it at which offset, what was said to
be committed. ``file_format`` reads and writes it, ``recorder`` records it in a program, ``verdict`` judges it. It does
so in passes over the whole history, each of which takes near-linear time:

* ``evidence``: which operation wrote the value that was read; which operations are committed (A);
* ``version_order``: the order of the values of each partition, with its own anomalies (B);
* ``reads``, ``losses``, ``orders``: what one value, or two successive ones, show (C);
* ``cycles``: dependencies that form a circle (D);
* ``atomicity``, ``group_positions``: transactions of which a part is visible, and whether each input was processed
  once (E).

Nothing here knows a broker, a network or a clock.
"""

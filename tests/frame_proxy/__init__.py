"""A proxy between real clients and a real broker that understands frames, and can make any of them late.

It listens on loopback and is the only address that clients see: every response that names a broker is rewritten
(``addresses``). For each request a *script* decides what becomes of it (``script``): it goes on at once, it waits while
others overtake it, or its connection breaks under it while the frame itself is held on the broker's side of the wire,
to arrive later. With each response, before the client has it, the script may let late frames arrive: held ones on the
connection that their client has long given up, each copy on a connection of its own. The broker's answer to a late
frame is awaited before anything goes on, so that an order of events is the script's choice and not the machine's: no
clock is read and nothing sleeps. What went over the wire is counted per connection (``wire_record``).

That is what a network may do to TCP connections: within a connection everything stays in order and nothing is doubled;
between connections anything goes. A copy stands for a frame whose first sending was held and that the client sent
again over a new connection.
"""

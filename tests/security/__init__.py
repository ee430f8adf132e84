"""``make security``: what an attacker tries, cell by cell, against a real broker."""

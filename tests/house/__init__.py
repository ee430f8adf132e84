"""Measures of the house: how its files hang together, how large they are, and in what words they speak.

``make house`` prints the table; ``make house BEFORE=COMMIT`` prints a former commit beside it. Each file here is one
measure and says how it counts. All but ``request_path`` read the sources and run nothing. A module is called by its
place in the repository (``broker.dispatch``), whether it is imported by that name or as ``oncelog.broker.dispatch``, so
that figures of commits before and after a change of names can be compared.
"""

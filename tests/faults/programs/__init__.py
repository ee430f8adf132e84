"""The clients that make the load, each a process: what they are told, and what they say (``speech.py``)."""

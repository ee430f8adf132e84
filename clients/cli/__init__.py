"""The command line: ``oncelog topic list`` and its siblings, each in a module that is imported when it is used."""

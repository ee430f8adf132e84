"""``SettingError``: a setting that cannot work, in the words of the program that names it.

A Python program knows ``ssl_key_password``, a file of properties ``ssl.key.password``, and Spark
``kafka.ssl.key.password``.
"""

import re
from collections.abc import Callable
from typing import Any, Final

_NAME: Final = re.compile(r"(?<![\w/.'])(?:security_protocol|(?:sasl|ssl)_[a-z_]+)(?![\w./])")


class SettingError(ValueError):
    """A setting that cannot work, or would have no effect. Its text begins with the name; it contains no password."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting} {problem}")
        self.setting = setting
        """The name as a keyword argument."""
        self.problem = problem
        """What is wrong, and the remedy: what follows the name in the text."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.setting, self.problem)

    def spelt(self, spell: Callable[[str], str]) -> str:
        """Return the text with each name of a setting in it as ``spell`` returns it."""
        return _NAME.sub(lambda found: spell(found[0]), str(self))

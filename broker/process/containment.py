"""``Containment``: keeps the failure of one item of background work from the others."""

from collections.abc import Callable


class Containment:
    """A ``with`` block whose exception goes to ``report`` instead of the caller, so that work on other items goes on.

    For items of background work, such as logs. Exceptions that are expected there are caught by their own types.
    """

    __slots__ = ("_report",)

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self._report = report

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._report(error)
        return True

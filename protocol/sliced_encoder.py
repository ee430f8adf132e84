"""Encoding of a large message in slices: the function of ``oncelog.protocol.compiler`` as a generator.

It counts every element of an array, and large byte strings by their size, in a budget, and yields when that is used up.
What it returns is the same, byte for byte.
"""

from collections.abc import Generator
from typing import Any, Protocol, TypeVar

from oncelog.protocol.encoder_source import EncoderSource
from oncelog.protocol.schema import Buffer, Message

M = TypeVar("M", bound=Message)
M_contra = TypeVar("M_contra", bound=Message, contravariant=True)


class Budget(Protocol):
    """What may still be done before the next pause, in units of about a microsecond (``WorkBudget``)."""

    left: int


class SlicedEncoder(Protocol[M_contra]):
    """Append a message to ``start`` (or begin anew) and return the buffers; yield whenever the budget is used up.

    The message must not change meanwhile.
    """

    def __call__(
        self, message: M_contra, start: bytearray | None, budget: Budget, /
    ) -> Generator[None, object, list[Buffer]]: ...


def sliced_encoder(cls: type[M], version: int) -> SlicedEncoder[M]:
    """Return the generator function that encodes a message in slices; it raises ``EncodeError``."""
    try:
        return cls._sliced_encoders[version]
    except KeyError:
        return cls._sliced_encoders.setdefault(version, _SlicedEncoderSource(cls, version).compile())


class _SlicedEncoderSource(EncoderSource):
    """The source of a ``SlicedEncoder``."""

    parameters = "message, out, budget, /"

    def compile(self) -> Any:
        self.line("if False: yield")  # A message without arrays never pauses.
        return super().compile()

    def count(self, units: str, *, indent: int = 0) -> None:
        self.line("    " * indent + f"budget.left -= {units}")

    def pause(self) -> None:
        self.line("if budget.left <= 0: yield")

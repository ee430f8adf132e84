"""Decoding of a large message in slices: the function of ``oncelog.protocol.compiler`` as a generator.

It counts every element of an array in a budget, and yields when that is used up. What it returns is the same.
"""

from collections.abc import Generator
from typing import Any, Final, Protocol, TypeVar

from oncelog.protocol.decoder_source import DecoderSource
from oncelog.protocol.encoder_source import NUMBERS_PER_UNIT
from oncelog.protocol.schema import Buffer, Message
from oncelog.protocol.sliced_encoder import Budget

M = TypeVar("M", bound=Message)
M_co = TypeVar("M_co", bound=Message, covariant=True)

_NUMBERS_AT_ONCE: Final = 10_000


class SlicedDecoder(Protocol[M_co]):
    """Read a message at a position and return it with the position after it; yield whenever the budget is used up.

    The buffer must not change meanwhile. ``max_elements`` is that of ``compiler.Decoder``.
    """

    def __call__(
        self, buffer: Buffer, position: int, max_elements: int, budget: Budget, /
    ) -> Generator[None, object, tuple[M_co, int]]: ...


def sliced_decoder(cls: type[M], version: int) -> SlicedDecoder[M]:
    """Return the generator function that decodes a message in slices; it raises ``DecodeError``."""
    try:
        return cls._sliced_decoders[version]
    except KeyError:
        return cls._sliced_decoders.setdefault(version, _SlicedDecoderSource(cls, version).compile())


class _SlicedDecoderSource(DecoderSource):
    """The source of a ``SlicedDecoder``."""

    parameters = "b, p, e, budget, /"

    def compile(self) -> Any:
        self.line("if False: yield")  # A message without arrays never pauses.
        return super().compile()

    def pause(self) -> None:
        self.line("budget.left -= 1")
        self.line("if budget.left <= 0: yield")

    def numbers(self, code: str, target: str, size: int) -> None:
        self.line(f"{target} = values = []")
        with self.block(f"for q in range(n, 0, -{_NUMBERS_AT_ONCE}):"):
            self.line(f"q = min(q, {_NUMBERS_AT_ONCE})")
            self.line(f"values += unpack_from(f'>{{q}}{code}', b, p); p += q * {size}")
            self.line(f"budget.left -= q // {NUMBERS_PER_UNIT}")
            self.line("if budget.left <= 0: yield")

"""The weights that products take, each in the kind that was asked for, given what the file has. Knows no layer.

auto: what the file has in blocks stays in them, other weights stay as they are. int8: all as Q8_0. int4: the file's own
blocks of 4 bits, other weights as Q4_1, and the output projection, which minds most, as Q8_0.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor

from .blocks import BlockKind, Blocks, rounded
from .spec import ModelSpec
from .tensor_shapes import EMBEDDING, OUTPUT

Weight = Tensor | Blocks
FOUR_BITS: tuple[BlockKind, ...] = ("Q4_0", "Q4_1")


def kind_of(asked: str, stored: AbstractSet[BlockKind | None], *, output: bool = False) -> BlockKind | None:
    """What a product's weight becomes; None: it stays floating point.

    asked: none, auto, int8 or int4. stored: what its parts are. output: whether it is the output projection.
    """
    alone = next(iter(stored)) if len(stored) == 1 else None
    if asked == "none" or (asked == "auto" and stored == {None}):
        return None
    if asked == "auto":
        return alone or "Q8_0"
    if asked == "int4" and alone in FOUR_BITS:
        return alone
    return "Q4_1" if asked == "int4" and not output else "Q8_0"


class ProductWeights:
    """Gives each weight once, and lets go of it."""

    def __init__(self, spec: ModelSpec, tensors: dict[str, Tensor], blocks: dict[str, Blocks], quantize: str) -> None:
        self._tied = spec.tied
        self._tensors = tensors
        self._blocks = blocks
        self._asked = quantize
        self._bytes: dict[str, int] = {}  # by kind, without the output projection
        self._output = ""

    def joined(self, names: Sequence[str]) -> Weight:
        """Some weights along their outputs."""
        return self._counted(self._as_asked([self._taken(name) for name in names]))

    def output(self) -> Weight:
        """The output projection's weight; before the embedding is taken, where that is the same."""
        tied = self._tied and OUTPUT not in self._blocks
        weight = self._as_asked([self._tensors[EMBEDDING] if tied else self._taken(OUTPUT)], output=True)
        self._output = _kind_name(weight)
        return weight

    def described(self) -> str:
        """The kinds of all weights given so far, most of them first: Q4_1, output Q8_0."""
        kinds = sorted(self._bytes, key=lambda kind: -self._bytes[kind])
        return ", ".join([*kinds, *([f"output {self._output}"] if [self._output] != kinds else [])])

    def _taken(self, name: str) -> Weight:
        return self._blocks.pop(name) if name in self._blocks else self._tensors.pop(name)

    def _as_asked(self, parts: list[Weight], *, output: bool = False) -> Weight:
        stored = {part.kind if isinstance(part, Blocks) else None for part in parts}
        kind = kind_of(self._asked, stored, output=output)
        if kind is None:
            return torch.cat([_in_bfloat16(part) for part in parts])
        return Blocks(kind, torch.cat([_as_kind(part, kind).rows for part in parts]))

    def _counted(self, weight: Weight) -> Weight:
        size = weight.rows.nbytes if isinstance(weight, Blocks) else weight.nbytes
        self._bytes[_kind_name(weight)] = self._bytes.get(_kind_name(weight), 0) + size
        return weight


def _in_bfloat16(part: Weight) -> Tensor:
    return part.dequantised().to(torch.bfloat16) if isinstance(part, Blocks) else part


def _as_kind(part: Weight, kind: BlockKind) -> Blocks:
    if isinstance(part, Blocks):
        return part if part.kind == kind else rounded(part.dequantised(), kind)
    return rounded(part, kind)


def _kind_name(weight: Weight) -> str:
    return weight.kind if isinstance(weight, Blocks) else str(weight.dtype).removeprefix("torch.")

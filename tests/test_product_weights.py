"""Which weights are computed as integers is fixed by what was asked for and what the file has."""

from dataclasses import replace

import pytest
import torch

from fairstep.model.blocks import BlockKind, Blocks, rounded
from fairstep.model.product_weights import ProductWeights, kind_of
from fairstep.model.spec import ModelSpec
from fairstep.model.tensor_shapes import EMBEDDING, OUTPUT

SPEC = ModelSpec(
    architecture="llama",
    vocab_size=20,
    hidden_size=64,
    intermediate_size=64,
    layers=1,
    heads=2,
    kv_heads=2,
    head_dim=32,
    context=128,
    norm_eps=1e-5,
)
A, B = (torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))


@pytest.mark.parametrize(
    ("stored", "auto", "int8", "int4", "int4_output"),
    [
        ({None}, None, "Q8_0", "Q4_1", "Q8_0"),
        ({"Q8_0"}, "Q8_0", "Q8_0", "Q4_1", "Q8_0"),
        ({"Q4_0"}, "Q4_0", "Q8_0", "Q4_0", "Q4_0"),
        ({"Q4_1"}, "Q4_1", "Q8_0", "Q4_1", "Q4_1"),
        ({"Q4_1", "Q8_0"}, "Q8_0", "Q8_0", "Q4_1", "Q8_0"),
        ({"Q4_0", None}, "Q8_0", "Q8_0", "Q4_1", "Q8_0"),
    ],
)
def test_the_rule(
    stored: set[BlockKind | None],
    auto: BlockKind | None,
    int8: BlockKind,
    int4: BlockKind,
    int4_output: BlockKind,
) -> None:
    assert kind_of("none", stored) is None
    assert kind_of("auto", stored) == kind_of("auto", stored, output=True) == auto
    assert kind_of("int8", stored) == kind_of("int8", stored, output=True) == int8
    assert kind_of("int4", stored) == int4
    assert kind_of("int4", stored, output=True) == int4_output


def weights(quantize: str, tied: bool = False, **blocks: Blocks) -> ProductWeights:
    tensors = {"a": A, "b": B, "c": A.to(torch.bfloat16), EMBEDDING: A, OUTPUT: B}
    if tied:
        del tensors[OUTPUT]
    spec = replace(SPEC, tied=tied)
    return ProductWeights(
        spec, {name: tensor for name, tensor in tensors.items() if name not in blocks}, blocks, quantize
    )


def test_blocks_of_one_kind_are_joined_as_they_are() -> None:
    given = weights("auto", a=rounded(A, "Q4_1"), b=rounded(B, "Q4_1"))
    joined = given.joined(["a", "b"])
    assert isinstance(joined, Blocks) and joined.kind == "Q4_1"
    assert torch.equal(joined.rows, torch.cat((rounded(A, "Q4_1").rows, rounded(B, "Q4_1").rows)))


def test_floats_stay_as_they_are_unless_integers_are_asked_for() -> None:
    joined = weights("auto").joined(["a", "b"])
    assert isinstance(joined, torch.Tensor) and torch.equal(joined, torch.cat((A, B)))
    as_int8 = weights("int8").joined(["a", "b"])
    assert isinstance(as_int8, Blocks)
    assert torch.equal(as_int8.rows, torch.cat((rounded(A, "Q8_0").rows, rounded(B, "Q8_0").rows)))


def test_different_kinds_meet_in_8_bits() -> None:
    four = rounded(A, "Q4_0")
    joined = weights("auto", a=four).joined(["a", "b"])
    assert isinstance(joined, Blocks) and joined.kind == "Q8_0"
    assert torch.equal(joined.dequantised()[:8], rounded(four.dequantised(), "Q8_0").dequantised())


def test_an_embedding_that_is_the_output_too_stays_for_looking_up() -> None:
    given = weights("int8", tied=True)
    output = given.output()
    assert isinstance(output, Blocks) and torch.equal(output.rows, rounded(A, "Q8_0").rows)
    assert given._tensors[EMBEDDING] is A
    own = weights("auto", tied=True, **{OUTPUT: rounded(B, "Q8_0")}).output()
    assert isinstance(own, Blocks) and torch.equal(own.rows, rounded(B, "Q8_0").rows)


def test_what_was_given_is_told_most_of_it_first() -> None:
    given = weights("auto", a=rounded(A, "Q4_1"), **{OUTPUT: rounded(B, "Q8_0")})
    given.output()
    given.joined(["a"])
    assert given.described() == "Q4_1, output Q8_0"
    given.joined(["c"])
    assert given.described() == "bfloat16, Q4_1, output Q8_0"
    given = weights("int8")
    given.output()
    given.joined(["a"])
    assert given.described() == "Q8_0"

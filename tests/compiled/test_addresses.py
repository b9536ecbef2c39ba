"""Pages are found by 64 bits: one may begin past 2**31 elements, and 32 would wrap around without a word."""

import re
from functools import partial

import pytest

from fairstep.kernels.triton.ahead import compiled, launches_of
from fairstep.kernels.triton.cases import all_cases
from fairstep.kernels.triton.chips import CHIPS

STRIDE = r"%(?:key_page|value_page|page_stride)\w*"


@pytest.mark.parametrize("case", ["attention 32/8x128 bf16", "qkv 32/8x128 bf16", "kv write 8x128 bf16"])
def test_a_page_is_multiplied_by_its_stride_in_64_bits(case: str) -> None:
    chip = CHIPS["sm90"]
    found = 0
    for launch in launches_of(partial(all_cases()[case].call, chip)):
        ttir = compiled(launch, chip).asm["ttir"]
        wide = set(
            re.findall(rf"(%\w+) = (?:arith\.extsi|tt\.splat) {STRIDE} : \w+ (?:to|->) (?:tensor<\w*x)?i64", ttir)
        )
        direct = set(re.findall(rf"{STRIDE}(?=: i64)", ttir))
        assert not re.search(rf"arith\.muli .*{STRIDE}.* : (?:tensor<\w*x)?i32", ttir)
        found += len(wide | direct)
    assert found

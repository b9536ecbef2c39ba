"""Which launch of attention is chosen for which heads on which chip."""

import pytest
import torch

from fairstep.kernels.triton.attention import configs_for
from fairstep.kernels.triton.attention_decode import SPLIT
from fairstep.kernels.triton.configs import TABLES, config_for
from fairstep.kernels.triton.device import arch_of

VARIANTS = ("decode", "prefill")
CHIPS = sorted(set(TABLES) - {"interpreted"})


@pytest.mark.parametrize("arch", CHIPS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128, 192, 256])
@pytest.mark.parametrize("group", [1, 3, 16, 17, 71])
def test_every_chip_has_a_launch_for_every_head(arch: str, variant: str, head_dim: int, group: int) -> None:
    config = config_for(arch, head_dim, group, variant)
    assert config.block_m >= group
    assert SPLIT % config.block_n == 0
    assert all(size & (size - 1) == 0 for size in (config.block_m, config.block_n, config.num_warps))


@pytest.mark.parametrize("arch", [arch for arch in CHIPS if arch.startswith("sm")])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_decodes_have_two_tiles_in_flight(arch: str, head_dim: int) -> None:
    assert (config_for(arch, head_dim, 4, "decode").num_stages - 1) // 2 >= 2


def test_heads_take_the_next_width_that_holds_them() -> None:
    assert config_for("sm90", 80, 4, "decode") == config_for("sm90", 128, 4, "decode")
    assert config_for("sm90", 80, 4, "decode") != config_for("sm90", 64, 4, "decode")


def test_what_no_table_knows_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sm70"):
        config_for("sm70", 64, 1, "decode")
    with pytest.raises(ValueError, match="512 dimensions"):
        config_for("sm90", 512, 1, "decode")


def test_the_wider_of_keys_and_values_decides_and_float32_has_smaller_tiles() -> None:
    q, keys, values = torch.zeros(1, 4, 64), torch.zeros(2, 1, 16, 64), torch.zeros(2, 1, 16, 128)
    wide = configs_for(q, keys, values)
    narrow = configs_for(q.half(), keys.half(), values.half())
    assert wide.decode.block_n * 2 == narrow.decode.block_n
    assert narrow.decode == config_for(arch_of(q.device), 128, 4, "decode")

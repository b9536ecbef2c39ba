"""The names and shapes a decoder needs are those of transformers' own model."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fairstep.model.hf_config import read_hf_spec
from fairstep.model.tensor_shapes import tensor_shapes
from tiny_models import tiny_llama


@pytest.mark.parametrize(
    "features", [{}, {"tied": True}, {"attention_bias": True, "mlp_bias": True}, {"head_dim": 32, "kv_heads": 1}]
)
def test_names_and_shapes_are_those_transformers_writes(tmp_path: Path, features: dict[str, Any]) -> None:
    path = tiny_llama(tmp_path, **features)
    written = {name: tuple(tensor.shape) for name, tensor in load_file(path / "model.safetensors").items()}
    assert tensor_shapes(read_hf_spec(path)) == written

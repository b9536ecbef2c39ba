"""Safetensors files, single and sharded: what is checked before a weight is read."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fairstep.errors import ModelError
from fairstep.model.hf_config import read_hf_spec
from fairstep.model.safetensors_files import INDEX_FILE, SINGLE_FILE, SafetensorsFiles
from fairstep.model.tensor_shapes import EMBEDDING, tensor_shapes
from tiny_models import tiny_llama

NORM = "model.norm.weight"


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("single"), layers=1)


def changed(single: Path, path: Path, **tensors: torch.Tensor | None) -> SafetensorsFiles:
    """The model's file with tensors replaced, or left out where None."""
    stored = {**load_file(single / SINGLE_FILE), **{name.replace("__", "."): t for name, t in tensors.items()}}
    save_file({name: tensor for name, tensor in stored.items() if tensor is not None}, path / SINGLE_FILE)
    return SafetensorsFiles(path)


def refused(single: Path, files: SafetensorsFiles, match: str) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        files.check(tensor_shapes(read_hf_spec(single)))
    assert "\n" not in str(caught.value)


def test_a_whole_file_passes(single: Path) -> None:
    SafetensorsFiles(single).check(tensor_shapes(read_hf_spec(single)))


def test_a_missing_tensor_is_named(single: Path, tmp_path: Path) -> None:
    refused(single, changed(single, tmp_path, model__norm__weight=None), f"no tensor {NORM}")


def test_a_wrong_shape_is_named_with_both_shapes(single: Path, tmp_path: Path) -> None:
    files = changed(single, tmp_path, model__norm__weight=torch.zeros(63))
    refused(single, files, rf"model\.safetensors: {NORM} has shape \[63\], the model's config says \[64\]")


def test_a_tensor_of_integers_is_refused(single: Path, tmp_path: Path) -> None:
    files = changed(single, tmp_path, model__norm__weight=torch.zeros(64, dtype=torch.int8))
    refused(single, files, f"{NORM} is I8; known are BF16, F16, F32, F64")


def test_tensors_nobody_needs_are_ignored(single: Path, tmp_path: Path) -> None:
    files = changed(single, tmp_path, model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(8))
    shapes = tensor_shapes(read_hf_spec(single))
    files.check(shapes)
    assert set(files.load(shapes, torch.float32, torch.device("cpu"), lambda done: None)) == set(shapes)


def test_a_bias_that_the_config_knows_nothing_of_is_refused_unless_it_is_zero(single: Path, tmp_path: Path) -> None:
    zero = changed(single, tmp_path, model__layers__0__self_attn__k_proj__bias=torch.zeros(32))
    zero.check(tensor_shapes(read_hf_spec(single)))
    other = changed(single, tmp_path, model__layers__0__self_attn__k_proj__bias=torch.ones(32))
    refused(single, other, f"{SINGLE_FILE} has a model.layers.0.self_attn.k_proj.bias")


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_truncated_file_is_an_error(single: Path, tmp_path: Path, kept: int) -> None:
    (tmp_path / SINGLE_FILE).write_bytes((single / SINGLE_FILE).read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"model\.safetensors is not a whole safetensors file"):
        SafetensorsFiles(tmp_path)


def test_a_directory_without_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has neither model\.safetensors nor model\.safetensors\.index\.json"):
        SafetensorsFiles(tmp_path)


def sharded(path: Path) -> tuple[Path, dict[str, str]]:
    directory = tiny_llama(path, layers=1, shards=3)
    return directory, json.loads((directory / INDEX_FILE).read_text())["weight_map"]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    directory, files = sharded(tmp_path)
    (directory / files[NORM]).unlink()
    with pytest.raises(ModelError, match=rf"{files[NORM]} is missing, though {INDEX_FILE} names it"):
        SafetensorsFiles(directory)


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    directory, files = sharded(tmp_path)
    shard = directory / files[NORM]
    shard.write_bytes(shard.read_bytes()[:-1])
    refused(directory, SafetensorsFiles(directory), rf"{files[NORM]} is not a whole safetensors file")


def test_an_index_that_names_the_wrong_shard_is_an_error(tmp_path: Path) -> None:
    directory, files = sharded(tmp_path)
    files[NORM] = files[EMBEDDING]
    (directory / INDEX_FILE).write_text(json.dumps({"weight_map": files}))
    refused(
        directory, SafetensorsFiles(directory), rf"{files[EMBEDDING]} has no tensor {NORM}, though {INDEX_FILE} says so"
    )


@pytest.mark.parametrize("weight_map", [None, [], {NORM: 3}])
def test_an_index_without_a_map_is_an_error(tmp_path: Path, weight_map: object) -> None:
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ModelError, match="weight_map must map tensor names to file names"):
        SafetensorsFiles(tmp_path)


def test_an_index_cannot_point_outside_its_directory(tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": {NORM: "../model.safetensors"}}))
    with pytest.raises(ModelError, match="must be a file in the same directory"):
        SafetensorsFiles(tmp_path)

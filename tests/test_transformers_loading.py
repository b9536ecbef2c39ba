"""Models loaded by transformers: silently, whole or not at all, and without running what a directory brings."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging

from fairstep.errors import ModelError
from fairstep.model.transformers_attention import NAME
from fairstep.model.transformers_loading import load_pretrained
from tiny_others import tiny_other

CPU = torch.device("cpu")
WEIGHTS = "model.safetensors"
HEAD, NORM = "lm_head.weight", "model.norm.weight"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tiny_other(tmp_path, "qwen3_moe")


def rewrite(path: Path, **changes: torch.Tensor | None) -> None:
    tensors = {**load_file(path / WEIGHTS), **changes}
    save_file(
        {name: tensor for name, tensor in tensors.items() if tensor is not None}, path / WEIGHTS, {"format": "pt"}
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_in_the_dtype_asked_for_and_attention_is_ours(path: Path, dtype: torch.dtype) -> None:
    model = load_pretrained(path, dtype, CPU)
    stored = load_file(path / WEIGHTS)
    assert torch.equal(model.get_parameter(HEAD), stored[HEAD].to(dtype))
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert model.config._attn_implementation == NAME
    assert not model.training and not any(parameter.requires_grad for parameter in model.parameters())


def test_nothing_is_printed_and_the_librarys_logging_is_left_as_it_was(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    rewrite(path, **{"left.over": torch.zeros(2)})
    with pytest.raises(ModelError):
        load_pretrained(path, torch.float32, CPU)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")


def test_a_missing_tensor_is_an_error_not_random_numbers(path: Path) -> None:
    rewrite(path, **{NORM: None})
    with pytest.raises(ModelError, match=r"missing tensors: model\.norm\.weight"):
        load_pretrained(path, torch.float32, CPU)


def test_a_tensor_too_many_is_an_error(path: Path) -> None:
    rewrite(path, **{f"left.over{index}": torch.zeros(2) for index in range(7)})
    with pytest.raises(ModelError, match=r"unexpected tensors: left\.over0, .*left\.over4 and 2 more"):
        load_pretrained(path, torch.float32, CPU)


def test_a_tensor_of_another_shape_is_an_error(path: Path) -> None:
    rewrite(path, **{NORM: torch.zeros(5)})
    with pytest.raises(ModelError, match=r"model\.norm\.weight|mismatch") as caught:
        load_pretrained(path, torch.float32, CPU)
    assert "\n" not in str(caught.value)


def test_a_broken_file_is_an_error_in_one_line(path: Path) -> None:
    (path / WEIGHTS).write_bytes(b"\x00" * 100)
    with pytest.raises(ModelError, match="cannot be loaded by transformers") as caught:
        load_pretrained(path, torch.float32, CPU)
    assert "\n" not in str(caught.value)


def test_no_weights_at_all_is_told(path: Path) -> None:
    (path / WEIGHTS).unlink()
    with pytest.raises(ModelError, match="no weights that can be read"):
        load_pretrained(path, torch.float32, CPU)


def test_weights_in_a_bin_file_are_read(path: Path) -> None:
    tensors = load_file(path / WEIGHTS)
    (path / WEIGHTS).unlink()
    torch.save(tensors, path / "pytorch_model.bin")
    assert torch.equal(load_pretrained(path, torch.float32, CPU).get_parameter(HEAD), tensors[HEAD])


class Payload:
    """What a pickle runs when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return warnings.warn, ("this was run",)


def test_code_in_a_bin_file_is_not_run(path: Path) -> None:
    (path / WEIGHTS).unlink()
    torch.save({HEAD: Payload()}, path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded by transformers"):
        load_pretrained(path, torch.float32, CPU)


def test_code_in_a_directory_is_not_run(path: Path) -> None:
    config = json.loads((path / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}
    (path / "config.json").write_text(json.dumps(config))
    (path / "evil.py").write_text("raise SystemExit('this was run')")
    assert type(load_pretrained(path, torch.float32, CPU)).__name__ == "Qwen3MoeForCausalLM"

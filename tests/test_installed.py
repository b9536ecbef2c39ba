"""What is on the machine, from configs and headers alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from fairstep.model import installed as module
from fairstep.model.installed import Installed, installed
from tiny_gguf import write_gguf
from tiny_models import tiny_llama


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No aliases and no cache, whatever this machine has."""
    monkeypatch.setattr(module, "ALIASES", {})
    monkeypatch.setattr(module, "hub_folders", list)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama as a folder and as GGUF, and a GPT-2, which our decoder does not know."""
    path = tmp_path_factory.mktemp("models")
    tiny_llama(path / "a" / "llama", layers=3)
    write_gguf(path / "a" / "llama.gguf", path / "a" / "llama")
    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=300, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(path / "gpt2")
    return path


def found(*paths: Path) -> list[Installed]:
    return list(installed(paths))


def by_name(*paths: Path) -> dict[str, Installed]:
    return {Path(each.name).name: each for each in found(*paths)}


def test_models_are_found_below_a_folder(folder: Path) -> None:
    assert [each.name for each in found(folder)] == [
        str(folder / "a" / "llama"),
        str(folder / "a" / "llama.gguf"),
        str(folder / "gpt2"),
    ]


def test_ours_are_described(folder: Path) -> None:
    models = by_name(folder)
    for name in ("llama", "llama.gguf"):
        assert models[name].path == "fairstep"
        assert models[name].context == 512
        assert models[name].kv_elements == 3 * 2 * 2 * 16  # layers, keys and values, heads, head_dim
    assert models["llama"].parameters == models["llama.gguf"].parameters
    assert models["llama"].disk == sum(each.stat().st_size for each in (folder / "a" / "llama").iterdir())


def test_what_transformers_would_run_says_so(folder: Path) -> None:
    gpt2 = by_name(folder)["gpt2"]
    assert (gpt2.path, gpt2.architecture, gpt2.context) == ("transformers", "GPT2LMHeadModel", 64)
    assert "GPT2LMHeadModel" in gpt2.why
    assert gpt2.kv_elements == 2 * 2 * 32
    assert gpt2.parameters and gpt2.parameters > 300 * 32


def test_the_decoder_that_is_asked_for_is_the_one(folder: Path) -> None:
    forced = {Path(each.name).name: each for each in installed([folder], "transformers")}
    assert [forced[name].path for name in ("llama", "llama.gguf", "gpt2")] == [
        "transformers",
        "refused",
        "transformers",
    ]
    own = {Path(each.name).name: each for each in installed([folder], "fairstep")}
    assert [own[name].path for name in ("llama", "llama.gguf", "gpt2")] == ["fairstep", "fairstep", "refused"]


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    tiny_llama(tmp_path, shards=2)
    assert found(tmp_path)[0].path == "fairstep"
    next(tmp_path.glob("*00002*.safetensors")).unlink()
    assert "00002" in found(tmp_path)[0].why


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"architectures": ["BertForMaskedLM"]}, "no causal language model"),
        ({"architectures": ["LlamaForCausalLM"], "quantization_config": {"bits": 4}}, "quantised weights"),
        ({"architectures": ["LlamaForCausalLM"]}, "is missing"),
        ({"architectures": "no list"}, "must be a list"),
        ({}, "architectures"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(tmp_path: Path, config: dict[str, Any], why: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    [refused] = found(tmp_path)
    assert refused.path == "refused"
    assert why in refused.why


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 100, (5).to_bytes(8, "little") + b"[1,2]"])
def test_missing_or_broken_weights_are_refused(tmp_path: Path, folder: Path, content: bytes | None) -> None:
    (tmp_path / "config.json").write_bytes((folder / "a" / "llama" / "config.json").read_bytes())
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    [refused] = found(tmp_path)
    assert refused.path == "refused"
    assert "safetensors" in refused.why


def test_a_broken_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    [refused] = found(tmp_path / "x.gguf")
    assert (refused.path, refused.disk) == ("refused", 4)


def test_a_folder_without_models_says_so(tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    [refused] = found(tmp_path)
    assert "no .gguf file" in refused.why


def test_an_alias_that_is_not_installed_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairstep.model import sources

    aliases = {"nobody": sources.Alias("no_such_package", "pip install it")}
    monkeypatch.setattr(sources, "ALIASES", aliases)
    monkeypatch.setattr(module, "ALIASES", aliases)
    [refused] = found()
    assert (refused.name, refused.path) == ("nobody", "refused")
    assert "pip install it" in refused.why


def test_listing_imports_no_torch(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from fairstep.model.installed import installed; "
        f"assert len(list(installed([Path({str(folder)!r})]))) >= 3; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

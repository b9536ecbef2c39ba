"""Write a GGUF model as the directory that transformers and vLLM read: bfloat16 safetensors, config and tokenizer.

The weights are as fairstep reads them, so all engines compute with the same numbers, once rounded to bfloat16.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from fairstep.model.loading import load
from fairstep.model.sources import Source, resolve


def export(source: Source, folder: Path) -> None:
    """source: of a GGUF file. folder: made, if it isn't there."""
    folder.mkdir(parents=True, exist_ok=True)
    where = {"pretrained_model_name_or_path": source.path.parent, "gguf_file": source.path.name}
    config = AutoConfig.from_pretrained(**where, dtype="bfloat16")
    config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    config.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    tensors = load(source, torch.bfloat16, "cpu").tensors
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write it")
    parser.add_argument("--model", default="smollm2", help="an alias or a .gguf file (default: %(default)s)")
    args = parser.parse_args()
    export(resolve(args.model), args.folder)


if __name__ == "__main__":
    run()

"""transformers' own generate over a batch padded on the left: what others compute with, to compare with. Greedy."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

from ..errors import ModelError
from .building import usable_dtype
from .fields import one_line
from .loading import load
from .sources import Source, resolve
from .transformers_silence import silence

PAD = 0  # any id will do: it is masked
MOST_NAMED = 5  # tensors in an error


class Generator:
    """A model as transformers loads and runs it. Raises ModelError where it cannot."""

    def __init__(self, model: str, dtype: str) -> None:
        self._model = _load(resolve(model), usable_dtype(dtype))
        self.vocabulary = int(self._model.config.vocab_size)

    @torch.inference_mode()
    def answer(self, prompts: Sequence[Sequence[int]], outputs: int, on_token: Callable[[], None]) -> list[list[int]]:
        """So many tokens for every prompt; on_token is called when all rows have got one."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[PAD] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with silence():
            rows = self._model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=outputs,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=PAD,
                stopping_criteria=StoppingCriteriaList([_Never(on_token)]),
            )
        answers: list[list[int]] = rows[:, longest:].tolist()
        return answers


class _Never(StoppingCriteria):
    """Stops no row; generate asks it after each token."""

    def __init__(self, on_token: Callable[[], None]) -> None:
        self._on_token = on_token

    def __call__(self, input_ids: Tensor, scores: Any, **more: Any) -> Tensor:
        self._on_token()
        return torch.zeros(len(input_ids), dtype=torch.bool)


def _load(source: Source, dtype: torch.dtype) -> Any:
    try:
        with silence():
            return (_of_gguf if source.kind == "gguf" else _of_directory)(source.path, dtype).eval()
    except Exception as error:  # whatever a model's own code raises
        raise ModelError(f"{source.path} cannot be loaded by transformers: {one_line(str(error))}") from error


def _of_directory(path: Path, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True, trust_remote_code=False)


def _of_gguf(path: Path, dtype: torch.dtype) -> Any:
    """transformers' own class and configuration over the tensors as we read them: theirs takes a package more."""
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    tensors = load(Source("gguf", path, path.name), dtype, "cpu").tensors
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ModelError(f"tensors: {', '.join([*missing, *unexpected][:MOST_NAMED])}")
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)  # its buffers are in no file
    return model

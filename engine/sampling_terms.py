"""What a request's SamplingParams mean for one model: the numbers that cross the door. Pure.

Open fields take the model's defaults, words become ids, and the answer's length is bounded by the context.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from .admission.fit import answer_room, check_param_ids
from .door import Ready, Sampling
from .request import SEED_BITS, Request, SamplingParams


class Vocabulary(Protocol):
    """What is asked of a tokenizer."""

    def special_id(self, text: str) -> int | None: ...

    def bad_word_ids(self, word: str) -> Sequence[tuple[int, ...]]: ...


class SamplingTerms:
    """Turns params into door.Sampling. `draw_seed` gives a seed to a request that names none."""

    def __init__(self, info: Ready, vocabulary: Vocabulary, draw_seed: Callable[[], int]) -> None:
        self._info = info
        self._vocabulary = vocabulary
        self._draw_seed = draw_seed
        self._words: Sequence[str] = ()  # the last ones asked for, often asked again, by siblings above all
        self._word_ids: tuple[tuple[int, ...], ...] = ()

    def special_stops(self, params: SamplingParams) -> dict[int, str]:
        """Stop strings that are special tokens, by id: hidden from the text, so the worker ends on the id."""
        ids = {text: self._vocabulary.special_id(text) for text in params.stop}
        return {token: text for text, token in ids.items() if token is not None}

    def sampling(self, request: Request) -> Sampling:
        """What the worker draws by. Raises InvalidRequest naming the field, or ContextTooLong."""
        check_param_ids(request.params, self._info.vocab_size)
        params = request.params.resolved(self._info.defaults)
        assert params.temperature is not None and params.top_k is not None and params.top_p is not None
        assert params.min_p is not None and params.repetition_penalty is not None
        seed = self._draw_seed() if params.seed is None else params.seed
        return Sampling(
            temperature=float(params.temperature),
            top_k=max(0, int(params.top_k)),
            top_p=float(params.top_p),
            min_p=float(params.min_p),
            seed=seed % 2**SEED_BITS,
            max_tokens=answer_room(len(request.prompt_ids), params.max_tokens, self._info.context),
            min_tokens=params.min_tokens,
            stop_ids=self._stop_ids(params),
            repetition=float(params.repetition_penalty),
            presence=float(params.presence_penalty),
            frequency=float(params.frequency_penalty),
            bias=params.biases,
            allowed=tuple(params.allowed_token_ids or ()),
            bad_words=self._bad_words(params.bad_words),
            logprobs=-1 if params.logprobs is None else params.logprobs,
            prompt_logprobs=-1 if params.prompt_logprobs is None else params.prompt_logprobs,
        )

    def _bad_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        if words != self._words:
            self._word_ids = tuple(ids for word in words for ids in self._vocabulary.bad_word_ids(word))
            self._words = words
        return self._word_ids

    def _stop_ids(self, params: SamplingParams) -> tuple[int, ...]:
        eos = () if params.ignore_eos else self._info.eos_ids
        return tuple(dict.fromkeys((*eos, *params.stop_token_ids, *self.special_stops(params))))

"""Log probabilities as the protocol tells them: of chats, of completions, and vLLM's of prompts.

https://platform.openai.com/docs/api-reference/chat/object and .../completions/object. They are those of the model's own
distribution. Every number is finite: JSON has no infinity.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ..door import TokenLogprobs
from ..request import Completion
from ..text.tokenizer import Tokenizer
from .spans import Span

FLOOR = -9999.0  # OpenAI's for "very unlikely"

Json = dict[str, Any]


class TokenNames:
    """How tokens are called. skip_special: special tokens have no bytes in an answer."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special

    def text_of(self, token: int) -> str:
        """U+FFFD stands for bytes that are no whole character."""
        return self._tokenizer.token_text(token)

    def bytes_of(self, token: int) -> list[int]:
        """What it adds to an answer."""
        hidden = self._skip_special and self._tokenizer.special_id(self.text_of(token)) == token
        return [] if hidden else list(self._tokenizer.token_bytes(token))

    def key_of(self, token: int) -> str:
        """Its text, or its bytes where they are no whole characters (OpenAI's way), or its id if it has none."""
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode() or f"token_id:{token}"
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def chat_entries(names: TokenNames, spans: Sequence[Span], items: Sequence[TokenLogprobs], tops: int) -> list[Json]:
    """An entry for each token, but for those whose text a stop has kept out of the answer."""
    return [_chat_entry(names, item, tops) for span, item in zip(spans, items, strict=True) if not span.cut]


def completion_lists(
    names: TokenNames, spans: Iterable[Span], items: Sequence[TokenLogprobs | None], tops: int
) -> Json:
    """Four lists with an entry for each token. None: the first token of a prompt, which nothing predicts."""
    spans = list(spans)
    return {
        "text_offset": [span.offset for span in spans],
        "token_logprobs": [None if item is None else _finite(item.values[0]) for item in items],
        "tokens": [span.text for span in spans],
        "top_logprobs": [None if item is None else _by_key(names, item, tops) for item in items],
    }


def prompt_entries(names: TokenNames, items: Sequence[TokenLogprobs | None], tops: int) -> list[Json | None]:
    """For each token of a prompt the likeliest ones and itself, by id."""
    return [None if item is None else _by_id(names, item, tops) for item in items]


def mean_logprob(answer: Completion) -> float:
    """Log probability a token; 0 for an answer without tokens."""
    values = [_finite(item.values[0]) for item in answer.logprobs]
    return sum(values) / len(values) if values else 0.0


def _chat_entry(names: TokenNames, item: TokenLogprobs, tops: int) -> Json:
    own, *likeliest = (
        {"token": names.text_of(token), "logprob": _finite(value), "bytes": names.bytes_of(token)}
        for token, value in zip(item.ids[: tops + 1], item.values, strict=False)
    )
    return {**own, "top_logprobs": likeliest}


def _by_key(names: TokenNames, item: TokenLogprobs, tops: int) -> dict[str, float]:
    """Of tokens with one and the same name the likeliest counts."""
    values: dict[str, float] = {}
    for place in [*range(1, min(tops + 1, len(item.ids))), 0]:
        values.setdefault(names.key_of(item.ids[place]), _finite(item.values[place]))
    return values


def _by_id(names: TokenNames, item: TokenLogprobs, tops: int) -> Json:
    ranks = [item.rank, *range(1, len(item.ids))]
    return {
        str(token): {"logprob": _finite(value), "rank": rank, "decoded_token": names.text_of(token)}
        for token, value, rank in zip(item.ids[: tops + 1], item.values, ranks, strict=False)
    }


def _finite(value: float) -> float:
    return min(value, 0.0) if value > FLOOR else FLOOR  # NaN too is not above it

"""What can never fit is refused at the door, in words. Pure: lengths in, a bound on the answer out."""

from collections.abc import Sequence

from ..errors import ContextTooLong, InvalidRequest
from ..request import SamplingParams


def check_ids(ids: Sequence[int], vocab_size: int, *, param: str = "prompt") -> None:
    """Refuse an empty prompt and what is no plain id of the vocabulary. Raises InvalidRequest naming `param`."""
    if not ids:
        raise InvalidRequest(f"{param} is empty: at least one token is needed", param)
    for token in ids:
        if type(token) is not int:  # the door carries plain integers only
            raise InvalidRequest(f"{param} must be token ids as plain integers, not {token!r}", param)
    low, high = min(ids), max(ids)
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise InvalidRequest(f"{param} holds token id {wrong}; ids go from 0 to {vocab_size - 1}", param)


def check_param_ids(params: SamplingParams, vocab_size: int) -> None:
    """Refuse ids outside the vocabulary, wherever params hold some. Raises InvalidRequest naming the field."""
    for name, ids in (
        ("stop_token_ids", params.stop_token_ids),
        ("allowed_token_ids", params.allowed_token_ids or ()),
        ("logit_bias", [token for token, _ in params.biases]),
    ):
        if ids and max(ids) >= vocab_size:
            raise InvalidRequest(f"{name} holds token id {max(ids)}; ids go from 0 to {vocab_size - 1}", name)


def answer_room(prompt_tokens: int, max_tokens: int | None, context: int) -> int:
    """The most output tokens this request may draw. `context` is the longest sequence that model and pool can hold.

    None means up to the end of the context. Raises ContextTooLong with both numbers.
    """
    if prompt_tokens >= context:
        raise ContextTooLong(
            f"the prompt has {prompt_tokens} tokens; with the context of {context} it may have at most {context - 1}",
            "prompt",
        )
    room = context - prompt_tokens
    if max_tokens is None:
        return room
    if max_tokens > room:
        raise ContextTooLong(
            f"the prompt's {prompt_tokens} tokens and max_tokens {max_tokens} exceed the context of {context}: "
            f"max_tokens may be at most {room} here",
            "max_tokens",
        )
    return max_tokens

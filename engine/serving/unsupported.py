"""Fields of the protocol that are known and not supported yet: their neutral values pass, any other is refused.

Nothing that would change an answer is ignored in silence; what could not change it is not listed here.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidRequest

OFF = (None, False)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "logprobs": OFF,
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "echo": OFF,
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "length_penalty": (None, 1),
    "use_beam_search": OFF,
    "allowed_token_ids": (None,),
    "bad_words": (None, []),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "skip_special_tokens": (None, True),
    "include_stop_str_in_output": OFF,
    "add_generation_prompt": (None, True),
    "continue_final_message": OFF,
    "chat_template": (None,),
    "chat_template_kwargs": (None, {}),
    "truncate_prompt_tokens": (None,),
    "cache_salt": (None,),
}
TOOL_CHOICES = (None, "none", "auto")
AT_LEAST_ONE = ("n", "best_of")


def refuse_unsupported(body: Mapping[str, Any], *, adds_special_tokens: bool) -> None:
    """Raises InvalidRequest naming the first field that asks for something not supported yet.

    adds_special_tokens: what happens, and so the one value of add_special_tokens that passes.
    """
    if body.get("add_special_tokens") not in (None, adds_special_tokens):
        raise InvalidRequest("add_special_tokens is not supported yet; leave it out", "add_special_tokens")
    for name in AT_LEAST_ONE:
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise InvalidRequest(f"{name} must be at least 1", name)
    for name, neutral in NEUTRAL.items():
        if name in body and not _among(body[name], neutral):
            raise InvalidRequest(f"{name} is not supported yet; leave it out", name)
    _refuse_tools(body)


def _refuse_tools(body: Mapping[str, Any]) -> None:
    choice = body.get("tool_choice")
    if not _among(choice, TOOL_CHOICES):
        raise InvalidRequest("tool_choice is not supported yet, other than none", "tool_choice")
    if choice != "none" and not _among(body.get("tools"), (None, [])):
        raise InvalidRequest("tools are not supported yet, other than with tool_choice none", "tools")


def _among(value: object, neutral: tuple[Any, ...]) -> bool:
    # True == 1 in Python, not in JSON
    return any(value == allowed and isinstance(value, bool) == isinstance(allowed, bool) for allowed in neutral)

"""Fields of the protocol that are known and not supported: their neutral values pass, any other is refused.

Nothing that would change an answer is ignored in silence; what could not change it is not listed here.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidRequest

Neutral = Mapping[str, tuple[Any, ...]]

OFF = (None, False)
EVERYWHERE: Neutral = {
    "suffix": (None, ""),
    "length_penalty": (None, 1),
    "use_beam_search": OFF,
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
    "chat_template": (None,),  # a template is code: only the model's own is run
    "cache_salt": (None,),
}
IN_CHATS: Neutral = {
    **EVERYWHERE,
    "best_of": (None, 1),
    "echo": OFF,
    "add_special_tokens": OFF,  # a chat begins with one BOS, whoever writes it
}
IN_COMPLETIONS: Neutral = {
    **EVERYWHERE,
    "max_completion_tokens": (None,),  # a chat's word for max_tokens
    "top_logprobs": (None, 0),
    "add_generation_prompt": (None, True),
    "continue_final_message": OFF,
    "chat_template_kwargs": (None, {}),
}
TOOL_CHOICES = (None, "none", "auto")


def refuse_unsupported(body: Mapping[str, Any], fields: Neutral) -> None:
    """Raises InvalidRequest naming the first of `fields` that asks for something not supported here."""
    for name, neutral in fields.items():
        if name in body and not _among(body[name], neutral):
            raise InvalidRequest(f"{name} is not supported here; leave it out", name)
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

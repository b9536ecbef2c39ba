"""A model's chat template: messages to one prompt text, by transformers' sandboxed jinja. Knows no token ids.

transformers takes most of a second to import, so that happens with the first use; `prepare` does it beforehand.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest, TemplateError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TRY_OUT = ({"role": "user", "content": "hello"},)
# what a template or its renderer is given by us, or would take for an order of its own
OURS = frozenset(
    (
        *("messages", "conversation", "tools", "add_generation_prompt", "continue_final_message"),
        *("chat_template", "tokenize", "sanitize_control_tokens", "padding", "truncation", "max_length"),
        *("return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    )
)


class ChatTemplate:
    """Renders messages. `source` is the jinja text or None; `tokens` are the texts it may name, as bos_token."""

    def __init__(self, source: str | None, tokens: Mapping[str, str]) -> None:
        self._source = source
        self._tokens = dict(tokens)

    def prepare(self) -> None:
        """Import and compile now, so that the first chat doesn't wait; a template that fails here fails later too."""
        if self._source is not None:
            try:
                self.render(TRY_OUT)
            except TemplateError:
                return

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text. A message has a role and a content: a string, or parts of type "text", which are joined.

        continue_final_message leaves the last message open: the text ends with its content. template_kwargs are
        further names the template may read. Raises TemplateError with the template's own words, InvalidRequest for
        messages of another shape, for both flags at once and for a name that is not the caller's to set.
        """
        if self._source is None:
            raise TemplateError(
                "this model has no chat template: send the text to completions, or put a chat_template.jinja beside it",
                "messages",
            )
        plain = _plain(messages)
        more = self._callers_names(template_kwargs or {})
        if continue_final_message:
            _check_open_end(plain, add_generation_prompt)
        try:
            text = self._renderer.apply_chat_template(
                plain,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **more,
            )
        except Exception as error:  # a template is code from outside: whatever it raises is its refusal
            reason = str(error) or type(error).__name__
            raise TemplateError(f"the model's chat template refused the messages: {reason}", "messages") from error
        return str(text)

    def _callers_names(self, template_kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The names, if none of them is one that we or the model give the template."""
        for name in template_kwargs:
            if name in OURS or name in self._tokens:
                raise InvalidRequest(
                    f"chat_template_kwargs must not set {name!r}: it has a field of its own or is the model's",
                    "chat_template_kwargs",
                )
        return template_kwargs

    @cached_property
    def _renderer(self) -> "PreTrainedTokenizerFast":
        """A tokenizer of no words that carries the template: rendering needs no vocabulary."""
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        empty = Tokenizer(models.WordLevel({}, unk_token=""))
        return PreTrainedTokenizerFast(tokenizer_object=empty, chat_template=self._source, **self._tokens)


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as plain dicts with string contents."""
    if not messages:
        raise InvalidRequest("messages must hold at least one message", "messages")
    plain = []
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidRequest(f"messages[{place}] must be an object with a role, a string", "messages")
        plain.append({**message, "content": _text(message.get("content"), place)})
    return plain


def _check_open_end(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> None:
    if add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other: the answer either goes on with the "
            "last message or begins a new one; set one of them to false",
            "continue_final_message",
        )
    if not isinstance(messages[-1]["content"], str):
        raise InvalidRequest("continue_final_message is set, but the last message has no content", "messages")


def _text(content: object, place: int) -> str | None:
    """A message's content as one string; None stays (an assistant message that only calls tools)."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidRequest(f"messages[{place}].content must be a string or a list of text parts", "messages")
    return "".join(_part(part, place) for part in content)


def _part(part: object, place: int) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise InvalidRequest(
        f"messages[{place}].content holds a part that is no text ({kind!r}): this model reads only parts like "
        '{"type": "text", "text": "..."}',
        "messages",
    )

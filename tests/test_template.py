"""Chat templates: rendered as the model says, refused in its words."""

import pytest

from fairstep.errors import InvalidRequest, TemplateError
from fairstep.text.template import ChatTemplate

CHAT = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
HELLO = [{"role": "user", "content": "hi"}]


def test_messages_become_text_with_the_models_own_marks() -> None:
    template = ChatTemplate(CHAT, {"bos_token": "<s>", "eos_token": "</s>"})
    assert template.render(HELLO) == "<s>[user] hi\n[assistant]"
    assert template.render(HELLO, add_generation_prompt=False) == "<s>[user] hi\n"


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ChatTemplate(CHAT, {}).render([{"role": "user", "content": parts}]) == "[user] ab\n[assistant]"


def test_the_callers_messages_stay_as_they_are() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    ChatTemplate(CHAT, {}).render(messages)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


def test_the_templates_own_refusal_is_passed_on() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(TemplateError, match="roles must alternate") as caught:
        template.render(HELLO)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}",  # no end
        "{{ messages[0].content + 1 }}",
        "{{ messages[7]['content'] }}",
        "{{ ''.__class__.__mro__ }}",  # out of the sandbox
        "{{ 1 / 0 }}",
    ],
)
def test_whatever_a_template_does_wrong_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError, match=r"refused the messages: ."):
        ChatTemplate(source, {}).render(HELLO)


def test_a_model_without_template_says_what_to_do() -> None:
    with pytest.raises(TemplateError, match=r"no chat template.*chat_template\.jinja"):
        ChatTemplate(None, {}).render(HELLO)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one message"),
        ([{"content": "hi"}], r"messages\[0\] must be an object with a role"),
        ([*HELLO, "hi"], r"messages\[1\] must be an object"),
        ([{"role": "user", "content": 5}], r"messages\[0\]\.content must be a string"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "a part that is no text.*image_url"),
        ([{"role": "user", "content": [{"type": "text"}]}], "a part that is no text"),
    ],
)
def test_messages_of_another_shape_are_refused_by_name(messages: list[object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        ChatTemplate(CHAT, {}).render(messages)  # type: ignore[arg-type]
    assert caught.value.param == "messages"


def test_prepare_leaves_a_bad_template_to_the_first_chat() -> None:
    for source in (None, CHAT, "{{ raise_exception('no') }}"):
        ChatTemplate(source, {}).prepare()

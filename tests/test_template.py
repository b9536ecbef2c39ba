"""Chat templates: rendered as the model says, refused in its words."""

import inspect

import pytest

from fairstep.errors import InvalidRequest, TemplateError
from fairstep.text.template import OURS, ChatTemplate

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


OPEN = [*HELLO, {"role": "assistant", "content": "The answer is "}]


@pytest.mark.parametrize("marks", ["\n", "<|end|>\n", ""])
def test_an_open_last_message_ends_the_text(marks: str) -> None:
    source = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}" + marks + "{% endfor %}END"
    template = ChatTemplate(source, {})
    text = template.render(OPEN, add_generation_prompt=False, continue_final_message=True)
    assert text == f"[user] hi{marks}[assistant] The answer is "


def test_a_template_that_trims_contents_trims_the_open_one_too() -> None:
    source = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] | trim }}\n{% endfor %}"
    text = ChatTemplate(source, {}).render(OPEN, add_generation_prompt=False, continue_final_message=True)
    assert text == "[user] hi\n[assistant] The answer is"


def test_a_content_that_was_said_before_is_left_open_where_it_is_last() -> None:
    twice = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}]
    text = ChatTemplate(CHAT, {}).render(twice, add_generation_prompt=False, continue_final_message=True)
    assert text == "[user] hi\n[assistant] hi"


def test_an_open_message_and_a_new_one_exclude_each_other() -> None:
    with pytest.raises(InvalidRequest, match="exclude each other") as caught:
        ChatTemplate(CHAT, {}).render(OPEN, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


def test_a_last_message_without_content_cannot_be_left_open() -> None:
    with pytest.raises(InvalidRequest, match="has no content") as caught:
        calls = [*HELLO, {"role": "assistant", "content": None}]
        ChatTemplate(CHAT, {}).render(calls, add_generation_prompt=False, continue_final_message=True)
    assert caught.value.param == "messages"


def test_a_template_reads_the_callers_own_names() -> None:
    template = ChatTemplate("{{ 'thinking' if enable_thinking else 'plain' }} {{ documents | length }}", {})
    assert template.render(HELLO, template_kwargs={"enable_thinking": True, "documents": [{}]}) == "thinking 1"
    assert template.render(HELLO, template_kwargs={"documents": []}) == "plain 0"


@pytest.mark.parametrize(
    "name",
    [
        *("messages", "conversation", "tools", "add_generation_prompt", "continue_final_message", "chat_template"),
        *("tokenize", "return_dict", "padding", "bos_token"),
    ],
)
def test_names_that_are_not_the_callers_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"must not set '{name}'") as caught:
        ChatTemplate(CHAT, {"bos_token": "<s>"}).render(HELLO, template_kwargs={name: True})
    assert caught.value.param == "chat_template_kwargs"


def test_no_argument_of_the_renderer_can_be_set_by_the_caller() -> None:
    """But for documents, which templates of some models read."""
    from transformers import PreTrainedTokenizerFast

    arguments = inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters
    assert set(arguments) - {"self", "kwargs", "documents"} <= OURS


def test_prepare_leaves_a_bad_template_to_the_first_chat() -> None:
    for source in (None, CHAT, "{{ raise_exception('no') }}"):
        ChatTemplate(source, {}).prepare()

"""Text to ids as the model's own tokenizer does it, from a GGUF file and from a directory, without torch."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from fairstep.errors import InvalidRequest, ModelError
from fairstep.text.fast_codec import FastCodec, byte_alphabet
from fairstep.text.gguf_tokenizer import build_tokenizer
from fairstep.text.sentencepiece_codec import SentencePieceCodec
from fairstep.text.tokenizer import Tokenizer, load_tokenizer
from fakes_sentencepiece import WORDS, backend
from trained_vocabularies import train

HELLO = [{"role": "user", "content": "hi"}]
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"


def byte_level(pre: str, **more: Any) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer: two marks, one user-defined token, the bytes, and a few merges."""
    tokens = ["<bos>", "<eos>", "<think>", *byte_alphabet(), "ab", "abc", "12", "\u0120a"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 4] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": ["a b", "1 2", "\u0120 a"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        **{f"tokenizer.{key}": value for key, value in more.items()},
    }


def write_gguf(path: Path, metadata: dict[str, Any]) -> Path:
    writer = GGUFWriter(path, "llama")
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def write_directory(path: Path, *, bos: bool, template: str | None = None, jinja: str | None = None) -> Path:
    """The tiny SentencePiece tokenizer as save_pretrained writes it, beside a config.json."""
    built = backend()
    if bos:
        built.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 1)])
    built.enable_truncation(4)
    PreTrainedTokenizerFast(tokenizer_object=built, bos_token="<s>", eos_token="</s>").save_pretrained(path)
    (path / "config.json").write_text("{}")
    if template is not None:
        config = path / "tokenizer_config.json"
        quoted = template.replace('"', '\\"')
        config.write_text(config.read_text().replace("{", f'{{"chat_template": "{quoted}",', 1))
    if jinja is not None:
        (path / "chat_template.jinja").write_text(jinja)
    return path


def cut(pre: str, text: str) -> list[str]:
    """Where a family cuts `text`, with its spaces as they were."""
    spelled = byte_alphabet()
    parts = build_tokenizer(byte_level(pre)).pre_tokenizer.pre_tokenize_str(text)
    return [bytes(spelled[char] for char in part).decode() for part, _ in parts]


# --- GGUF


@pytest.mark.parametrize(
    ("pre", "parts"),
    [
        ("smollm", ["a", " ", "1", "2", "3", "4", " it", "'s", " DON", "'", "T", "!\n"[:1], "\n"]),
        ("gpt-2", ["a", " 1234", " it", "'s", " DON", "'", "T", "!", "\n"]),
        ("llama-bpe", ["a", " ", "123", "4", " it", "'s", " DON", "'T", "!\n"]),
        ("qwen2", ["a", " ", "1", "2", "3", "4", " it", "'s", " DON", "'T", "!\n"]),
        ("tekken", ["a", " ", "1", "2", "3", "4", " it", "'s", " DON", "'T", "!\n"]),
    ],
)
def test_each_family_cuts_digits_contractions_and_line_ends_its_own_way(pre: str, parts: list[str]) -> None:
    assert cut(pre, "a 1234 it's DON'T!\n") == parts


def test_the_split_of_smollm_is_that_of_its_published_tokenizer() -> None:
    published = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    ours = build_tokenizer(byte_level("smollm")).pre_tokenizer
    for text in ("x²+10 = ½", "  two  spaces\n\n\tand 3 tabs", "it's 1,000.5 — ١٢٣", "é🫠 123abc"):
        assert ours.pre_tokenize_str(text) == published.pre_tokenize_str(text)


def test_an_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre is 'new-thing'.*smollm"):
        build_tokenizer(byte_level("new-thing"))


def test_an_unknown_kind_of_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.model is 'rwkv'"):
        build_tokenizer(byte_level("smollm") | {"tokenizer.ggml.model": "rwkv"})


@pytest.mark.parametrize(
    ("pre", "more", "bos"),
    [
        ("gpt-2", {}, False),
        ("gpt-2", {"ggml.add_bos_token": True}, True),
        ("llama-bpe", {}, True),
        ("llama-bpe", {"ggml.add_bos_token": False}, False),
    ],
)
def test_bos_is_added_as_the_file_says_or_the_family_does(
    pre: str, more: dict[str, Any], bos: bool, tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(str(write_gguf(tmp_path / "m.gguf", byte_level(pre, **more))))
    ids = tokenizer.encode("a")
    assert (ids[0] == tokenizer.bos_id) == bos
    assert ids[-1:] == tokenizer.encode("a", add_special=False)


def test_a_word_that_is_a_token_is_taken_whole_where_the_family_does_so() -> None:
    tokens = byte_level("gpt-2")["tokenizer.ggml.tokens"]
    whole, merged = [tokens.index("abc")], [tokens.index("ab"), tokens.index("c")]
    assert build_tokenizer(byte_level("llama-bpe")).encode("abc", add_special_tokens=False).ids == whole
    assert build_tokenizer(byte_level("gpt-2")).encode("abc").ids == merged


def test_control_tokens_are_special_and_user_defined_ones_are_text(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_gguf(tmp_path / "m.gguf", byte_level("smollm"))))
    ids = tokenizer.encode("<bos>a<think>")
    assert (ids[0], ids[-1]) == (0, 2)
    assert tokenizer.decode(ids) == "a<think>"
    assert tokenizer.decode(ids, skip_special=False) == "<bos>a<think>"
    assert [tokenizer.special_id(text) for text in ("<eos>", "<think>", "a", "nothing")] == [1, None, None, None]


def test_the_templates_marks_come_from_the_file(tmp_path: Path) -> None:
    metadata = byte_level("smollm", chat_template="{{ bos_token }}" + TEMPLATE + "{{ eos_token }}")
    tokenizer = load_tokenizer(str(write_gguf(tmp_path / "m.gguf", metadata)))
    assert tokenizer.render(HELLO) == "<bos>[user]hi<eos>"


@pytest.mark.parametrize("key", ["tokens", "merges"])
def test_metadata_of_another_kind_is_refused_by_name(key: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", byte_level("smollm") | {f"tokenizer.ggml.{key}": "none"})
    with pytest.raises(ModelError, match=rf"m\.gguf: tokenizer\.ggml\.{key} must be a list"):
        load_tokenizer(str(path))


def test_a_merge_of_unknown_tokens_is_refused_by_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", byte_level("smollm") | {"tokenizer.ggml.merges": ["a zz"]})
    with pytest.raises(ModelError, match=r"m\.gguf: no tokenizer can be built from its metadata: .*zz"):
        load_tokenizer(str(path))


def test_a_file_that_is_cut_off_is_refused_by_name(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "part.gguf", byte_level("smollm"))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ModelError, match=r"part\.gguf"):
        load_tokenizer(str(path))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> sentencepiece.SentencePieceProcessor:
    """A real SentencePiece BPE model with byte tokens, of a few hundred pieces."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    text = folder / "text.txt"
    text.write_text("the cat sat on the mat\nhello there how are you today\nan ant and a bat at the tent\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "m"),
        model_type="bpe",
        vocab_size=320,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "m.model"))


def from_pieces(trained: sentencepiece.SentencePieceProcessor) -> Tokenizer:
    count = trained.get_piece_size()
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [trained.id_to_piece(i) for i in range(count)],
        "tokenizer.ggml.scores": [trained.get_score(i) for i in range(count)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (count - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return Tokenizer(FastCodec(build_tokenizer(metadata)), {"bos_token": "<s>", "eos_token": "</s>"}, None)


@settings(deadline=None)
@given(st.text(alphabet="the catsonmdy \né🫠", max_size=40))
def test_a_sentencepiece_file_gives_the_ids_that_sentencepiece_gives(
    trained: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    tokenizer = from_pieces(trained)
    ids = tokenizer.encode(text)
    assert ids == [1, *trained.encode(text)]
    assert tokenizer.decode(ids) == text


# --- directories


def test_a_directorys_tokenizer_is_read_without_its_truncation(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_directory(tmp_path, bos=True)))
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert tokenizer.encode("leading")[0] == 1
    assert len(tokenizer.encode("leading")) == 9
    assert tokenizer.vocab_size == backend().get_vocab_size()
    assert tokenizer.decode(tokenizer.encode("leading")) == "leading"


@pytest.mark.parametrize(
    ("bos", "template"),
    [(True, TEMPLATE), (True, "{{ bos_token }}" + TEMPLATE), (False, "{{ bos_token }}" + TEMPLATE)],
)
def test_a_chat_begins_with_exactly_one_bos(bos: bool, template: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_directory(tmp_path, bos=bos, template=template)))
    ids = tokenizer.encode_chat(HELLO)
    assert ids[0] == WORDS.index("<s>")
    assert ids.count(WORDS.index("<s>")) == 1


def test_a_chat_has_no_bos_where_neither_template_nor_tokenizer_has_one(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_directory(tmp_path, bos=False, template=TEMPLATE)))
    assert WORDS.index("<s>") not in tokenizer.encode_chat(HELLO)


def test_a_text_with_a_written_bos_gets_the_tokenizers_own_too_unless_told(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_directory(tmp_path, bos=True)))
    assert tokenizer.encode("<s>x").count(1) == 2
    assert tokenizer.encode("<s>x", add_special=False).count(1) == 1


def test_a_template_in_a_file_of_its_own_wins(tmp_path: Path) -> None:
    path = write_directory(tmp_path, bos=False, template=TEMPLATE, jinja="own: {{ messages[0]['content'] }}")
    assert load_tokenizer(str(path)).render(HELLO) == "own: hi"


def test_a_directory_with_a_broken_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    write_directory(tmp_path, bos=False)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"the tokenizer cannot be read: ."):
        load_tokenizer(str(tmp_path))


def test_a_directory_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError, match=rf"{tmp_path.name}: the tokenizer cannot be read: ."):
        load_tokenizer(str(tmp_path))


# --- any


@pytest.mark.parametrize("text", ["a\ud800", "\udfff", "x" * 1000 + "\ud83d"])
def test_half_a_character_is_refused_by_field(text: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_directory(tmp_path, bos=False, template=TEMPLATE)))
    with pytest.raises(InvalidRequest, match="prompt holds half a character") as caught:
        tokenizer.encode(text)
    assert caught.value.param == "prompt"
    with pytest.raises(InvalidRequest, match="messages holds half a character") as caught:
        tokenizer.encode_chat([{"role": "user", "content": text}])
    assert caught.value.param == "messages"


@pytest.fixture
def lettered(tmp_path: Path) -> Tokenizer:
    """Byte-level, with tokens for "ab", "abc" and " a"."""
    return load_tokenizer(str(write_gguf(tmp_path / "m.gguf", byte_level("gpt-2"))))


def test_tokens_have_their_real_bytes(lettered: Tokenizer) -> None:
    ids = lettered.encode("<bos>é a<think>")
    assert [lettered.token_bytes(token) for token in ids] == [b"<bos>", b"\xc3", b"\xa9", b" a", b"<think>"]
    assert [lettered.token_text(token) for token in ids] == ["<bos>", "\ufffd", "\ufffd", " a", "<think>"]
    assert [lettered.token_bytes(token) for token in (-1, lettered.vocab_size, 2**40)] == [b"", b"", b""]


def test_a_word_is_bad_alone_and_after_a_space(lettered: Tokenizer) -> None:
    alone, spaced = lettered.encode("a"), lettered.encode(" a")
    assert [lettered.token_bytes(token) for token in (*alone, *spaced)] == [b"a", b" a"]
    assert lettered.bad_word_ids("a") == lettered.bad_word_ids("  a") == (tuple(alone), tuple(spaced))


def test_a_spelling_that_ends_in_another_is_not_given_twice(lettered: Tokenizer) -> None:
    """After a space "cab" is that space and the word alone."""
    assert lettered.bad_word_ids("cab") == (tuple(lettered.encode("cab")),)


@pytest.mark.parametrize("word", ["", "  "])
def test_an_empty_bad_word_is_refused(word: str, lettered: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="empty word") as caught:
        lettered.bad_word_ids(word)
    assert caught.value.param == "bad_words"


@pytest.mark.parametrize("squeeze", [True, False])
@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_word_is_bad_with_its_space_and_within_a_text(prefix: bool, squeeze: bool) -> None:
    how = {"add_dummy_prefix": prefix, "remove_extra_whitespaces": squeeze, "normalization_rule_name": "identity"}
    codec = SentencePieceCodec(train("bpe", **how))
    tokenizer = Tokenizer(codec, codec.named, None)
    spelled = {b"".join(map(tokenizer.token_bytes, ids)) for ids in tokenizer.bad_word_ids("cat")}
    assert spelled == {b" cat", b"cat"}


def test_a_chat_may_leave_its_last_message_open(tmp_path: Path) -> None:
    path = write_directory(tmp_path, bos=True, template=TEMPLATE + "{{ extra }}")
    tokenizer = load_tokenizer(str(path))
    how = {"add_generation_prompt": False, "continue_final_message": True}
    assert tokenizer.encode_chat(HELLO, **how) == [1, *tokenizer.encode("[user]hi", add_special=False)]
    assert tokenizer.render(HELLO, template_kwargs={"extra": "!"}) == "[user]hi!"


# --- the default model


@pytest.fixture(scope="module")
def real() -> Tokenizer:
    return load_tokenizer("smollm2")


@pytest.mark.real
def test_the_default_models_digits_are_single_tokens(real: Tokenizer) -> None:
    assert [real.decode([token]) for token in real.encode("x 2024")] == ["x", " ", "2", "0", "2", "4"]


@pytest.mark.real
@settings(deadline=None)
@given(st.text(alphabet=st.characters(max_codepoint=0x1FFFF, exclude_categories=["Cs", "Cc"]), max_size=60))
def test_the_default_models_text_comes_back(real: Tokenizer, text: str) -> None:
    """But for control characters and those above U+1FFFF: the vocabulary lacks some of their bytes."""
    assert real.decode(real.encode(text), skip_special=False) == text


@pytest.mark.real
def test_the_default_models_chat_begins_with_its_one_mark(real: Tokenizer) -> None:
    ids = real.encode_chat(HELLO)
    assert (ids[0], ids[1]) == (real.bos_id, *real.encode("system", add_special=False))
    assert real.decode(ids).endswith("user\nhi\nassistant\n")
    assert (real.special_id("<|im_end|>"), real.eos_id, real.vocab_size) == (2, 2, 49_152)


@pytest.mark.real
def test_loading_and_a_chat_need_no_torch() -> None:
    script = (
        "import sys; from fairstep.text.tokenizer import load_tokenizer; tokenizer = load_tokenizer('smollm2');"
        "assert 'transformers' not in sys.modules;"
        "tokenizer.prepare(); tokenizer.encode_chat([{'role': 'user', 'content': 'hi'}]);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)

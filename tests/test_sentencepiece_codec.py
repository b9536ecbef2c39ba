"""SentencePiece models: their own ids, with marks matched whole and added tokens beyond the model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor
from transformers import PreTrainedTokenizerFast

from fairstep.errors import ModelError
from fairstep.text.added_tokens import Added
from fairstep.text.codec import UNBOUNDED
from fairstep.text.sentencepiece_codec import SentencePieceCodec
from fairstep.text.tokenizer import Tokenizer, load_tokenizer
from trained_vocabularies import byte_level, exact, normalizing, random_strings, train

HELLO = [{"role": "user", "content": "hi"}]
INST = "{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"


def write(path: Path, serialized: bytes, **config: Any) -> Path:
    """A directory as old Llama models have it: tokenizer.model and tokenizer_config.json, no tokenizer.json."""
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.model").write_bytes(serialized)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", **config}))
    return path


def own(serialized: bytes) -> SentencePieceProcessor:
    return SentencePieceProcessor(model_proto=serialized)


def pieces(codec: SentencePieceCodec, ids: list[int]) -> list[bytes]:
    return [codec.pieces.of(token, skip_special=False) for token in ids]


# --- the model's own rules


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("squeeze", [True, False])
@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
def test_ids_are_the_models_own_whatever_it_does_to_texts(prefix: bool, squeeze: bool, rule: str) -> None:
    serialized = train("bpe", add_dummy_prefix=prefix, remove_extra_whitespaces=squeeze, normalization_rule_name=rule)
    codec, model = SentencePieceCodec(serialized), own(serialized)
    tokenizer = Tokenizer(codec, codec.named, None)
    for text in ("", " ", "cat", "  the  cat ", "\tthe\ncat", "ﬁ ① e\u0301", "a\u2581b", *random_strings(50, seed=1)):
        ids = codec.encode(text, add_special=False)
        assert ids == model.encode(text)
        assert tokenizer.decode(ids) == model.decode(ids)


def test_user_defined_pieces_are_text_and_taken_whole() -> None:
    codec = SentencePieceCodec(train("bpe", user_defined_symbols=["<think>", "▁up"]))
    ids = codec.encode("cat<think>hat", add_special=False)
    assert b"<think>" in pieces(codec, ids)
    assert Tokenizer(codec, codec.named, None).decode(ids) == "cat<think>hat"
    assert codec.id_of("<think>") not in codec.pieces.special


def test_control_pieces_are_matched_in_texts_and_hidden() -> None:
    """As in chat templates; sentencepiece itself would spell them out."""
    codec = SentencePieceCodec(train("unigram", control_symbols=["[INST]"]))
    tokenizer = Tokenizer(codec, codec.named, None)
    ids = tokenizer.encode("<s>[INST]cat</s>", add_special=False)
    assert [ids[0], ids[1], ids[-1]] == [1, tokenizer.special_id("[INST]"), 2]
    assert tokenizer.decode(ids) == "cat"
    assert tokenizer.decode(ids, skip_special=False) == "<s>[INST] cat</s>"


def test_byte_tokens_are_their_bytes() -> None:
    codec = SentencePieceCodec(exact("bpe"))
    assert pieces(codec, codec.encode("🐢", add_special=False)) == [b" ", b"\xf0", b"\x9f", b"\x90", b"\xa2"]


def test_a_space_that_comes_as_a_byte_token_is_not_taken_off() -> None:
    model = own(exact("bpe"))
    codec = SentencePieceCodec(exact("bpe"))
    for spellings in (["<0x20>", "▁"], ["▁", "<0x20>"], ["▁", "▁the"], ["▁the"], ["<0x20>", "▁the"]):
        ids = [model.piece_to_id(spelling) for spelling in spellings]
        assert Tokenizer(codec, codec.named, None).decode(ids) == model.decode(ids)


def test_ids_outside_the_vocabulary_have_no_bytes() -> None:
    codec = SentencePieceCodec(exact("bpe"))
    assert pieces(codec, [-1, codec.size, 2**40]) == [b"", b"", b""]


def test_only_a_model_that_keeps_texts_bounds_the_characters_of_a_token() -> None:
    assert SentencePieceCodec(exact("bpe")).longest == max(map(len, own(exact("bpe")).id_to_piece(list(range(420)))))
    assert SentencePieceCodec(normalizing("bpe")).longest == UNBOUNDED
    unknowing = train("bpe", byte_fallback=False, normalization_rule_name="identity", remove_extra_whitespaces=False)
    assert SentencePieceCodec(unknowing).longest == UNBOUNDED  # a run of unknown characters is one token


# --- what comes beside the model


def test_added_tokens_lie_beyond_the_model_and_take_their_spaces() -> None:
    added = [Added("<|im|>", 500, special=True, rstrip=True), Added("<tool>", None)]
    codec = SentencePieceCodec(exact("bpe"), added)
    tokenizer = Tokenizer(codec, codec.named, None)
    ids = tokenizer.encode("<|im|>  \ncat<tool>", add_special=False)
    assert (ids[0], ids[-1]) == (500, 501)
    assert codec.size == 502
    assert tokenizer.decode(ids) == "cat<tool>"
    assert tokenizer.token_bytes(500) == b"<|im|>"
    assert (tokenizer.special_id("<|im|>"), tokenizer.special_id("<tool>")) == (500, None)


def test_an_added_token_may_give_a_piece_of_the_model_another_role() -> None:
    codec = SentencePieceCodec(train("bpe", user_defined_symbols=["<mask>"]), [Added("<mask>", None, special=True)])
    assert codec.id_of("<mask>") in codec.pieces.special
    assert codec.size == own(train("bpe", user_defined_symbols=["<mask>"])).get_piece_size()


def test_after_a_mark_a_legacy_tokenizer_begins_anew_and_others_go_on() -> None:
    """Legacy: what sentencepiece does to each part alone."""
    model = own(exact("bpe"))
    legacy, other = SentencePieceCodec(exact("bpe")), SentencePieceCodec(exact("bpe"), legacy=False)
    assert legacy.encode("cat</s>cat", add_special=False) == [*model.encode("cat"), 2, *model.encode("cat")]
    assert other.encode("cat", add_special=False) == model.encode("cat")
    assert b"".join(pieces(other, other.encode("cat</s>cat", add_special=False))) == b" cat</s>cat"
    assert b"".join(pieces(other, other.encode("</s> cat", add_special=False))) == b"</s> cat"


def test_without_legacy_ids_are_those_of_transformers_llama_tokenizer(tmp_path: Path) -> None:
    from transformers import LlamaTokenizer
    from transformers.tokenization_utils_sentencepiece import SentencePieceExtractor

    (tmp_path / "tokenizer.model").write_bytes(exact("bpe"))
    vocabulary, _, merges = SentencePieceExtractor(str(tmp_path / "tokenizer.model")).extract()
    reference = LlamaTokenizer(vocab=vocabulary, merges=merges, legacy=False)
    codec = SentencePieceCodec(exact("bpe"), legacy=False)
    for part in random_strings(300, seed=2):
        # that one adds no space to a text that begins with one; sentencepiece does
        for text in (part.strip(), f"{part.strip()}</s>{part}", f"<s>{part}"):
            assert codec.encode(text, add_special=False) == reference.encode(text, add_special_tokens=False)


def test_a_model_that_squeezes_spaces_keeps_the_one_after_a_mark() -> None:
    codec = SentencePieceCodec(normalizing("bpe"), legacy=False)
    assert b"".join(pieces(codec, codec.encode("cat</s>  cat", add_special=False))) == b" cat</s> cat"
    assert b"".join(pieces(codec, codec.encode("cat</s>cat", add_special=False))) == b" cat</s>cat"


# --- directories


def test_a_directory_with_a_model_alone_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.model").write_bytes(exact("bpe"))
    tokenizer = load_tokenizer(str(tmp_path))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (1, 2, 420)
    assert tokenizer.encode("cat") == [1, *own(exact("bpe")).encode("cat")]


@pytest.mark.parametrize(
    ("config", "bos", "eos"),
    [
        ({}, True, False),
        ({"add_bos_token": None}, True, False),
        ({"add_bos_token": False}, False, False),
        ({"add_eos_token": True}, True, True),
    ],
)
def test_bos_and_eos_are_added_as_the_config_says(config: dict[str, Any], bos: bool, eos: bool, tmp_path: Path) -> None:
    ids = load_tokenizer(str(write(tmp_path, exact("bpe"), **config))).encode("cat")
    assert (ids[0] == 1, ids[-1] == 2) == (bos, eos)


def test_a_config_names_its_own_bos(tmp_path: Path) -> None:
    added = {"420": {"content": "<|start|>", "special": True}, "2": {"content": "</s>", "special": True}}
    path = write(tmp_path, exact("bpe"), bos_token={"content": "<|start|>"}, added_tokens_decoder=added)
    tokenizer = load_tokenizer(str(path))
    assert (tokenizer.bos_id, tokenizer.eos_id) == (420, 2)
    assert tokenizer.encode("cat")[0] == 420


@pytest.mark.parametrize("written", ["{{ bos_token }}", "<s>", ""])
@pytest.mark.parametrize("adds", [True, False])
def test_a_chat_begins_with_one_bos_if_anything_writes_one(adds: bool, written: str, tmp_path: Path) -> None:
    """vllm#27515, vllm#2012, llama-cpp-python#1501: a template's BOS and the tokenizer's own made two."""
    path = write(tmp_path, exact("bpe"), chat_template=written + INST, add_bos_token=adds)
    ids = load_tokenizer(str(path)).encode_chat(HELLO)
    assert ids.count(1) == (ids[0] == 1) == bool(adds or written)


def test_tokenizer_json_comes_first(tmp_path: Path) -> None:
    PreTrainedTokenizerFast(tokenizer_object=byte_level(), bos_token="<bos>").save_pretrained(tmp_path)
    write(tmp_path, exact("bpe"))
    assert load_tokenizer(str(tmp_path)).vocab_size == byte_level().get_vocab_size()


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x02", b"version https://git-lfs"])
def test_a_file_that_is_no_model_is_refused_by_name(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"{tmp_path.name}: tokenizer\.model: it is no SentencePiece model"):
        load_tokenizer(str(write(tmp_path, data)))


def test_a_model_that_marks_the_ends_of_words_is_refused() -> None:
    with pytest.raises(ModelError, match="ends of words"):
        SentencePieceCodec(train("unigram", treat_whitespace_as_suffix=True))


def test_loading_needs_neither_torch_nor_transformers_nor_protobuf(tmp_path: Path) -> None:
    path = write(tmp_path, exact("bpe"))
    script = (
        "import sys; from fairstep.text.tokenizer import load_tokenizer; "
        f"load_tokenizer({str(path)!r}).encode('cat');"
        "assert not {'torch', 'transformers', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)

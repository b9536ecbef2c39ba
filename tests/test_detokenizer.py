"""Joined deltas are the whole decode, whatever the ids, wherever they are cut, whatever the prompt."""

from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from fairstep.errors import ModelError
from fairstep.text.detokenizer import Detokenizer
from fairstep.text.fast_codec import FastCodec
from fairstep.text.tokenizer import Tokenizer, load_tokenizer
from fakes_sentencepiece import BYTES, IDS, TOKENS, WORDS, backend, byte_ids, tokenizer
from fakes_text import BOS, VOCAB, FakeTokenizer

# bytes of which many make or break characters
awkward = st.sampled_from([*"aé龜🫠".encode(), 0x85, 0xBF, 0xC2, 0xE2, 0xED, 0xA0, 0xF0, 0xFF, BOS])
byte_streams = st.lists(awkward | st.integers(0, VOCAB - 1), max_size=24)
letters = st.integers(0, len(TOKENS) - 1)
sentencepiece_streams = st.lists(
    letters | st.integers(len(WORDS) + len(BYTES), len(TOKENS) - 1) | st.sampled_from(byte_ids("é龜🫠".encode())),
    max_size=16,
)


def stream(detokenizer: Detokenizer, ids: list[int]) -> str:
    return "".join(detokenizer.push((token,)) for token in ids) + detokenizer.finish()


def longest_hold(detokenizer: Detokenizer, ids: list[int]) -> int:
    """The most bytes held back after any token."""
    held = 0
    for token in ids:
        detokenizer.push((token,))
        held = max(held, len(detokenizer._held))
    return held


@given(byte_streams, byte_streams, st.booleans())
def test_byte_level_deltas_are_the_decode_of_all_ids_after_the_prompts(
    prompt: list[int], ids: list[int], skip: bool
) -> None:
    whole = FakeTokenizer()
    expected = whole.decode(prompt + ids, skip_special=skip)[len(whole.decode(prompt, skip_special=skip)) :]
    assert stream(whole.detokenizer(prompt, skip_special=skip), ids) == expected


@given(byte_streams, st.integers(0, 24))
def test_ids_may_come_in_any_groups(ids: list[int], cut: int) -> None:
    detokenizer = FakeTokenizer().detokenizer(())
    text = detokenizer.push(ids[:cut]) + detokenizer.push(ids[cut:]) + detokenizer.finish()
    assert text == FakeTokenizer().decode(ids)


@given(byte_streams)
def test_at_most_three_bytes_are_held_back(ids: list[int]) -> None:
    assert longest_hold(FakeTokenizer().detokenizer(()), ids) <= 3


def run_by_run(ids: list[int]) -> tuple[str, bool]:
    """A text by the rule of byte tokens, written down independently; and whether each run of them is whole UTF-8."""
    shown = [TOKENS[token] for token in ids if TOKENS[token] not in WORDS]
    text, whole = "", True
    for is_byte, run in groupby(shown, key=lambda token: token in BYTES):
        if is_byte:
            data = bytes(BYTES.index(token) for token in run)
            part = data.decode("utf-8", "surrogateescape")
            marked = "".join("\ufffd" if 0xDC80 <= ord(char) <= 0xDCFF else char for char in part)
            whole = whole and marked == part
            text += marked
        else:
            text += "".join(run).replace("\u2581", " ")
    return text.removeprefix(" "), whole


@given(sentencepiece_streams)
def test_sentencepiece_deltas_are_the_libraries_decode_where_byte_runs_are_whole(ids: list[int]) -> None:
    text = stream(tokenizer().detokenizer(()), ids)
    expected, whole = run_by_run(ids)
    assert text == expected == tokenizer().decode(ids)
    if whole:
        assert text == backend().decode(ids)


def begun_after(prompt: list[int], ids: list[int]) -> str:
    """The characters of the whole text whose first byte comes after the prompt."""
    raw = [b"".join(spelled(token) for token in part) for part in (prompt, prompt + ids)]
    text, at = "", 0
    for char in raw[1].decode("utf-8", "surrogateescape"):
        if at >= len(raw[0]) and not (at == 0 and char == " "):
            text += "\ufffd" if 0xDC80 <= ord(char) <= 0xDCFF else char
        at += len(char.encode("utf-8", "surrogateescape"))
    return text


def spelled(token: int) -> bytes:
    text = TOKENS[token]
    if text in BYTES:
        return bytes([BYTES.index(text)])
    return b"" if text in WORDS else text.replace("\u2581", " ").encode()


@given(sentencepiece_streams, sentencepiece_streams)
def test_a_character_belongs_to_the_prompt_if_its_first_byte_does(prompt: list[int], ids: list[int]) -> None:
    assert stream(tokenizer().detokenizer(prompt), ids) == begun_after(prompt, ids)


def test_a_whole_run_of_stray_sentencepiece_bytes_is_one_mark_a_byte_as_in_the_library() -> None:
    ids = byte_ids(b"\x80\x81\xbf")
    assert tokenizer().decode(ids) == backend().decode(ids) == "\ufffd" * 3


def test_a_stray_byte_does_not_undo_the_good_characters_of_its_run() -> None:
    ids = byte_ids("🫠".encode() + b"\x85")
    assert tokenizer().decode(ids) == "🫠\ufffd"


def test_characters_of_several_tokens_come_whole() -> None:
    detokenizer = FakeTokenizer().detokenizer(())
    deltas = [detokenizer.push((byte,)) for byte in "a🫠b龜c".encode()]
    assert deltas == ["a", "", "", "", "🫠", "b", "", "", "龜", "c"]
    assert detokenizer.finish() == ""


def test_lone_continuation_bytes_come_at_once_as_marks() -> None:
    detokenizer = FakeTokenizer().detokenizer(())
    assert [detokenizer.push((0x80 + i % 64,)) for i in range(64)] == ["\ufffd"] * 64


def test_the_stream_goes_on_after_a_stray_byte() -> None:
    ids = [*"ok ✅".encode(), 0x85, *b" done"]
    assert stream(FakeTokenizer().detokenizer(()), ids) == "ok ✅\ufffd done"


def test_an_unfinished_character_at_the_end_becomes_one_mark() -> None:
    assert stream(FakeTokenizer().detokenizer(()), [*b"hm ", *"🫠".encode()[:3]]) == "hm \ufffd"


@pytest.mark.parametrize("rest", ["🌶".encode()[2:] + b" hot", b" plain", b""])
def test_a_prompt_that_ends_inside_a_character_never_leaks(rest: bytes) -> None:
    prompt = [*b"Hello world ", *"🌶".encode()[:2]]
    whole = FakeTokenizer()
    text = stream(whole.detokenizer(prompt), list(rest))
    assert "Hello world" not in text
    assert text == whole.decode(prompt + list(rest))[len(whole.decode(prompt)) :]


@pytest.mark.parametrize(("rest", "text"), [(b"\x8c\xb6", "leading"), (b"\x8c", "\ufffdleading"), (b"", "leading")])
def test_a_sentencepiece_prompt_that_ends_inside_a_character_keeps_it(rest: bytes, text: str) -> None:
    prompt = [IDS["x"], *byte_ids(b"\xf0\x9f")]
    answer = [*byte_ids(rest), *(IDS[char] for char in "leading")]
    assert stream(tokenizer().detokenizer(prompt), answer) == text


def test_only_the_space_that_begins_the_whole_text_is_taken() -> None:
    ids = [IDS["\u2581"], IDS["\u2581leading"], IDS["\u2581x"]]
    assert stream(tokenizer().detokenizer(()), ids) == " leading x"
    assert stream(tokenizer().detokenizer([IDS["<s>"]]), ids) == " leading x"
    assert stream(tokenizer().detokenizer([IDS["<s>"], IDS["x"]]), ids) == "  leading x"
    assert stream(tokenizer().detokenizer([IDS["\u2581"]]), ids[1:]) == " leading x"


def test_special_tokens_are_skipped_unless_asked_for() -> None:
    ids = [*b"a", BOS, *b"b"]
    assert stream(FakeTokenizer().detokenizer(()), ids) == "ab"
    assert stream(FakeTokenizer().detokenizer((), skip_special=False), ids) == "a<bos>b"


def test_ids_outside_the_vocabulary_have_no_text() -> None:
    assert tokenizer().decode([IDS["x"], 10**6, -1, 2**40, IDS["x"]]) == "xx"


def test_without_a_decoder_tokens_are_joined_by_spaces() -> None:
    words = Backend(models.WordLevel({"one": 0, "two": 1, "?": 2}, unk_token="?"))
    tokens = Tokenizer(FastCodec(words), {}, None)
    assert stream(tokens.detokenizer(()), [0, 1, 0]) == words.decode([0, 1, 0]) == "one two one"
    assert stream(tokens.detokenizer([1]), [0]) == " one"


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.WordPiece(),
        decoders.Sequence([decoders.Fuse(), decoders.Replace("a", "b")]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 1)]),
        decoders.Sequence([decoders.Strip(" ", 1, 0)]),
    ],
)
def test_a_decoder_that_looks_beyond_single_tokens_is_refused(decoder: decoders.Decoder) -> None:
    words = Backend(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words.decoder = decoder
    with pytest.raises(ModelError, match="decoder is not supported"):
        FastCodec(words)


@pytest.fixture(scope="module")
def real() -> Tokenizer:
    return load_tokenizer("smollm2")


@pytest.mark.real
@settings(deadline=None)
@given(st.lists(st.integers(0, 49_151) | st.integers(17, 272), max_size=40), st.integers(0, 40), st.booleans())
def test_the_real_models_random_ids_stream_as_the_library_decodes(
    real: Tokenizer, ids: list[int], cut: int, skip: bool
) -> None:
    prompt, answer = ids[:cut], ids[cut:]
    whole = real._codec._backend.decode(ids, skip_special_tokens=skip)
    before = real._codec._backend.decode(prompt, skip_special_tokens=skip)
    detokenizer = real.detokenizer(prompt, skip_special=skip)
    assert stream(detokenizer, answer) == whole[len(before) :]
    assert real.decode(ids, skip_special=skip) == whole


@pytest.mark.real
@pytest.mark.parametrize(
    "text", ["a🫠b龜c", "Repeat exactly: 🫠🥹龜é", " leading", "ok ✅\u0085 done", "👩‍👩‍👧‍👦 e\u0301"]
)
def test_the_real_models_text_comes_back_without_marks(real: Tokenizer, text: str) -> None:
    assert stream(real.detokenizer(()), real.encode(text)) == text

"""tiktoken files: the ids of a plain BPE by rank, the families' cuts, and no guess where nothing says how to cut."""

import base64
import json
import random
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex

from fairstep.errors import ModelError
from fairstep.text.added_tokens import Added
from fairstep.text.fast_codec import FastCodec
from fairstep.text.tiktoken_vocabulary import BY_CLASS, LLAMA, QWEN, Family, build_tokenizer, is_tiktoken, read_ranks
from fairstep.text.tokenizer import Tokenizer, load_tokenizer
from trained_vocabularies import LINES, exact, random_strings

FAMILIES = {"llama": LLAMA, "qwen": QWEN, "glm": BY_CLASS["ChatGLM4Tokenizer"], "kimi": BY_CLASS["TikTokenTokenizer"]}
# the same, as published for Python's regex module; there the intersection of classes needs version 1
PUBLISHED = {
    "llama": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "kimi": r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
PUBLISHED["glm"] = PUBLISHED["llama"]


@cache
def ranks() -> dict[bytes, int]:
    """A small vocabulary: the bytes in an odd order, the commonest pairs again and again, and one unreachable word."""
    order = list(range(256))
    random.Random(0).shuffle(order)
    found = {bytes([byte]): rank for rank, byte in enumerate(order)}
    words = [[bytes([byte]) for byte in word.encode()] for line in LINES for word in regex.findall(r" ?\S+", line)]
    for _ in range(120):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        (left, right), _ = pairs.most_common(1)[0]
        found[left + right] = len(found)
        words = [merged(word, left, right) for word in words]
    found[b"qzqz"] = len(found)  # no two tokens spell it: only a whole word can be it
    return found


def merged(word: list[bytes], left: bytes, right: bytes) -> list[bytes]:
    out: list[bytes] = []
    for token in word:
        if out and out[-1] == left and token == right:
            out[-1] = left + right
        else:
            out.append(token)
    return out


def by_rank(piece: bytes) -> list[int]:
    """A word's ids by the rule itself: whole if it is a token, else the leftmost pair of lowest rank, and again."""
    known = ranks()
    if piece in known:
        return [known[piece]]
    parts = [bytes([byte]) for byte in piece]
    while True:
        pairs = [(known[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in known]
        if not pairs:
            return [known[part] for part in parts]
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def file(vocabulary: dict[bytes, int] | None = None) -> bytes:
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in (vocabulary or ranks()).items())
    return b"".join(lines)


def tokenizer(family: Family, added: list[Added] | None = None) -> Tokenizer:
    return Tokenizer(FastCodec(build_tokenizer(file(), family, added or [], [], [])), {}, None)


def write(path: Path, name: str, model_type: str | None = None, **config: Any) -> Path:
    (path / "config.json").write_text(json.dumps({"model_type": model_type} if model_type else {}))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / name).write_bytes(file())
    return path


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_are_those_of_a_plain_bpe_by_rank_over_the_published_cuts(name: str) -> None:
    built = tokenizer(FAMILIES[name], [Added("<|x|>")])
    cut = regex.compile(PUBLISHED[name], regex.V1)
    texts = [*random_strings(500, seed=1), *LINES, "qzqz qzqz", "qzqzq", "It's DON'T 12345", "漢字kana漢字ABCabc'S"]
    for text in texts:
        if FAMILIES[name].compose and not text.isascii():
            continue
        words = cut.findall(text)
        assert "".join(words) == text
        assert built.encode(text) == [token for word in words for token in by_rank(word.encode())]


def test_random_letters_merge_as_by_rank() -> None:
    """Words made of the vocabulary's own parts, where many merges compete."""
    built, draw = tokenizer(LLAMA), random.Random(2)
    letters = "theacsno"
    for _ in range(2_000):
        word = "".join(draw.choice(letters) for _ in range(draw.randint(1, 12)))
        assert built.encode(word) == by_rank(word.encode())


def test_texts_come_back() -> None:
    built = tokenizer(LLAMA)
    for text in random_strings(300, seed=3):
        assert built.decode(built.encode(text)) == text


def test_qwen_composes_texts_first() -> None:
    built = tokenizer(QWEN)
    assert built.encode("e\u0301") == built.encode("é")
    assert tokenizer(LLAMA).encode("e\u0301") != tokenizer(LLAMA).encode("é")


def test_the_marks_of_a_family_follow_the_last_rank(tmp_path: Path) -> None:
    loaded = load_tokenizer(str(write(tmp_path, "tokenizer.model", "llama")))
    first = len(ranks())
    assert (loaded.bos_id, loaded.eos_id, loaded.vocab_size) == (first, first + 1, first + 256)
    assert [loaded.special_id(text) for text in ("<|start_header_id|>", "<|eot_id|>")] == [first + 6, first + 9]
    assert loaded.encode("cat")[0] == first


def test_listed_tokens_are_taken_as_listed(tmp_path: Path) -> None:
    added = {"900": {"content": "<|im_start|>", "special": True}, "901": {"content": "<tool>", "special": False}}
    path = write(tmp_path, "qwen.tiktoken", "qwen", tokenizer_class="QWenTokenizer", added_tokens_decoder=added)
    loaded = load_tokenizer(str(path))
    ids = loaded.encode("<|im_start|>cat<tool>")
    assert (ids[0], ids[-1]) == (900, 901)
    assert loaded.decode(ids) == "cat<tool>"
    assert loaded.vocab_size == 902


@pytest.mark.parametrize(("bos", "eos"), [(True, False), (False, True)])
def test_the_config_says_what_goes_around_a_text(bos: bool, eos: bool, tmp_path: Path) -> None:
    path = write(tmp_path, "tokenizer.model", "llama", add_bos_token=bos, add_eos_token=eos)
    loaded = load_tokenizer(str(path))
    ids = loaded.encode("cat")
    assert (ids[0] == loaded.bos_id, ids[-1] == loaded.eos_id) == (bos, eos)


def test_a_pattern_of_its_own_is_used(tmp_path: Path) -> None:
    path = write(tmp_path, "tiktoken.model", "new", tokenizer_class="NewTokenizer", pat_str=r"\s|\S")
    loaded = load_tokenizer(str(path))
    assert loaded.encode("the") == [ranks()[letter] for letter in (b"t", b"h", b"e")]


@pytest.mark.parametrize(("name", "kind"), [(None, "new"), (None, None), ("NewTokenizer", "llama")])
def test_an_unknown_cut_is_refused_in_words(name: str | None, kind: str | None, tmp_path: Path) -> None:
    path = write(tmp_path, "tokenizer.model", kind, **({"tokenizer_class": name} if name else {}))
    with pytest.raises(ModelError, match=r"tokenizer\.model: nothing says how .* cuts texts .*pat_str"):
        load_tokenizer(str(path))


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ModelError, match="pattern that cuts texts cannot be used"):
        build_tokenizer(file(), Family("("), [], [], [])


@pytest.mark.parametrize("line", [b"!! 5", b"YQ==", b"YQ== x", b"YQ== 1 2"])
def test_a_broken_line_is_refused_by_number(line: bytes) -> None:
    with pytest.raises(ModelError, match="line 2 is no token"):
        read_ranks(b"YQ== 0\n" + line + b"\n")


def test_a_vocabulary_that_would_lose_texts_is_refused() -> None:
    with pytest.raises(ModelError, match="255 single bytes are no tokens"):
        read_ranks(b"YQ== 0\n")
    with pytest.raises(ModelError, match="same rank"):
        read_ranks(file({**ranks(), b"catcat": 3}))


def test_the_beginning_of_a_file_tells_its_kind() -> None:
    assert is_tiktoken(file())
    assert not is_tiktoken(exact("bpe"))
    assert not is_tiktoken(b"")

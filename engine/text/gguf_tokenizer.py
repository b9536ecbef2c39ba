"""A tokenizer from a GGUF file's metadata, split and merged as llama.cpp does for the same file.

Understood are byte-level BPE (tokenizer.ggml.model "gpt2") with the pre-tokenizers in SPLITS, and SentencePiece BPE
("llama"). A file whose tokenizer.ggml.pre is not in SPLITS is refused, as a wrong split gives wrong ids in silence.
"""

from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ..errors import ModelError

CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type
SPACE = "\u2581"  # SentencePiece's mark

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA3 = rf"{WORDS}|\p{{N}}{{1,3}}|{SIGNS}|{REST}"
QWEN2 = rf"{WORDS}|\p{{N}}|{SIGNS}|{REST}"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}"
)


@dataclass(frozen=True, slots=True)
class Split:
    """How a family cuts text before merging: each pattern in turn cuts what the ones before left."""

    patterns: tuple[str, ...]
    names: tuple[str, ...]
    whole_words: bool = False  # a word that is a token is taken whole, without merging
    add_bos: bool = False  # when the file doesn't say


FAMILIES = (
    Split((GPT2,), ("gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2", "granite-docling", "trillion")),
    Split((r"\p{N}", GPT2), ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")),
    Split((LLAMA3,), ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral"), True, True),
    Split((LLAMA3,), ("dbrx", "smaug-bpe", "chatglm-bpe")),
    Split((QWEN2,), ("qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan")),
    Split((TEKKEN,), ("tekken",), True, True),
    Split((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"), ("default",)),
)
SPLITS = {name: family for family in FAMILIES for name in family.names}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the metadata says of the tokens, checked. scores and merges may be empty."""

    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]


def build_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer that a file's metadata describes. Raises ModelError without the file's name."""
    vocabulary = _vocabulary(metadata)
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        split = _split(metadata.get("tokenizer.ggml.pre", "default"))
        tokenizer, add_bos = _byte_level(vocabulary, split), split.add_bos
    elif model == "llama":
        add_space = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        tokenizer, add_bos = _sentencepiece(vocabulary, add_space, metadata), True
    else:
        raise ModelError(f"tokenizer.ggml.model is {model!r}; 'gpt2' and 'llama' are supported")
    _add_tokens(tokenizer, vocabulary)
    _frame(tokenizer, vocabulary, metadata, add_bos)
    return tokenizer


def special_tokens(metadata: dict[str, Any]) -> dict[str, str]:
    """The texts of the special tokens that the file names, by transformers' names: bos_token and so on."""
    tokens = metadata["tokenizer.ggml.tokens"]
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {name: tokens[i] for name, i in ids.items() if i is not None and 0 <= i < len(tokens)}


def _vocabulary(metadata: dict[str, Any]) -> Vocabulary:
    lists = {}
    for key in ("tokens", "token_type", "scores", "merges"):
        value = metadata.get(f"tokenizer.ggml.{key}", [])
        if not isinstance(value, list):
            raise ModelError(f"tokenizer.ggml.{key} must be a list")
        lists[key] = value
    if not lists["tokens"]:
        raise ModelError("tokenizer.ggml.tokens is missing: the file holds no vocabulary")
    return Vocabulary(lists["tokens"], lists["token_type"], lists["scores"], lists["merges"])


def _split(name: str) -> Split:
    if name not in SPLITS:
        raise ModelError(
            f"tokenizer.ggml.pre is {name!r}, which is not known here ({', '.join(sorted(SPLITS))} are): "
            "take the model's Hugging Face directory instead"
        )
    return SPLITS[name]


def _byte_level(vocabulary: Vocabulary, split: Split) -> Tokenizer:
    merges = [_pair(merge) for merge in vocabulary.merges]
    tokenizer = Tokenizer(models.BPE(_ids(vocabulary), merges, ignore_merges=split.whole_words))
    built_in = split.patterns[-1] == GPT2  # and there it is a third faster
    patterns = split.patterns[:-1] if built_in else split.patterns
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=built_in)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, spell])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(vocabulary: Vocabulary, add_space: bool, metadata: dict[str, Any]) -> Tokenizer:
    unknown = special_tokens(metadata).get("unk_token")
    merges = [_pair(merge) for merge in vocabulary.merges] or _merges_by_score(vocabulary)
    tokenizer = Tokenizer(models.BPE(_ids(vocabulary), merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces = [normalizers.Replace(" ", SPACE)]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), *spaces] if add_space else spaces)
    strip = [decoders.Strip(" ", 1, 0)] if add_space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {token: i for i, token in enumerate(vocabulary.tokens)}


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise ModelError(f"tokenizer.ggml.merges holds {merge!r}, which is no pair")
    return left, right


def _merges_by_score(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """SentencePiece stores no merges: each token is merged from any two that spell it, best scores first."""
    if len(vocabulary.scores) != len(vocabulary.tokens):
        raise ModelError("tokenizer.ggml.scores must hold one score a token, as there are no merges")
    ids = _ids(vocabulary)
    best_first = sorted(range(len(vocabulary.tokens)), key=lambda i: -vocabulary.scores[i])
    merges = []
    for i in best_first:
        token = vocabulary.tokens[i]
        cuts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(left, right) for left, right in cuts if left in ids and right in ids]
        merges += sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges


def _add_tokens(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Tokens that are matched whole in text: control ones are special, user-defined ones are ordinary text."""
    typed = list(zip(vocabulary.tokens, vocabulary.types, strict=False))
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False, special=True) for t, kind in typed if kind == CONTROL]
    )
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, kind in typed if kind == USER_DEFINED])


def _frame(tokenizer: Tokenizer, vocabulary: Vocabulary, metadata: dict[str, Any], add_bos: bool) -> None:
    """Put BOS before and EOS after a text, as the file says."""
    named = special_tokens(metadata)
    before = [named["bos_token"]] if _flag(metadata, "bos", add_bos) and "bos_token" in named else []
    after = [named["eos_token"]] if _flag(metadata, "eos", False) and "eos_token" in named else []
    if before or after:
        ids = _ids(vocabulary)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=[(token, ids[token]) for token in {*before, *after}]
        )


def _flag(metadata: dict[str, Any], name: str, default: bool) -> bool:
    return bool(metadata.get(f"tokenizer.ggml.add_{name}_token", default))

"""A vocabulary out of a tiktoken file: lines of a token in base64 and its rank, which is its id.

The file says how to merge, not how to cut a text beforehand: that comes from tokenizer_config.json ("pat_str" or
"pattern") or from the families known here. Without either it is refused, as a wrong cut gives wrong ids in silence.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ..errors import ModelError
from .added_tokens import Added, with_ids
from .fast_codec import byte_alphabet
from .gguf_tokenizer import LLAMA3, LOWER, QWEN2, REST, SIGNS, UPPER
from .tokenizer_files import TokenizerFiles

LINE = re.compile(rb"\A\s*[A-Za-z0-9+/]+={0,2} \d+\s")

# Kimi: as OpenAI's o200k, but Chinese characters are words of their own
NO_HAN_UPPER, NO_HAN_LOWER = (group[:-1] + r"&&[^\p{Han}]]" for group in (UPPER, LOWER))
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = (
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{NO_HAN_UPPER}*{NO_HAN_LOWER}+{CONTRACTION}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{NO_HAN_UPPER}+{NO_HAN_LOWER}*{CONTRACTION}|\p{{N}}{{1,3}}|{SIGNS}|{REST}"
)

LLAMA3_MARKS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"),
    *("<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    *(f"<|reserved_special_token_{i}|>" for i in range(2, 247)),
)
QWEN_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))


@dataclass(frozen=True, slots=True)
class Family:
    """How a family cuts texts. `marks`: special tokens after the last rank, where no file lists them."""

    pattern: str
    marks: tuple[str, ...] = ()
    named: dict[str, str] = field(default_factory=dict)
    add_bos: bool = False
    compose: bool = False  # texts are brought to NFC


LLAMA = Family(LLAMA3, LLAMA3_MARKS, {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, add_bos=True)
QWEN = Family(QWEN2, QWEN_MARKS, {"eos_token": "<|endoftext|>"}, compose=True)
BY_CLASS = {"QWenTokenizer": QWEN, "ChatGLM4Tokenizer": Family(LLAMA3), "TikTokenTokenizer": Family(KIMI)}
BY_MODEL = {"llama": LLAMA, "qwen": QWEN}  # for tokenizer classes that say nothing
GENERIC = {None, "PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend", "LlamaTokenizer"}


def is_tiktoken(data: bytes) -> bool:
    """Whether a vocabulary file is of this kind, by its beginning."""
    return LINE.match(data[:1000]) is not None


def family_of(path: Path, files: TokenizerFiles) -> Family:
    """The family of a directory's tokenizer. Raises ModelError where nothing says how to cut texts."""
    name = files.config.get("tokenizer_class")
    pattern = files.config.get("pat_str") or files.config.get("pattern")
    if isinstance(pattern, str):
        return Family(pattern)
    kind = _model_type(path)
    family = BY_MODEL.get(str(kind)) if name in GENERIC else BY_CLASS.get(str(name))
    if family is None:
        raise ModelError(
            f"nothing says how this tokenizer cuts texts into words (tokenizer_class {name!r}, model_type {kind!r}; "
            f"known are {', '.join(BY_CLASS)} and models of type {', '.join(BY_MODEL)}): put its regular expression "
            "into tokenizer_config.json as pat_str, or take a directory with a tokenizer.json"
        )
    return family


def build_tokenizer(
    data: bytes, family: Family, added: Sequence[Added], before: Sequence[str], after: Sequence[str]
) -> Tokenizer:
    """The tokenizer of a file. `before`, `after`: tokens put around each text. Raises ModelError."""
    ranks = read_ranks(data)
    letters = {byte: char for char, byte in byte_alphabet().items()}
    spelled = {token: "".join(letters[byte] for byte in token) for token in ranks}
    ids = {spelled[token]: rank for token, rank in ranks.items()}
    marks = with_ids(added or [Added(text, special=True) for text in family.marks], ids.get, max(ranks.values()) + 1)
    ids |= {token.text: i for i, token in marks.items()}
    merges = [(spelled[left], spelled[right]) for left, right in _merges(ranks)]
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=True))  # a word that is a token is taken whole
    if family.compose:
        tokenizer.normalizer = normalizers.NFC()
    cut = pre_tokenizers.Split(_regex(family.pattern), "isolated")
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, spell])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([token.library() for token in marks.values()])
    if before or after:
        frame = [(token, _id(tokenizer, token)) for token in {*before, *after}]
        tokenizer.post_processor = processors.TemplateProcessing(single=[*before, "$A", *after], special_tokens=frame)
    return tokenizer


def read_ranks(data: bytes) -> dict[bytes, int]:
    """Each token's bytes and its rank. Raises ModelError naming the line; all 256 bytes must be tokens."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise ModelError(f"line {number} is no token in base64 and its rank") from error
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise ModelError(f"{len(missing)} single bytes are no tokens (0x{missing[0]:02X} is one): texts would be lost")
    if len(set(ranks.values())) < len(ranks):
        raise ModelError("two tokens have the same rank")
    return ranks


def _merges(ranks: dict[bytes, int]) -> Iterable[tuple[bytes, bytes]]:
    """Any two tokens that together spell a third merge to it, lowest rank first."""
    for token in sorted(ranks, key=ranks.__getitem__):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                yield left, right


def _regex(pattern: str) -> Regex:
    try:
        return Regex(pattern)
    except Exception as error:  # tokenizers raises a bare Exception
        raise ModelError(f"the pattern that cuts texts cannot be used: {error}") from error


def _id(tokenizer: Tokenizer, token: str) -> int:
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise ModelError(f"the token {token!r} that goes around a text is not in the vocabulary")
    return found


def _model_type(path: Path) -> object:
    config = path / "config.json"
    try:
        return json.loads(config.read_text(encoding="utf-8")).get("model_type") if config.is_file() else None
    except ValueError as error:
        raise ModelError(f"config.json cannot be read: {error}") from error

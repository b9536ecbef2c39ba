"""A directory's tokenizer: which of its files holds the vocabulary, and the codec, names and template it gives.

tokenizer.json comes first, as it says everything. Then SentencePiece models and tiktoken files; both may be called
tokenizer.model, so their beginning decides. What is left (vocab.json and merges.txt) transformers converts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .codec import Codec
from .fast_codec import FastCodec
from .tiktoken_vocabulary import build_tokenizer, family_of, is_tiktoken
from .tokenizer_files import TokenizerFiles, default_template, read_tokenizer_files

Parts = tuple[Codec, Mapping[str, str], str | None]  # codec, named tokens, chat template


def read_directory(path: Path) -> Parts:
    """The parts of a directory's tokenizer. Raises ModelError naming the file, and whatever transformers raises."""
    if (path / "tokenizer.json").is_file():
        return _fast(path)
    vocabulary = _vocabulary(path)
    if vocabulary is None:
        return _converted(path)
    data = vocabulary.read_bytes()
    try:
        files = read_tokenizer_files(path)
        return _tiktoken(path, data, files) if is_tiktoken(data) else _sentencepiece(data, files)
    except ModelError as error:
        raise ModelError(f"{vocabulary.name}: {error}") from error


def _vocabulary(path: Path) -> Path | None:
    named = [path / "tokenizer.model", path / "tiktoken.model", *sorted(path.glob("*.tiktoken"))]
    return next((file for file in named if file.is_file()), None)


def _sentencepiece(data: bytes, files: TokenizerFiles) -> Parts:
    from .sentencepiece_codec import SentencePieceCodec  # its package takes a while to import

    codec = SentencePieceCodec(
        data,
        files.added,
        files.named,
        legacy=files.flag("legacy", True),
        add_bos=files.flag("add_bos_token", True),
        add_eos=files.flag("add_eos_token", False),
    )
    return codec, codec.named, files.template


def _tiktoken(path: Path, data: bytes, files: TokenizerFiles) -> Parts:
    family = family_of(path, files)
    named = {**family.named, **files.named}
    before = [named["bos_token"]] if files.flag("add_bos_token", family.add_bos) and "bos_token" in named else []
    after = [named["eos_token"]] if files.flag("add_eos_token", False) and "eos_token" in named else []
    return FastCodec(build_tokenizer(data, family, files.added, before, after)), named, files.template


def _fast(path: Path) -> Parts:
    from transformers import PreTrainedTokenizerFast

    return _loaded(PreTrainedTokenizerFast.from_pretrained(path))


def _converted(path: Path) -> Parts:
    """By whatever AutoTokenizer knows to convert (imports torch)."""
    from transformers import AutoTokenizer

    return _loaded(AutoTokenizer.from_pretrained(path, trust_remote_code=False))


def _loaded(loaded: Any) -> Parts:
    named = {name: text for name, text in loaded.special_tokens_map.items() if isinstance(text, str)}
    return FastCodec(loaded.backend_tokenizer), named, default_template(loaded.chat_template)

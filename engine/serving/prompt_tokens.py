"""The prompts of one body in token ids: cut to the length that the client wants, with their text where it is echoed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..admission.fit import answer_room, check_ids
from ..text.tokenizer import Tokenizer
from .ask import Ask, Prompt, token_ids
from .off_loop import off_loop_if

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine

WHAT_FITS = -1


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """One prompt. texts: what each id adds to its text, if the answer begins with it; else ()."""

    ids: tuple[int, ...]
    texts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.texts)


async def tokenize(engine: "AsyncEngine", ask: Ask) -> list[PromptTokens]:
    """All prompts of a body, or a refusal of all: InvalidRequest, ContextTooLong or TemplateError."""
    engine.check_alive()
    prompts = []
    for prompt in ask.prompts:
        prompts.append(await _tokenize(engine, ask, prompt))
        await asyncio.sleep(0)  # other requests have their turn between the prompts of one
    info = engine.info
    for tokens in prompts:
        check_ids(tokens.ids, info.vocab_size)
        answer_room(len(tokens.ids), ask.params.max_tokens, info.context)
    return prompts


def prompt_texts(tokenizer: Tokenizer, ids: Sequence[int], own: range, *, skip_special: bool) -> tuple[str, ...]:
    """What each id adds to the prompt's text; nothing for those outside of `own`, which were added to it."""
    detokenizer = tokenizer.detokenizer((), skip_special=skip_special)
    texts = [detokenizer.push((token,)) if place in own else "" for place, token in enumerate(ids)]
    texts[-1] += detokenizer.finish()
    return tuple(texts)


async def _tokenize(engine: "AsyncEngine", ask: Ask, prompt: Prompt) -> PromptTokens:
    any_length = ask.truncate is not None
    whole = await token_ids(engine, prompt, add_special=ask.add_special, any_length=any_length)
    dropped = len(whole) - min(len(whole), _most(ask, engine.info.context))
    ids = whole[dropped:]
    if not ask.echo:
        return PromptTokens(ids)
    own, skip_special = range(len(whole)), ask.params.skip_special_tokens
    if isinstance(prompt, str):  # comes back as it was sent: with the special tokens written in it, without those added
        bare = await token_ids(engine, prompt, add_special=False, any_length=any_length)
        own, skip_special = _place(bare, whole), False
    kept = range(own.start - dropped, own.stop - dropped)
    make = partial(prompt_texts, engine.tokenizer, ids, kept, skip_special=skip_special)
    return PromptTokens(ids, await off_loop_if(len(ids), make))


def _most(ask: Ask, context: int) -> int:
    """How many of a prompt's last tokens to keep."""
    if ask.truncate is None:
        return 2**63
    if ask.truncate != WHAT_FITS:
        return ask.truncate
    answer = ask.default_max_tokens if ask.params.max_tokens is None else ask.params.max_tokens
    return max(1, context - max(1, answer or 1))


def _place(part: tuple[int, ...], whole: tuple[int, ...]) -> range:
    """Where `part` stands in `whole`; all of it if nowhere."""
    for start in range(len(whole) - len(part) + 1):
        if whole[start : start + len(part)] == part:
            return range(start, start + len(part))
    return range(len(whole))

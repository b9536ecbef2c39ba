"""Where texts are tokenized beside an event loop, which never waits for a long one. Knows no tokenizer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SHORT_TEXT = 2_000  # characters that tokenize in well under a millisecond


class TextThread:
    """Owner of the one thread that long texts share, so that short ones, and stopping, never wait for them."""

    def __init__(self) -> None:
        self._long_texts = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fairstep-text")

    async def run(self, length: int, encode: Callable[[], list[int]]) -> tuple[int, ...]:
        """What `encode` makes of a text of `length` characters; it runs in a thread. Raises what it raises."""
        pool = self._long_texts if length > SHORT_TEXT else None
        return tuple(await asyncio.get_running_loop().run_in_executor(pool, encode))

    def close(self) -> None:
        """Drop what waits; the text under way goes on by itself."""
        self._long_texts.shutdown(wait=False, cancel_futures=True)


def characters(messages: Sequence[Mapping[str, Any]]) -> int:
    """How long the plain texts of a conversation are; what is wrong in it is for the template to tell."""
    contents = (message.get("content") for message in messages if isinstance(message, Mapping))
    return sum(len(content) for content in contents if isinstance(content, str))

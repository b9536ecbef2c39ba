"""Streaming completions from any OpenAI-compatible server, with the instant of each token. Knows no server of ours.

Prompts are token ids, so that their length is exact; a server that takes none gets words.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import httpx

PATH = "/v1/completions"
SECONDS = 600.0  # longest silence of a server
IDS = range(1000, 20_000)  # ordinary words in every vocabulary of some size
FORCED = {"ignore_eos": True, "return_token_ids": True}
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state")


@dataclass(frozen=True, slots=True)
class Answer:
    """Instants of one clock, in seconds. tokens: that of each token; those of one chunk have the same."""

    asked: float
    tokens: tuple[float, ...]
    ended: float
    prompt_tokens: int
    answer_tokens: int = 0  # by the server's count; 0: it told none

    @property
    def count(self) -> int:
        """Tokens of the answer, also those that came without text."""
        return self.answer_tokens or len(self.tokens)

    @property
    def ttft(self) -> float:
        return self.tokens[0] - self.asked

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self.tokens)]


@dataclass(frozen=True, slots=True)
class Form:
    """How a server wants to be asked. forced: it can go on past the end. words: so many, if prompts must be text.

    by_config: it goes on if its generation settings, as transformers spells them, name no end.
    """

    model: str
    forced: bool
    words: int | None = None
    by_config: bool = False

    def body(self, prompt_tokens: int, answer_tokens: int, random: Random) -> dict[str, Any]:
        """A request whose prompt is like no other."""
        prompt = random.choices(IDS, k=prompt_tokens) if self.words is None else " ".join(self._text(random))
        most = {"max_tokens": answer_tokens, **({**FORCED, "min_tokens": answer_tokens} if self.forced else {})}
        if self.by_config:
            most["generation_config"] = json.dumps({"max_new_tokens": answer_tokens, "do_sample": False})
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": self.model, "prompt": prompt, "temperature": 0, **most, **streamed}

    def _text(self, random: Random) -> Sequence[str]:
        assert self.words is not None
        return random.choices(WORDS, k=self.words)


class StreamClient:
    """One tenant's connections to a server, a new one for each request: some servers close those that were used.

    key: "" sends none.
    """

    def __init__(self, url: str, key: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=SECONDS, limits=limits)

    async def __aenter__(self) -> "StreamClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def ask(self, body: Mapping[str, Any], enough: Callable[[int], bool] = lambda tokens: False) -> Answer:
        """One request, read to its end, or until so many tokens are `enough`.

        Ends the benchmark if the server refuses it.
        """
        asked = time.monotonic()
        tokens: list[float] = []
        usage: dict[str, int] = {}
        async with self._http.stream("POST", PATH, json=body) as response:
            if response.status_code != 200:
                raise SystemExit(f"the server answered {response.status_code}: {(await response.aread()).decode()}")
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    now, chunk = time.monotonic(), json.loads(line[6:])
                    tokens += [now] * _tokens_in(chunk)
                    usage = chunk.get("usage") or usage
                    if enough(len(tokens)):
                        break
        if not tokens:
            raise SystemExit("the server's answer has no token")
        counts = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        return Answer(asked, tuple(tokens), time.monotonic(), *counts)

    async def form(self, prompt_tokens: int, model: str | None = None) -> Form:
        """The first form of request that the server takes. model: None: the first that it lists."""
        model = model or (await self._http.get("/v1/models")).json()["data"][0]["id"]
        for forced in (True, False):
            if await self._used(Form(model, forced), prompt_tokens) is not None:
                return Form(model, forced)
        for forced, by_config in ((True, False), (False, True), (False, False)):
            form = Form(model, forced, prompt_tokens, by_config)
            used = await self._used(form, prompt_tokens)
            if used is not None:
                return replace(form, words=max(1, round(prompt_tokens * prompt_tokens / (used or prompt_tokens))))
        raise SystemExit(f"{self._http.base_url} takes no completions of {model} in any form that is known here")

    async def _used(self, form: Form, prompt_tokens: int) -> int | None:
        """Prompt tokens by the server's count, 0 if it counts none; None: it does not take that form."""
        body = {**form.body(prompt_tokens, 1, Random(0)), "stream": False}
        del body["stream_options"]
        response = await self._http.post(PATH, json=body)
        if response.status_code != 200:
            return None
        return (response.json().get("usage") or {}).get("prompt_tokens", 0)


def _tokens_in(chunk: Mapping[str, Any]) -> int:
    """Tokens that a chunk brings: by its ids where it has them, else one where it has text."""
    choices = chunk.get("choices") or [{}]
    ids = choices[0].get("token_ids")
    return bool(choices[0].get("text")) if ids is None else len(ids)

"""One engine without HTTP, played over a pipe: prompts of token ids in, the instants of its tokens out.

Run by the Python of that engine's own environment, so it imports nothing but that engine. A job is a JSON line: how
many prompts at once, their tokens, the answers' tokens; what comes back are seconds. The first line back says: ready.
"""

import json
import os
import random
import sys
import time
from typing import Any

IDS = range(1000, 20_000)  # ordinary words in every vocabulary of some size
Counts = dict[str, int]  # tokens so far, by request


class Fairstep:
    """options: of EngineConfig."""

    def __init__(self, model: str, options: dict[str, Any]) -> None:
        import fairstep

        self.version = fairstep.__version__
        self._params = fairstep.SamplingParams
        self._engine = fairstep.Engine(model, fairstep.EngineConfig(**options))

    def submit(self, prompt: list[int], answer: int) -> str:
        return self._engine.submit(prompt, self._params(max_tokens=answer, temperature=0.0, ignore_eos=True))

    def step(self, counts: Counts) -> None:
        for delta in self._engine.step():
            counts[delta.request_id] += len(delta.token_ids)


class Vllm:
    """options: of LLM."""

    def __init__(self, model: str, options: dict[str, Any]) -> None:
        import vllm

        self.version = vllm.__version__
        self._params = vllm.SamplingParams
        self._engine = vllm.LLM(model, **options).llm_engine
        self._asked = 0

    def submit(self, prompt: list[int], answer: int) -> str:
        self._asked += 1
        params = self._params(max_tokens=answer, temperature=0.0, ignore_eos=True)
        self._engine.add_request(str(self._asked), {"prompt_token_ids": prompt}, params)
        return str(self._asked)

    def step(self, counts: Counts) -> None:
        for output in self._engine.step():
            counts[output.request_id] = len(output.outputs[0].token_ids)


ENGINES = {"fairstep": Fairstep, "vllm": Vllm}


def play(engine: Fairstep | Vllm, count: int, prompt: int, answer: int, seed: int) -> dict[str, float]:
    """All prompts at once, to their ends. Seconds: until each had its first token; then with all running; of it all.

    decoded: tokens that came while all were running.
    """
    drawn = random.Random(seed)
    prompts = [drawn.choices(IDS, k=prompt) for _ in range(count)]
    began = time.perf_counter()
    counts = {engine.submit(ids, answer): 0 for ids in prompts}
    first = last = 0.0
    at_first = at_last = 0
    while any(tokens < answer for tokens in counts.values()):
        engine.step(counts)
        now, tokens = time.perf_counter() - began, sum(counts.values())
        if not first and all(counts.values()):
            first, at_first = now, tokens
        if not last and first and max(counts.values()) >= answer:
            last, at_last = now, tokens
    return {"first": first, "decode": last - first, "decoded": at_last - at_first, "all": time.perf_counter() - began}


def serve() -> None:
    """Arguments: which engine, its model, its options as JSON."""
    kind, model, options = sys.argv[1:4]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no reply
    engine = ENGINES[kind](model, json.loads(options))
    play(engine, 1, 8, 1, seed=-1)
    print(json.dumps({"version": engine.version}), file=out)
    for line in sys.stdin:
        print(json.dumps(play(engine, **json.loads(line))), file=out)


if __name__ == "__main__":
    serve()

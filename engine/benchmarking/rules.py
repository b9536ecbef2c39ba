"""How requests become batches: the rules that are compared, as an engine's settings."""

from dataclasses import dataclass
from typing import Any

NAIVE, STATIC, CONTINUOUS, WITNESS = "naive static", "static", "continuous", "transformers"
NAIVE_DELAY_MS = 50.0


@dataclass(frozen=True, slots=True)
class Rule:
    """about: in words. settings: of EngineConfig."""

    about: str
    settings: dict[str, Any]


RULES = {
    NAIVE: Rule(
        "waits for a full batch or 50 ms; prompts padded, ended rows computed until all have ended",
        {"batching": "padded", "batch_delay_ms": NAIVE_DELAY_MS},
    ),
    STATIC: Rule("waits for a full batch or 20 ms; ended rows leave, nobody joins", {"batching": "static"}),
    CONTINUOUS: Rule("whoever waits joins the next step with a free seat", {"batching": "continuous"}),
}

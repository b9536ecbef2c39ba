"""How much one HTTP client may ask for, and how long it may hear nothing. Knows no engine."""

from dataclasses import dataclass, fields

MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class Limits:
    """body_bytes: the longest request body. body_seconds: how long it may take to come. prompts: the most in one body.

    samples: the most answers to one prompt (n, best_of). answers: the most answers in one body, prompts times samples.
    ping_seconds: a stream that was silent for so long gets an SSE comment. Proxies cut silent connections at 60 s. The
    first comment sends the 200, so an error that comes after it is told inside the stream.
    stall_seconds: a client that takes nothing for so long is cut off.
    """

    body_bytes: int = 8 * MIB
    body_seconds: float = 60.0
    prompts: int = 256
    samples: int = 16
    answers: int = 256
    ping_seconds: float = 10.0
    stall_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in (limit.name for limit in fields(self)):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)!r}")

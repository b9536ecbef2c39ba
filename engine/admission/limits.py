"""What a tenant may use a minute or a calendar month, and what a request uses of it, as frozen values.

Keeps no count.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

What = Literal["requests", "input_tokens", "output_tokens", "tokens"]
Per = Literal["minute", "month"]


class Quantities(NamedTuple):
    """What limits count of a request."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a request asks for when it arrives. Outputs are those of all its sequences.

    expected: outputs a sequence that the tenant's requests usually have; None: nothing is known of them. least: the
    fewest that one can have.
    """

    prompt_tokens: int
    max_tokens: int
    expected: int | None = None
    sequences: int = 1
    least: int = 1

    @property
    def outputs(self) -> int:
        """Outputs to expect of a request."""
        most = self.max_tokens if self.expected is None else min(self.max_tokens, self.expected)
        return self.sequences * most

    @property
    def quantities(self) -> Quantities:
        return Quantities(1, self.prompt_tokens, self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most `amount` of something in a minute (a bucket that fills evenly) or in a calendar month of UTC.

    endpoint, model: patterns with * and ?; all that they match count together.
    """

    what: What
    per: Per
    amount: int
    endpoint: str = "*"
    model: str = "*"

    def __post_init__(self) -> None:
        assert self.amount > 0, "whoever reads limits checks them"

    def __str__(self) -> str:
        scope = [
            f"{name} {value}" for name, value in (("endpoint", self.endpoint), ("model", self.model)) if value != "*"
        ]
        return f"{self.amount} {self.what.replace('_', ' ')} a {self.per}" + (f" ({', '.join(scope)})" if scope else "")

    @property
    def counted(self) -> str:
        """What it counts, as a counter's name: the same whatever the amount is."""
        return f"{self.what} {self.endpoint!r} {self.model!r}"

    def applies(self, endpoint: str, model: str) -> bool:
        return fnmatchcase(endpoint, self.endpoint) and fnmatchcase(model, self.model)

    def part(self, of: Quantities) -> int:
        """What this limit counts of `of`."""
        if self.what == "tokens":
            return of.input_tokens + of.output_tokens
        return int(getattr(of, self.what))

    def reserved(self, of: Quantities) -> int:
        """The same before the request has run: outputs are a guess, which may fill the limit and not pass it."""
        if self.what == "output_tokens":
            return min(of.output_tokens, self.amount)
        if self.what == "tokens":
            return of.input_tokens + min(of.output_tokens, max(0, self.amount - of.input_tokens))
        return self.part(of)


def applying(limits: Iterable[Limit], endpoint: str, model: str) -> tuple[Limit, ...]:
    """The limits that a request to `endpoint` of `model` must keep."""
    return tuple(limit for limit in limits if limit.applies(endpoint, model))

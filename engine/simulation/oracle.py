"""Foreknowledge, to measure admission against: every answer's length is known when its request comes."""

from dataclasses import replace

from ..admission.answer_lengths import AnswerLengths
from .trace import Trace

ENDLESS = 2.0**40  # tokens


class AtMost(AnswerLengths):
    """Takes every answer to be as long as it may be: right where max_tokens is the truth."""

    def __contains__(self, tenant: str) -> bool:
        return True

    def mean(self, tenant: str) -> float:
        return ENDLESS

    def left(self, tenant: str, outputs: int) -> float:
        return ENDLESS


def foretold(trace: Trace) -> Trace:
    """The same requests, whose max_tokens are the lengths of their answers."""
    return replace(trace, arrivals=tuple(replace(each, max_tokens=each.answer) for each in trace.arrivals))

"""All suites by name."""

from .own_suites import OWN_SUITES
from .trace import Trace
from .vtc_suites import VTC_SUITES

SUITES = {**VTC_SUITES, **OWN_SUITES}


def suite_trace(name: str, seed: int = 0, seconds: float | None = None) -> Trace:
    """The trace of a suite; KeyError for a name that is none."""
    return SUITES[name].trace(name, seed, seconds)

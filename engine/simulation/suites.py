"""All suites by name."""

from .own_suites import OWN_SUITES
from .storm_suites import STORMS
from .trace import Trace
from .vtc_suites import VTC_SUITES

SHARING = (*VTC_SUITES, *OWN_SUITES)  # by name: what fairness is measured on
SUITES = {**VTC_SUITES, **OWN_SUITES, **STORMS}


def suite_trace(name: str, seed: int = 0, seconds: float | None = None) -> Trace:
    """The trace of a suite; KeyError for a name that is none."""
    return SUITES[name].trace(name, seed, seconds)

"""What a server's files say of its use, opened before a model loads: the book of tenants, the counts of months, and
all that it keeps.

Modules that read files are imported when there is one, for the server's start waits for them.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..admission.admission import Admission
from ..admission.bounded_queue import QueueBounds
from ..admission.deadlines import Allowances
from ..admission.limit_store import LimitStore, MemoryLimits
from ..admission.month import month_of
from ..clock import wall_time
from ..config import ServeConfig
from ..errors import ConfigError, StoreFailed

if TYPE_CHECKING:
    from ..stores.state import State
    from .tenant_book import TenantBook


@dataclass(frozen=True, slots=True)
class TermsOfUse:
    """tenants None: everybody is anonymous. store None: counts are kept in memory. state None: so is all else."""

    tenants: "TenantBook | None" = None
    store: LimitStore | None = None
    state: "State | None" = None


NO_TERMS = TermsOfUse()


@contextmanager
def terms_of_use(config: ServeConfig) -> Generator[TermsOfUse, None, None]:
    """Open what the config names. Raises ConfigError."""
    with ExitStack() as kept:
        book = None if config.tenants is None else _book(Path(config.tenants))
        store = None if config.limits_store is None else kept.enter_context(_store(Path(config.limits_store)))
        state = None if config.state is None else kept.enter_context(_state(Path(config.state), config.answers_kept))
        yield TermsOfUse(book, store, state)


def admission_of(config: ServeConfig, store: LimitStore | None, book: "TenantBook | None" = None) -> Admission:
    """A new door with the config's bounds and allowances, and the book's targets."""
    bounds = QueueBounds(entries=config.max_queue, tokens=config.max_queue_tokens, bytes=config.max_queue_bytes)
    allowances = Allowances(config.way_in_ms / 1000, config.way_out_ms / 1000)
    return Admission(bounds, store or MemoryLimits(), (lambda: book.current.targets) if book else tuple, allowances)


def _book(path: Path) -> "TenantBook":
    from .tenant_book import TenantBook

    return TenantBook(path)


@contextmanager
def _store(path: Path) -> Generator[LimitStore, None, None]:
    from ..stores.sqlite_limits import SqliteLimits

    try:
        store = SqliteLimits(path)
        store.forget(month_of(wall_time()).number)
    except StoreFailed as problem:
        raise ConfigError(f"limits_store: {problem}") from None
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _state(folder: Path, answer_bytes: int) -> Generator["State", None, None]:
    from ..stores.state import State

    state = State(folder, answer_bytes=answer_bytes)
    try:
        yield state
    finally:
        state.close()

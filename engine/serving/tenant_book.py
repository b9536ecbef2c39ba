"""The book of tenants in use, and how a new one takes its place: at once, and only if its file is right.

Whoever took terms from an earlier book keeps them: they are values.
"""

import logging
import threading
from pathlib import Path

from ..errors import ConfigError
from ..tenants import Tenants
from .tenants_file import read_tenants

log = logging.getLogger(__name__)


class TenantBook:
    """Holds the current book; without a file, that in which everybody is anonymous. Raises ConfigError."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._reading = threading.Lock()  # so that of two readings the later one's book stays
        self._current = Tenants() if path is None else read_tenants(path)

    @property
    def current(self) -> Tenants:
        """Ask it once for each request: it may be another one the next time."""
        return self._current

    def reload(self) -> bool:
        """Read the file again, from any thread. If it is wrong the old book stays, and the log says what is wrong."""
        if self._path is None:
            log.warning("there is no tenants file to read again")
            return False
        with self._reading:
            try:
                book = read_tenants(self._path)
            except ConfigError as problem:
                log.error("the tenants stay as they were: %s", problem)
                return False
            self._current = book
        log.info("tenants read again from %s: %d tenants, %d keys", self._path, len(book.tenants), len(book.keys))
        return True

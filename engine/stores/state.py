"""All that a server keeps, opened together: one folder with one SQLite file that one process owns, or memory alone."""

from pathlib import Path
from typing import IO

from ..errors import ConfigError, StoreFailed
from .answers import MIB, AnswerStore, MemoryAnswers
from .aside import Aside
from .batch_store import SCHEMA as BATCHES
from .batch_store import BatchStore
from .database import Database
from .file_store import SCHEMA as FILES
from .file_store import FileStore
from .response_store import SCHEMA as RESPONSES
from .response_store import ResponseStore
from .sqlite_answers import SCHEMA as ANSWERS
from .sqlite_answers import SqliteAnswers

DATABASE = "state.sqlite"
LOCK = "lock"
ANSWER_BYTES = 256 * MIB
MOST_IN_MEMORY = 500  # responses


class State:
    """folder None: nothing survives the process. Raises ConfigError where the folder cannot be used.

    answers: by idempotency key, of at most `answer_bytes` bytes. files: None without a folder.
    """

    def __init__(self, folder: Path | None = None, *, answer_bytes: int = ANSWER_BYTES) -> None:
        self.folder = folder
        self.aside = Aside()
        self._lock: IO[bytes] | None = None
        self._database: Database | None = None
        try:
            if folder is not None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = _locked(folder / LOCK)
            self._database = Database(folder and folder / DATABASE, (*ANSWERS, *RESPONSES, *FILES, *BATCHES))
            self.answers: AnswerStore = (
                MemoryAnswers(answer_bytes) if folder is None else SqliteAnswers(self._database, answer_bytes)
            )
            most = {} if folder else {"most": MOST_IN_MEMORY, "most_of_tenant": MOST_IN_MEMORY}
            self.responses = ResponseStore(self._database, **most)
            self.batches = BatchStore(self._database)
            self.files = None if folder is None else FileStore(self._database, folder / "files")
        except (OSError, StoreFailed) as problem:
            self.close()
            raise ConfigError(f"state: the folder {folder} cannot be used: {problem}") from None
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        """After this nothing of it may be used."""
        self.aside.close()
        if self._database is not None:
            self._database.close()
        if self._lock is not None:
            self._lock.close()


def _locked(path: Path) -> IO[bytes]:
    """A file that no other process can lock for as long as this one has it open, however it ends."""
    file = path.open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # not a Unix
        return file
    except BlockingIOError:
        file.close()
        raise ConfigError(f"state: another server keeps its state in {path.parent}: give each a folder") from None
    except OSError:  # a file system without locks
        return file
    return file

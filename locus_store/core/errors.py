"""Every error this package raises on its own account.

    LocusStoreError
    ├── SerializationError          (TypeError)    a document, state or metadata holds what cannot be stored
    ├── PayloadTooLargeError        (ValueError)   larger than the database can take
    ├── CheckpointError                            something about one stored checkpoint
    │   ├── CheckpointNotFoundError (LookupError)  a checkpoint that a call names is not there
    │   ├── CheckpointExistsError                  `if_exists="error"` met an id in use
    │   ├── CorruptCheckpointError                 what is stored is damaged
    │   └── UnsupportedFormatError                 what is stored was written by a newer release
    ├── ThreadExistsError                          `copy_thread` onto a thread that is there
    ├── ConflictError                              `expected_version` is not the head's version
    ├── UnsupportedOperationError   (NotImplementedError)  this backend lacks the ability
    │   ├── TransactionNotAllowedError             it cannot be done inside a transaction of the caller's
    │   └── SearchNotEnabledError                  the database has no index of words yet
    ├── PlainTextError                             an index of words would show what the codec hides
    ├── MissingDependencyError      (ImportError)  a driver's client is not installed
    ├── SchemaError                                the database's schema and this release differ
    │   ├── SchemaNotReadyError                    missing, or older than this release
    │   ├── SchemaAheadError                       newer than this release
    │   └── SchemaIncompleteError                  tables there, but not all of them, or no schema row
    └── BackendError                               the storage behind the store refused or failed
        ├── BackendUnavailableError (ConnectionError)  it cannot be reached, or the connection was lost
        ├── ReferencedError                        a foreign key of the host's forbids what would be removed
        └── RetryableError                         the same call may succeed later
            ├── StoreBusyError      (TimeoutError) a lock was not free within the time allowed
            └── TransactionConflictError           the whole transaction must be run again

Bad arguments are plain `ValueError` and `TypeError`, raised before anything is read or written. The driver's own
error is always the cause (`__cause__`). No message holds a payload or a password.
"""

from __future__ import annotations


class LocusStoreError(Exception):
    """The root of all errors of this package."""


class SerializationError(LocusStoreError, TypeError):
    """A value cannot be stored such that it comes back equal and with the same type.

    Args:
        path: Where the value is, in the form ``$.messages[3].content``.
        reason: What is wrong with it and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class PayloadTooLargeError(LocusStoreError, ValueError):
    """A save is larger than the backend can store in one piece.

    Args:
        size: Bytes that the save would have written.
        limit: Bytes that the backend takes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the save holds {size} bytes in one piece, this backend stores at most {limit}")
        self.size = size
        self.limit = limit


class CheckpointError(LocusStoreError):
    """Something about one stored checkpoint.

    Args:
        thread_id: The thread.
        checkpoint_id: The checkpoint, or None where the thread's newest was meant.
        message: What was wrong and what to do.
    """

    def __init__(self, thread_id: str, checkpoint_id: str | None, message: str) -> None:
        which = "the newest checkpoint" if checkpoint_id is None else f"checkpoint {checkpoint_id!r}"
        super().__init__(f"thread {thread_id!r}, {which}: {message}")
        self.thread_id = thread_id
        self.checkpoint_id = checkpoint_id


class CheckpointNotFoundError(CheckpointError, LookupError):
    """A checkpoint that a call names (as a parent, as the end of a copy) is not there."""


class CheckpointExistsError(CheckpointError):
    """A save with ``if_exists="error"`` named a checkpoint id that the thread already has."""


class CorruptCheckpointError(CheckpointError):
    """What is stored is damaged: a checksum differs, a block is missing, the text does not parse."""


class UnsupportedFormatError(CheckpointError):
    """What is stored carries a format number that this release does not know: upgrade the package."""


class ThreadExistsError(LocusStoreError):
    """``copy_thread`` names a destination that is there; pass ``overwrite=True`` to replace it."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"thread {thread_id!r} exists already; pass overwrite=True to replace it")
        self.thread_id = thread_id


class ConflictError(LocusStoreError):
    """``expected_version`` is not the version of the thread's head: somebody else saved first.

    Args:
        thread_id: The thread.
        expected: The version that the caller named; 0 means "no such thread".
        actual: The head's version; 0 means that there is no such thread.
    """

    def __init__(self, thread_id: str, expected: int, actual: int) -> None:
        super().__init__(
            f"thread {thread_id!r}: expected version {expected}, but its head is version {actual}; "
            "load it again and decide anew"
        )
        self.thread_id = thread_id
        self.expected = expected
        self.actual = actual


class UnsupportedOperationError(LocusStoreError, NotImplementedError):
    """The backend lacks an ability; its ``capabilities`` say which it has."""

    def __init__(self, owner: str, operation: str, remedy: str = "") -> None:
        super().__init__(f"{owner} does not support {operation}" + (f"; {remedy}" if remedy else ""))
        self.operation = operation


class TransactionNotAllowedError(UnsupportedOperationError):
    """A store that is bound to a transaction of the caller's cannot do this: it would end that transaction."""


class SearchNotEnabledError(UnsupportedOperationError):
    """The database has no index of words: ``await backend.enable_search()`` makes one, once and for all processes."""


class PlainTextError(LocusStoreError):
    """An index of words would keep in readable form what the store's codec may be there to hide."""


class MissingDependencyError(LocusStoreError, ImportError):
    """A driver needs a package that is not installed.

    Args:
        driver: The backend that was asked for.
        package: The package that could not be imported.
        extra: The extra of this distribution that installs it.
    """

    def __init__(self, driver: str, package: str, extra: str) -> None:
        super().__init__(f"{driver} needs the package {package!r}: pip install 'locus-store[{extra}]'")
        self.package = package
        self.extra = extra


class SchemaError(LocusStoreError):
    """The schema in the database and the one that this release needs differ.

    Args:
        current: The revision found, or None.
        wanted: The revision that this release needs.
        remedy: What to run.
    """

    summary = "the schema does not fit this release"

    def __init__(self, current: str | None, wanted: str, remedy: str) -> None:
        super().__init__(f"{self.summary} (found revision {current}, needed {wanted}): {remedy}")
        self.current = current
        self.wanted = wanted


class SchemaNotReadyError(SchemaError):
    """The tables are missing or of an older release."""

    summary = "the tables of locus_store are missing or old"


class SchemaAheadError(SchemaError):
    """The tables are of a newer release than this one."""

    summary = "the tables of locus_store are newer than this release"


class SchemaIncompleteError(SchemaError):
    """Some of the tables are there and some are not, or the schema row is missing."""

    summary = "the tables of locus_store are only half there"


class BackendError(LocusStoreError):
    """The storage refused or failed; the cause says how."""


class BackendUnavailableError(BackendError, ConnectionError):
    """The storage cannot be reached, or the connection was lost; never taken for "no such thread"."""


class ReferencedError(BackendError):
    """A foreign key of the host's own tables forbids a removal.

    Nothing was removed. In a transaction of the caller's something may have been: roll it back.

    Args:
        thread_id: The thread that it points at, or at one of whose checkpoints. None where that is not known yet.
        said: What the database said.
    """

    def __init__(self, thread_id: str | None, said: str) -> None:
        which = "a thread" if thread_id is None else f"thread {thread_id!r}"
        super().__init__(
            f"{which} or a checkpoint of it is pointed at by rows of other tables, and they must go first: {said}"
        )
        self.thread_id = thread_id
        self.said = said


class RetryableError(BackendError):
    """The same call may succeed when it is made again."""


class StoreBusyError(RetryableError, TimeoutError):
    """A lock was not free within ``lock_timeout``: a long transaction holds it, perhaps one of the same task.

    Of a server that is too busy, and of a thread in a bucket that others change all the time, too.
    """


class TransactionConflictError(RetryableError):
    """The database undid the transaction because of another one: run the whole of it again."""

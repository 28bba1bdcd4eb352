"""The port: the few calls that the driver makes on a bucket of objects.

What holds for every port:

- Keys are the whole names of objects in the bucket, of ``A-Z a-z 0-9 - _ .`` and ``/`` (the user's prefix may hold
  more), at most 1,024 bytes; no segment is empty, ``.`` or ``..``, and no key is the
  folder of another. A port sends them as they are.
- An object is written whole or not at all, and read whole as it was written once: never a mixture of two writes.
- A missing object is None, or is not listed. **Everything else that goes wrong is an error**, with the client's own
  error as its cause: `BackendUnavailableError` if the service cannot be reached, answers that it is overloaded (503,
  429, 500), or the connection was lost; `BackendError` if it refuses (wrong credentials, no such bucket), with a
  message that names the bucket and says what to do, and never a secret.
- A port may repeat a call by itself, a `put` too: an own earlier attempt that is found in the way is for the driver to
  recognise, which looks at what the object holds.
- It is safe to call from several tasks, works in one event loop after another, and blocks none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from locus_store.core.errors import BackendError, RetryableError

PAGE = 1000
"""The most keys that one request lists or deletes."""


class ObjectExistsError(BackendError):
    """``put(…, new=True)`` found an object under the key (412); nothing was written by this attempt."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is an object under {key!r} already")
        self.key = key


class ObjectConflictError(RetryableError):
    """The service gave up a conditional write because of another one to the same key (409): make it again."""

    def __init__(self, key: str) -> None:
        super().__init__(f"another write to {key!r} was under way")
        self.key = key


@dataclass(frozen=True, slots=True)
class Object:
    """An object, or a part of one.

    Attributes:
        data: What was asked for.
        size: Bytes that the whole object has.
        etag: What the service calls this content, without quotes: what it is lists say as well, and another content
            under the same key has another one.
    """

    data: bytes
    size: int
    etag: str


class Listed(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    etag: str


class Page(NamedTuple):
    """Objects in the byte order of their keys, and whether there are more after them."""

    objects: list[Listed]
    more: bool


class ObjectPort(ABC):
    """A bucket; see the module's rules."""

    #: Bytes that one object may have.
    max_bytes: int = 5 * 2**30

    @abstractmethod
    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        """Write an object, and give its etag.

        Args:
            key: Its key.
            data: What it holds from now on.
            new: Write only if there is no object under the key (``If-None-Match: *``), decided by the service in the
                same step. Without it what is there is replaced.

        Raises:
            ObjectExistsError: ``new``, and there is one.
            ObjectConflictError: ``new``, and the service could not decide now.
        """

    @abstractmethod
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        """An object, or None.

        Args:
            key: Its key.
            start: The first byte that is wanted. If the object has none from there on, the data is empty.
            end: The byte after the last one that is wanted; None for all. A shorter object gives what it has.
        """

    @abstractmethod
    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        """One page of the objects whose keys begin with a prefix, in the byte order of the keys; one request.

        Where a folder stands among keys that begin with its name is the service's affair: ``a/b`` may come before or
        after ``a-b``. Going on ``after`` the last key of a page misses nothing in either order.

        Args:
            prefix: What the keys begin with, as characters: no folder is meant.
            after: Only keys after this one.
            limit: How many are wanted; a page may have fewer, and at most `PAGE`. It is a wish: a port whose client
                always fetches whole pages cuts them.
        """

    @abstractmethod
    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, however many, some at a time; those that are not there are no error.

        Raises:
            BackendError: Not all of them were deleted.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Release every connection; the next call opens again."""


async def all_listed(port: ObjectPort, prefix: str, *, after: str | None = None) -> list[Listed]:
    """All objects whose keys begin with a prefix, however many pages that takes."""
    found: list[Listed] = []
    while True:
        page = await port.list(prefix, after=after)
        found += page.objects
        if not page.more:
            return found
        after = found[-1].key

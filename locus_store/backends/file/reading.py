"""Reading threads without locks, and listing them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from locus_store.backends.file import formats, names
from locus_store.backends.file.folder import SETTLED, View
from locus_store.backends.file.formats import Checkpoint, Thread
from locus_store.backends.file.locks import Locks
from locus_store.core import patterns
from locus_store.core.driver import Contents, ContentsRow, Info, Key, Stored
from locus_store.core.frames import DamagedError, UnknownFormatError

T = TypeVar("T")

_ATTEMPTS = 30


class _Summary(NamedTuple):
    """What a listing of threads knows of one folder, and the folder's state when it was learnt."""

    inode: int
    changed: int
    thread_id: str
    updated_at: int
    expires_at: int | None
    exists: bool

    def lives(self, now: int) -> bool:
        """Whether the thread has a checkpoint and has not expired."""
        return self.exists and (self.expires_at is None or self.expires_at > now)


class Reader:
    """Everything that only reads.

    Args:
        base: The folder of the store, as an absolute path.
        locks: For a reader that writers keep disturbing.
    """

    def __init__(self, base: str, locks: Locks) -> None:
        self.base = base
        self._locks = locks
        self._summaries: dict[str, dict[str, _Summary]] = {}

    def path(self, key: Key) -> str:
        """A thread's folder."""
        return os.path.join(self.base, names.folder(key.tenant), names.folder(key.thread_id))

    def consistent(
        self, key: Key, now: int | None, action: Callable[[View], T], missing: T, *, path: str | None = None
    ) -> T:
        """What an action reads of a thread at one moment, or ``missing`` if there is no thread.

        Args:
            key: The thread.
            now: A thread that has expired by then is missing; None if that does not matter.
            action: Reads, perhaps more than once.
            missing: The answer without a thread.
            path: The thread's folder, if it is known already.
        """
        path = path or self.path(key)

        def attempt() -> tuple[T, bool]:
            try:
                view = View(path, key)
            except FileNotFoundError:
                return missing, True
            answer = missing if now is not None and view.expired(now) else action(view)
            return answer, view.unchanged()

        for i in range(_ATTEMPTS):
            with suppress(FileNotFoundError):  # a file of the listing that is gone: a writer was faster
                answer, valid = attempt()
                if valid:
                    return answer
            time.sleep(0.0002 * i)
        with self._locks.hold(key):
            return attempt()[0]

    # ------------------------------------------------------------------------------------------------------ one thread

    def get(self, key: Key, checkpoint_id: str | None, now: int) -> Stored | None:
        """See `Driver.get`."""

        def action(view: View) -> Stored | None:
            name = view.find(checkpoint_id)
            if name is None:
                return None
            try:
                header, payload = Checkpoint.read(os.path.join(view.path, name))
            except DamagedError as e:
                e.checkpoint_id = view.info(name).checkpoint_id
                raise
            return Stored(
                header.checkpoint_id,
                header.version,
                header.stamp,
                view.epoch,
                header.own_block,
                header.ranges,
                payload,
                view.read_blocks(header.first_block, header.last_block),
            )

        return self.consistent(key, now, action, None)

    def info(self, key: Key, checkpoint_id: str | None, now: int) -> Info | None:
        """See `Driver.info`."""

        def action(view: View) -> Info | None:
            name = view.find(checkpoint_id)
            return None if name is None else view.info(name)

        return self.consistent(key, now, action, None)

    def infos(self, key: Key, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`."""
        return self.consistent(key, now, lambda view: [view.info(n) for n in view.below(before)[:limit]], [])

    def contents(self, key: Key, now: int) -> Contents | None:
        """See `Driver.contents`."""

        def action(view: View) -> Contents | None:
            if not view.exists:
                return None
            rows: list[ContentsRow] = []
            for name in view.checkpoints:
                with suppress(DamagedError):
                    header, payload = Checkpoint.read(os.path.join(view.path, name))
                    rows.append(
                        ContentsRow(header.checkpoint_id, header.version, header.own_block, header.ranges, payload)
                    )
            return Contents(view.times.updated_at, rows, view.read_blocks(1, view.block_count))

        return self.consistent(key, now, action, None)

    def records(self, key: Key, scope: str | None, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""

        def action(view: View) -> list[tuple[str, str, bytes]]:
            wanted = view.records if scope is None else [n for n in view.records if n == names.records(scope)]
            found = [formats.read_records(os.path.join(view.path, name)) for name in wanted]
            return [(s, key, payload) for s, items in sorted(found) for key, payload in items.items()]

        return self.consistent(key, now, action, [])

    # ----------------------------------------------------------------------------------------------------- all threads

    def thread_id(self, folder: os.DirEntry[str]) -> str:
        """The id of the thread in a folder; the folder's name if that was cut and ``thread.json`` is damaged."""
        name = folder.name[2:]
        known = names.decode(name)
        if known is None:
            with suppress(FileNotFoundError, DamagedError, UnknownFormatError):
                known = Thread.load(formats.read(os.path.join(folder.path, names.THREAD_FILE))).thread_id
        return known or name

    def folders(self, tenant: str) -> list[os.DirEntry[str]]:
        """The folders of a tenant's threads."""
        try:
            with os.scandir(os.path.join(self.base, names.folder(tenant))) as entries:
                return [e for e in entries if e.name.startswith("t-")]
        except FileNotFoundError:
            return []

    def threads(self, tenant: str, pattern: str, now: int) -> list[tuple[str, int]]:
        """All threads that match, last write first, then by id."""
        parsed = patterns.parse(pattern)
        if parsed.literal is not None:
            key = Key(tenant, parsed.literal)
            none: list[tuple[str, int]] = []
            return self.consistent(
                key, now, lambda view: [(key.thread_id, view.times.updated_at)] if view.exists else [], none
            )
        matches = parsed.regex().fullmatch
        before = self._summaries.get(tenant, {})
        after: dict[str, _Summary] = {}
        found: list[tuple[str, int]] = []
        for folder in self.folders(tenant):
            known = names.decode(folder.name[2:])
            if known is not None and not matches(known):
                if folder.name in before:
                    after[folder.name] = before[folder.name]
                continue
            summary = self._summary(tenant, folder, before.get(folder.name), after)
            if summary and summary.lives(now) and (known is not None or matches(summary.thread_id)):
                found.append((summary.thread_id, summary.updated_at))
        self._summaries[tenant] = after
        return sorted(found, key=lambda item: (-item[1], item[0]))

    def _summary(
        self, tenant: str, folder: os.DirEntry[str], known: _Summary | None, keep: dict[str, _Summary]
    ) -> _Summary | None:
        """What there is to know of a thread by its folder; learnt anew if the folder changed."""
        try:
            status = os.stat(folder.path)
        except FileNotFoundError:
            return None
        if known and (known.inode, known.changed) == (status.st_ino, status.st_mtime_ns):
            keep[folder.name] = known
            return known
        settled = time.time_ns() - status.st_mtime_ns > SETTLED
        key = Key(tenant, self.thread_id(folder))
        missing: _Summary | None = None

        def action(view: View) -> _Summary | None:
            return _Summary(status.st_ino, status.st_mtime_ns, key.thread_id, *view.times, view.exists)

        try:
            found = self.consistent(key, None, action, missing, path=folder.path)
        except UnknownFormatError:  # of a newer release: it is listed, though nothing else can be done with it
            return _Summary(0, 0, key.thread_id, status.st_mtime_ns // 1000, None, True)
        if found and settled:
            keep[folder.name] = found
        return found

    def find(
        self,
        tenant: str,
        terms: Sequence[bytes],
        thread_id: str | None,
        newest_only: bool,
        last: int | None,
        now: int,
    ) -> list[Info]:
        """See `Driver.find`; as many as ``last``."""
        wanted = frozenset(terms)

        def action(view: View) -> list[Info]:
            looked_at = view.below(None)[: 1 if newest_only else None]
            return [view.info(n) for n in looked_at if not wanted or wanted <= _terms(view, n)]

        found: list[Info] = []
        threads = [thread_id] if thread_id is not None else [name for name, _ in self.threads(tenant, "*", now)]
        for name in threads:
            if last is not None and len(found) >= last:
                break
            with suppress(UnknownFormatError):
                found += self.consistent(Key(tenant, name), now, action, [])
        return found


def _terms(view: View, name: str) -> frozenset[bytes]:
    try:
        return view.header(name).terms
    except (DamagedError, UnknownFormatError):
        return frozenset()

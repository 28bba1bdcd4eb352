"""Copying a thread: the copy is built out of sight, then its folder is put in place."""

from __future__ import annotations

import os

from locus_store.backends.file import formats, names
from locus_store.backends.file.folder import View
from locus_store.backends.file.formats import Checkpoint, Thread
from locus_store.backends.file.names import THREAD_FILE, Block
from locus_store.backends.file.removing import Folders, meets
from locus_store.core import frames, payloads
from locus_store.core.driver import Key
from locus_store.core.frames import Codec, ThreadName
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, Range, References


class Copy:
    """One copy of a thread.

    Args:
        folders: Where threads are.
        source: What is copied; its lock is held.
        dest: The thread that the copy is to be; its lock is held.
    """

    def __init__(self, folders: Folders, source: View, dest: Key) -> None:
        self._folders = folders
        self._disk = folders.disk
        self._codec = folders.codec
        self._source = source
        self._names = ThreadName(*source.key), ThreadName(*dest)
        self._dest = dest

    def make(self, path: str, checkpoints: list[str], updated_at: int) -> None:
        """Put a copy with some of the checkpoints, oldest first, at a path."""
        source = self._source
        with self._disk.folder_out_of_sight() as built:
            for name in checkpoints:
                self._checkpoint(name, os.path.join(built, name))
            whole = len(checkpoints) == len(source.checkpoints)
            blocks = [self._block(b, payload, built) for b, payload in self._blocks(checkpoints, whole=whole)]
            for name in source.records:
                self._records(name, os.path.join(built, name))
            thread = Thread(
                *self._dest,
                new_epoch(),
                version=names.version_of(checkpoints[-1]),
                block_count=max(blocks, default=0),
                updated_at=updated_at,
                expires_at=source.times.expires_at,
            )
            self._disk.write_into(os.path.join(built, THREAD_FILE), thread.dump(pretty=self._folders.pretty))
            self._disk.install(built, path)

    def _checkpoint(self, name: str, to: str) -> None:
        path = os.path.join(self._source.path, name)
        if self._bound is None:
            self._disk.write_into(to, formats.read(path))
        else:
            header, payload = Checkpoint.read(path)
            payload = frames.rebind_one(payload, self._bound, *self._names)
            self._disk.write_into(to, header.dump(len(payload), pretty=self._folders.pretty), payload)

    def _blocks(self, checkpoints: list[str], *, whole: bool) -> list[tuple[Block, bytes]]:
        """The blocks that are copied, without what only later checkpoints refer to."""
        source = self._source
        known = [source.references(n) for n in checkpoints]
        used = EntrySet.of([r for r in known if r is not None])
        runs = used.blocks()
        found: list[tuple[Block, bytes]] = []
        for block in source.listing.blocks:
            if not meets(block, runs) and not (whole and None in known):
                continue
            payload = formats.read(os.path.join(source.path, block.name))
            if not whole:
                unused = _everything(payload, self._codec, self._names[0]).minus(used)
                left = payloads.strip(payload, unused, self._codec, self._names[0])
                if left is None:
                    continue
                payload = left
                block = Block(block.first, max(payloads.numbers([payload], self._codec, self._names[0])))
            found.append((block, payload))
        return found

    def _block(self, block: Block, payload: bytes, built: str) -> int:
        if self._bound is not None:
            payload = payloads.rebind(payload, self._bound, *self._names)
        self._disk.write_into(os.path.join(built, block.name), payload)
        return block.last

    def _records(self, name: str, to: str) -> None:
        path = os.path.join(self._source.path, name)
        if self._bound is None:
            self._disk.write_into(to, formats.read(path))
        else:
            scope, items = formats.read_records(path)
            items = {key: frames.rebind_one(payload, self._bound, *self._names) for key, payload in items.items()}
            self._disk.write_into(to, formats.dump_records(scope, items, pretty=self._folders.pretty))

    @property
    def _bound(self) -> Codec | None:
        """The codec, if what it made for one thread cannot be read for another."""
        return self._codec if self._codec is not None and self._codec.bound else None


def _everything(payload: bytes, codec: Codec | None, name: ThreadName) -> EntrySet:
    """All entries of a block."""
    return EntrySet.of(
        [
            References({number: [Range(f.number, f.number)] for number, _ in f.counts})
            for f in payloads.read(payload, codec, name)
        ]
    )

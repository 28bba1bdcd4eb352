"""Saving and loading documents: planning over a driver's primitives."""

from __future__ import annotations

from typing import Any

from locus_store.core import ids
from locus_store.core.driver import Conflict, Driver, Exists, IfExists, Key, NoParent, Plan, Saved, Stale
from locus_store.core.entries import Planned, plan
from locus_store.core.errors import (
    CheckpointExistsError,
    CheckpointNotFoundError,
    ConflictError,
    CorruptCheckpointError,
    UnsupportedFormatError,
)
from locus_store.core.frames import DamagedError, ThreadName, UnknownFormatError
from locus_store.core.known import Known, from_loaded
from locus_store.core.ledger import Ledger
from locus_store.core.loading import Loaded
from locus_store.core.metadata import Metadata, encode_metadata, terms
from locus_store.core.options import Options, check_count, check_optional_id
from locus_store.core.texts import texts_of_plan

READ_FIRST = 64 * 1024
"""A save of an unknown thread that would store more bytes than this first reads what is stored."""


class Documents:
    """Saves and loads documents; what both faces of a store are built on.

    Args:
        driver: How it is stored.
        options: What the store was set up with.
        ledger: What this process remembers of threads.
    """

    def __init__(self, driver: Driver, options: Options, ledger: Ledger) -> None:
        self._driver = driver
        self._options = options
        self._ledger = ledger

    async def _save_document(
        self,
        thread_id: str,
        document: dict[Any, Any],
        checkpoint_id: str | None,
        metadata: Metadata | None,
        expected_version: int | None,
        if_exists: IfExists,
        parent: str | None,
    ) -> str:
        key = self._key(thread_id)
        if expected_version is not None:
            check_count(expected_version, "expected_version", 0)
        if if_exists not in ("newest", "in_place", "error"):
            raise ValueError(f"if_exists must be 'newest', 'in_place' or 'error', got {if_exists!r}")
        new_id = ids.new_checkpoint_id() if checkpoint_id is None else ids.check_checkpoint_id(checkpoint_id)
        text = encode_metadata(metadata)
        found = terms(key.tenant, metadata) if metadata else ()
        # A driver that is not incremental stores whole documents: nothing to build on, nothing to remember.
        incremental = self._driver.capabilities.incremental
        hints = self._remembered(key) if incremental else []
        planned = plan(document, hints, self._options.codec, ThreadName(*key))
        if incremental and not hints and planned.block is not None and len(planned.block) > READ_FIRST:
            known = await self._read_head(key)
            planned = planned if known is None else planned.again(known)
        read_again = False
        stamp = ids.new_stamp()
        while True:
            now = self._options.clock()
            result = await self._driver.put(
                key,
                Plan(
                    checkpoint_id=new_id,
                    fresh_id=checkpoint_id is None,
                    stamp=stamp,
                    parent=check_optional_id(parent, "parent"),
                    base=planned.base,
                    expected_version=expected_version,
                    if_exists=if_exists,
                    block=planned.block,
                    low=planned.low,
                    high=planned.high,
                    ranges=planned.ranges,
                    payload=planned.payload,
                    metadata=text,
                    terms=found,
                    size=len(planned.block or b"") + len(planned.payload) + len(planned.ranges) + len(text or b""),
                    now=now,
                    expires_at=self._expires_at(now),
                    keep=self._options.keep_checkpoints,
                    texts=self._texts(planned, ThreadName(*key)),
                ),
            )
            match result:
                case Saved(version, epoch, block):
                    if incremental:
                        self._ledger.put(key, planned.learn(version, stamp, epoch, block))
                    return new_id
                case Stale():
                    self._ledger.forget(key)
                    # What was believed is wrong: plan on what is stored; if that changes too, reuse nothing.
                    planned = planned.again(None if read_again else await self._read_head(key))
                    read_again = True
                case Conflict(actual):
                    raise ConflictError(thread_id, expected_version or 0, actual)
                case Exists():
                    raise CheckpointExistsError(thread_id, new_id, "the id is in use; if_exists='newest' replaces it")
                case NoParent():
                    raise CheckpointNotFoundError(thread_id, parent, "it was named as the parent and is not there")

    def _texts(self, planned: Planned, thread: ThreadName) -> tuple[str, ...]:
        if not self._driver.indexes_texts:
            return ()
        return texts_of_plan(planned.block, planned.payload, self._options.codec, thread)

    def _remembered(self, key: Key) -> list[Known]:
        try:
            return self._ledger.get(key)
        except (DamagedError, UnknownFormatError):
            self._ledger.forget(key)
            return []

    async def _read_head(self, key: Key) -> Known | None:
        """What the newest checkpoint is made of, to plan on; None if there is none or it is damaged."""
        try:
            stored = await self._driver.get(key, None, now=self._options.clock())
            if stored is None:
                return None
            return from_loaded(Loaded(stored, self._options.codec, ThreadName(*key)), contents=False)
        except (DamagedError, UnknownFormatError):
            return None

    async def _load_document(self, thread_id: str, checkpoint_id: str | None) -> tuple[str, dict[Any, Any]] | None:
        key = self._key(thread_id)
        wanted = check_optional_id(checkpoint_id)
        try:
            stored = await self._driver.get(key, wanted, now=self._options.clock())
            if stored is None:
                return None
            wanted = stored.checkpoint_id
            loaded = Loaded(stored, self._options.codec, ThreadName(*key))
            document = loaded.document()
        except DamagedError as e:
            self._ledger.forget(key)  # the next save must not build on what cannot be read
            raise CorruptCheckpointError(thread_id, e.checkpoint_id or wanted, f"what is stored is damaged: {e}") from e
        except UnknownFormatError as e:
            raise UnsupportedFormatError(thread_id, wanted, str(e)) from e
        if self._driver.capabilities.incremental:
            self._ledger.put(key, loaded)
        return wanted, document

    def _key(self, thread_id: str) -> Key:
        return Key(self._options.tenant, ids.check_thread_id(thread_id))

    def _expires_at(self, now: int) -> int | None:
        ttl = self._options.ttl_seconds
        return None if ttl is None else now + int(ttl * 1_000_000)

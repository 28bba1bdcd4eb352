"""What tests do to the objects of a store behind its back, whatever bucket they lie in."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from locus_store.backends.objects import formats, names
from locus_store.backends.objects.formats import Checkpoint, Record

_IN_THREAD = re.compile(rf"(?P<thread>{re.escape(names.OURS)}/[^/]+/d/[^/]+)/(?P<kind>[vwxir])/")
_MARKER = re.compile(r"(?P<tenant>.+)/m/\d{20}(?P<rest>\.\d+\.(?P<mark>[^.]+)\.(?P<thread>.+))")
_TOKEN = re.compile(r"(?<=[/xw])\d{20}(?=-[0-9a-f]{16})")


class BucketContents(ABC):
    """The half of a `backends.Place` that looks at objects; the other half knows where they are.

    Keys are without the store's prefix.
    """

    @abstractmethod
    def objects(self) -> dict[str, bytes]:
        """All objects of the store."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write an object."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Delete an object."""

    def connections(self, state: str = "%") -> int:
        """None: a bucket knows no sessions, and nothing is left open in it between two requests."""
        return 0

    def replace(self, objects: dict[str, bytes]) -> None:
        """Put these in the place of all objects of the store."""
        now = self.objects()
        for key in now.keys() - objects.keys():
            self.remove(key)
        for key, data in objects.items():
            if now.get(key) != data:
                self.put(key, data)

    def count(self) -> int:
        return len(self.objects())

    def size(self) -> int:
        total = 0
        for record, checkpoint in self._checkpoints().values():
            total += len(record.body or b"") + len(checkpoint.ranges) + len(checkpoint.metadata or b"")
        return total

    def damage(
        self, checkpoint_id: str, change: Callable[[bytes], bytes], what: Literal["payload", "block"] = "payload"
    ) -> None:
        key, record, checkpoint = self._find(checkpoint_id)
        payload, blocks = record.document()
        if what == "payload":
            payload = change(payload)
        else:
            blocks = [change(blocks[0])]
        self.put(key, Record.pack(checkpoint, record.state, payload, b"".join(blocks)).dump())

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        payload, blocks = self._find(checkpoint_id)[1].document()
        return [payload, *blocks]

    def _find(self, checkpoint_id: str) -> tuple[str, Record, Checkpoint]:
        for key, (record, checkpoint) in self._checkpoints().items():
            if checkpoint.checkpoint_id == checkpoint_id:
                return key, record, checkpoint
        raise LookupError(checkpoint_id)

    def _checkpoints(self) -> dict[str, tuple[Record, Checkpoint]]:
        """What each object holds that has a checkpoint, by key."""
        found = {}
        for key, data in self.objects().items():
            match = _IN_THREAD.match(key)
            if match is not None and match["kind"] in "vwx":
                record = formats.load(data, whole=True)
                if record.checkpoint is not None:
                    found[key] = record, record.checkpoint
        return found

    def back_up(self) -> Callable[[], None]:
        kept = self.objects()
        return lambda: self.replace(kept)

    def grow_old(self) -> None:
        """Names carry the time at which they were drawn, and what points at a checkpoint to come holds it.

        What belongs to a thread as it is keeps its name.
        """
        objects = self.objects()
        newest: dict[str, Record] = {}
        for key in sorted(objects, reverse=True):
            match = _IN_THREAD.match(key)
            if match is not None and match["kind"] == "v":
                newest[match["thread"]] = formats.load(objects[key], whole=False)
        aged = {}
        for key, data in objects.items():
            match, marker = _IN_THREAD.match(key), _MARKER.fullmatch(key)
            if match is not None:
                state = newest[match["thread"]].state if match["thread"] in newest else None
                kept = () if state is None else (state.life, state.part, *state.swaps.values())
                if not any(name is not None and name in key for name in kept):
                    key = _TOKEN.sub("0" * 20, key)
                if match["kind"] == "i":
                    data = b"1"
            elif marker is not None:
                found = newest.get(f"{marker['tenant']}/d/{marker['thread']}")
                if found is None or found.state.mark != marker["mark"]:
                    key = f"{marker['tenant']}/m/{'9' * 20}{marker['rest']}"
            elif key.startswith(names.probes("")):
                key = _TOKEN.sub("0" * 20, key)
            aged[key] = data
        self.replace(aged)

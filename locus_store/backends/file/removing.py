"""Taking checkpoints out of a thread, and what only they used; and finishing what a process that died began.

The order of the steps makes a removal one step for everybody else: ``thread.json`` hides the checkpoints, with a new
epoch if entries go; then blocks are rewritten or removed; then the checkpoints' files go. A writer that finds hidden
files goes on from there.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from locus_store.backends.file import formats
from locus_store.backends.file.disk import Disk
from locus_store.backends.file.folder import View
from locus_store.backends.file.formats import Thread
from locus_store.backends.file.names import THREAD_FILE, Block
from locus_store.core import payloads
from locus_store.core.frames import Codec, DamagedError, ThreadName
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, References, unreferenced


@dataclass
class Removal:
    """What is to go.

    Attributes:
        files: Files of checkpoints and records.
        blocks: Blocks with what is left of them, None for nothing.
    """

    files: list[str]
    blocks: list[tuple[Block, bytes | None]] = field(default_factory=list)


class Folders:
    """Changes of threads' folders. All of it wants the thread's lock to be held.

    Args:
        disk: Where they are.
        codec: What the frames went through.
        pretty: Whether headers are indented.
    """

    def __init__(self, disk: Disk, codec: Codec | None, *, pretty: bool) -> None:
        self.disk = disk
        self.codec = codec
        self.pretty = pretty

    def write_thread(self, path: str, thread: Thread) -> None:
        """Replace ``thread.json``."""
        self.disk.write(os.path.join(path, THREAD_FILE), thread.dump(pretty=self.pretty))

    def current(self, view: View) -> Thread:
        """What ``thread.json`` says if it is written now."""
        return Thread(*view.key, view.epoch or new_epoch(), view.version, view.block_count, *view.times)

    def settled(self, view: View) -> View:
        """The view, after finishing what a process that died began in the folder."""
        thread = view.thread
        loose = [References.parse(*thread.loose)] if thread and thread.loose else []
        if thread and not (view.pending or view.hidden or loose):
            return view
        if view.hidden or loose:
            removal = self.plan(view, view.hidden, loose=loose)
            self.hide(view.path, replace(self.current(view), loose=thread.loose if thread else None), removal)
            self.remove(view, removal)
        self.write_thread(view.path, self.current(View(view.path, view.key, locked=True)))
        self.disk.sync(view.path)
        return View(view.path, view.key, locked=True)

    def plan(
        self,
        view: View,
        files: Iterable[str],
        *,
        new: References | None = None,
        replaced: str | None = None,
        loose: Sequence[References] = (),
    ) -> Removal:
        """Find out what goes with some checkpoints.

        Args:
            view: The thread.
            files: The files that go.
            new: What a checkpoint refers to that is about to be added.
            replaced: The file of a checkpoint that the new one replaces in place.
            loose: What else is not referred to any more, unless a checkpoint that stays does so.
        """
        removal = Removal(list(files))
        going = {*removal.files, replaced}
        checkpoints = [n for n in view.listing.checkpoints if n in going]
        known = [view.references(n) for n in checkpoints]
        dropped = [r for r in known if r is not None] + list(loose)
        if not checkpoints and not dropped:
            return removal
        damaged = None in known
        kept = [n for n in view.checkpoints if n not in going]
        close_by = [view.references(n) for n in _neighbours(kept, checkpoints)] if not loose else []
        if close_by and not damaged and not unreferenced(dropped, _those(*close_by, new)):
            return removal
        stay = [view.references(n) for n in kept]
        if None in stay:
            return removal  # which blocks the damaged one needs cannot be told, so all of them stay
        lost = unreferenced(dropped, _those(*stay, new))
        if lost or damaged:
            removal.blocks = self._changes(view, lost, EntrySet.of(_those(*stay, new)))
        return removal

    def _changes(self, view: View, lost: EntrySet, used: EntrySet) -> list[tuple[Block, bytes | None]]:
        changes: list[tuple[Block, bytes | None]] = []
        used_runs, lost_runs = used.blocks(), lost.blocks()
        for block in view.listing.blocks:
            if not meets(block, used_runs):
                changes.append((block, None))
            elif meets(block, lost_runs):
                payload = formats.read(os.path.join(view.path, block.name))
                try:
                    left = payloads.strip(payload, lost, self.codec, ThreadName(*view.key))
                except DamagedError:
                    continue
                if left is not payload:
                    changes.append((block, left))
        return changes

    def unused(self, view: View) -> Removal:
        """Blocks that no checkpoint refers to: a process died between writing one and its checkpoint."""
        stay = [view.references(n) for n in view.checkpoints]
        removal = Removal([])
        if None not in stay:
            runs = EntrySet.of(_those(*stay)).blocks()
            removal.blocks = [(b, None) for b in view.listing.blocks if not meets(b, runs)]
        return removal

    def hide(self, path: str, thread: Thread, removal: Removal) -> int:
        """The step by which files are gone for everybody; returns the epoch from then on."""
        thread = replace(thread, hidden=tuple(removal.files), epoch=new_epoch() if removal.blocks else thread.epoch)
        self.write_thread(path, thread)
        self.disk.sync(path)
        return thread.epoch

    def remove(self, view: View, removal: Removal, *, sync: bool = True) -> None:
        """Remove for good what is hidden."""
        for block in view.listing.joined:
            self.disk.unlink(os.path.join(view.path, block.name))
        for block, left in removal.blocks:
            path = os.path.join(view.path, block.name)
            if left is None:
                self.disk.unlink(path)
            else:
                self.disk.write(path, left)
        for name in removal.files:
            self.disk.unlink(os.path.join(view.path, name))
        if sync:
            self.disk.sync(view.path)


def _those(*references: References | None) -> list[References]:
    return [r for r in references if r is not None]


def _neighbours(kept: list[str], going: list[str]) -> list[str]:
    """The next older and the next newer checkpoint of each that goes: as a rule they cover what it refers to."""
    found: set[str] = set()
    for name in going:
        at = bisect_right(kept, name)
        found.update(kept[max(0, at - 1) : at + 1])
    return sorted(found)


def meets(block: Block, runs: list[tuple[int, int]]) -> bool:
    """Whether a block has a number in common with some ascending, disjoint runs of numbers."""
    at = bisect_right(runs, block.last, key=lambda run: run[0])
    return at > 0 and runs[at - 1][1] >= block.first

"""Adding a checkpoint to a thread.

A plain save writes two files, its block and its checkpoint, and the second one's name is what makes it visible. A save
that also removes something (it replaces a checkpoint, or only the newest few are kept) says so in ``thread.json``
before.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from locus_store.backends.file import formats, names
from locus_store.backends.file.folder import View
from locus_store.backends.file.formats import Checkpoint
from locus_store.backends.file.names import Block
from locus_store.backends.file.removing import Folders, Removal, meets
from locus_store.core import frames, payloads
from locus_store.core.driver import Base, Conflict, Exists, Key, NoParent, Plan, PutResult, Saved, Stale
from locus_store.core.frames import DamagedError, UnknownFormatError
from locus_store.core.references import EntrySet

_SEAL_EVERY = 50
_SEAL_REACH = 64
_SEAL_LEAST = 10
_SMALL = 64 * 1024
_SEALED = 1024 * 1024


def put(folders: Folders, path: str, key: Key, view: View | None, plan: Plan) -> tuple[PutResult, View | None]:
    """Save into a thread whose lock is held.

    Args:
        folders: Where threads are.
        path: The thread's folder.
        key: The thread.
        view: What is in the folder, settled; None if there is no thread.
        plan: What to save.

    Returns:
        The answer, and the view as it is afterwards; None if it does not hold any more.
    """
    old = view.find(plan.checkpoint_id) if view else None
    header = _header(view, old)
    if view and old and header and header.stamp == plan.stamp:
        return Saved(header.version, view.epoch, header.own_block), view
    head = view.head if view else None
    actual = names.version_of(head) if head else 0
    if plan.expected_version not in (None, actual):
        return Conflict(actual), view
    if old and plan.if_exists == "error":
        return Exists(), view
    parent = head if plan.parent is None or view is None else view.find(plan.parent)
    if plan.parent is not None and parent is None:
        return NoParent(), view
    if plan.base is not None and not _is_there(view, plan.base):
        return Stale(), view
    if view is None:
        view = create(folders, path, key)
    in_place = old if plan.if_exists == "in_place" else None
    own = view.block_count + 1 if plan.block is not None else 0
    updated_at = max(plan.now, view.times.updated_at + 1)
    new = Checkpoint.of(
        plan,
        version=names.version_of(in_place) if in_place else view.version + 1,
        parent=_parent(header, parent, old, in_place=bool(in_place)),
        created_at=_created_at(view, in_place, updated_at) if in_place else updated_at,
        updated_at=updated_at,
        own_block=own,
    )
    return _write(folders, view, plan, new, old, in_place)


def create(folders: Folders, path: str, key: Key) -> View:
    """Make a thread's folder, in which nothing is yet."""
    folders.disk.make_folder(path)
    view = View(path, key, locked=True)
    folders.write_thread(path, folders.current(view))
    return View(path, key, locked=True)


def _header(view: View | None, name: str | None) -> Checkpoint | None:
    """The header of a checkpoint, or None if it is damaged or not there."""
    if view is None or name is None:
        return None
    try:
        return view.header(name)
    except (DamagedError, UnknownFormatError):
        return None


def _is_there(view: View | None, base: Base) -> bool:
    header = _header(view, view.at(base.version)) if view else None
    return view is not None and header is not None and (header.stamp, view.epoch) == (base.stamp, base.epoch)


def _parent(header: Checkpoint | None, parent: str | None, old: str | None, *, in_place: bool) -> int | None:
    if in_place or (parent and parent == old):
        return header.parent if header else None
    return names.version_of(parent) if parent else None


def _created_at(view: View, in_place: str, updated_at: int) -> int:
    return min(view.info(in_place).created_at, updated_at)


def _write(
    folders: Folders, view: View, plan: Plan, new: Checkpoint, old: str | None, in_place: str | None
) -> tuple[Saved, View | None]:
    disk, path = folders.disk, view.path
    name = in_place or names.checkpoint(new.version, new.checkpoint_id)
    files = [] if in_place or old is None else [old]
    if plan.keep is not None:
        newest_last = [n for n in view.checkpoints if n not in files] + ([] if in_place else [name])
        files += [n for n in newest_last[: -plan.keep] if n != name]
    removal = Removal([])
    if files or in_place:
        removal = folders.plan(view, files, new=new.references(), replaced=in_place)

    thread = folders.current(view)
    after = replace(
        thread,
        version=max(view.version, new.version),
        block_count=max(view.block_count, new.own_block),
        updated_at=new.updated_at,
        expires_at=new.expires_at,
    )
    if plan.block is not None:
        block = Block(new.own_block, new.own_block)
        disk.write(os.path.join(path, block.name), frames.numbered(new.own_block, plan.block))
    if in_place:
        # A reader that sees this sees the block as well when it lists the folder after it, which the new content needs.
        if removal.blocks and (before := _header(view, in_place)):
            after = replace(after, loose=(before.own_block, before.ranges))
        folders.write_thread(path, after)
    elif files:
        folders.write_thread(path, replace(thread, hidden=tuple(files), when=name))
    # One wait for both names: file systems keep the order of renames in one folder.
    disk.write(os.path.join(path, name), new.dump(len(plan.payload), pretty=folders.pretty), plan.payload)
    disk.sync(path)

    epoch = thread.epoch
    seals = new.version % _SEAL_EVERY == 0
    if not (files or in_place or seals):
        view.add(name, new)
        return Saved(new.version, epoch, new.own_block), view
    # The save is done. What cannot be cleaned up now is hidden, and the next writer cleans it up.
    with suppress(OSError):
        if removal.blocks or (in_place and files):
            epoch = folders.hide(path, after, removal)
        if removal.blocks or files:
            folders.remove(view, removal, sync=False)
        if after.loose:
            folders.write_thread(path, replace(after, loose=None, epoch=epoch))
        if seals and not in_place:
            _seal(folders, path, view.key, new)
    return Saved(new.version, epoch, new.own_block), None


def _seal(folders: Folders, path: str, key: Key, new: Checkpoint) -> None:
    """Join runs of small blocks that the newest checkpoint refers to, so that none is among them that nothing does."""
    view = View(path, key, locked=True)
    used = EntrySet.of([new.references()]).blocks()
    run: list[tuple[Block, bytes]] = []
    for block in view.blocks(view.block_count - _SEAL_REACH, view.block_count):
        wanted = block.first == block.last and meets(block, used) and _size(path, block) < _SMALL
        payload = formats.read(os.path.join(path, block.name)) if wanted else None
        if payload is None or sum(len(p) for _, p in run) + len(payload) > _SEALED:
            _join(folders, path, run)
            run = []
        if payload is not None:
            run.append((block, payload))
    _join(folders, path, run)


def _size(path: str, block: Block) -> int:
    return os.stat(os.path.join(path, block.name)).st_size


def _join(folders: Folders, path: str, run: list[tuple[Block, bytes]]) -> None:
    if len(run) < _SEAL_LEAST:
        return
    try:
        whole = payloads.join([payload for _, payload in run])
    except (DamagedError, UnknownFormatError):
        return  # each stays by itself, so that what is wrong with one is not wrong with all
    joined = Block(run[0][0].first, run[-1][0].last)
    folders.disk.write(os.path.join(path, joined.name), whole)
    folders.disk.sync(path)
    for block, _ in run:
        folders.disk.unlink(os.path.join(path, block.name))

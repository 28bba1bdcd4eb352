"""The file driver's process dies at every single step of every operation that writes.

The module `disk` makes all changes. Here its functions count down, and from one of them on nothing changes the disk any
more, which is what a process that dies leaves behind. Then another driver must find the state from before or the one
from after, and go on from it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import servers
from drivers.plans import KEY, base_of, document, make_plan, ranges_of

from locus_store.backends.file import FileDriver, disk
from locus_store.core import payloads
from locus_store.core.driver import Key, Saved
from locus_store.core.frames import PLAIN, ThreadName

U = Key("default", "u")
NOW = 1_800_000_000_000_000
CHANGES = {"open", "write", "replace", "rename", "mkdir", "unlink", "rmdir", "rmtree"}

Step = Callable[[FileDriver], Coroutine[Any, Any, Any]]


class Died(BaseException):
    """The process ends here."""


class Dying:
    """Stands for a module: its functions that change the disk work so many times, and then never again."""

    def __init__(self, module: Any, life: list[int]) -> None:
        self._module, self._life = module, life

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        if name not in CHANGES:
            return function

        def change(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return function(*args, **kwargs)
            self._life[0] -= 1
            if self._life[0] < 0:
                raise Died
            if name == "write" and self._life[0] == 0:
                args = args[0], args[1][: len(args[1]) // 2]  # and half of the last one
            return function(*args, **kwargs)

        return change


async def grow(driver: FileDriver, *ids: str, key: Key = KEY, now: int = NOW, **options: Any) -> None:
    for checkpoint_id in ids:
        for _ in range(2):  # finishing what was begun may change the epoch
            before = await driver.get(key, None, now=now)
            plan = make_plan(
                checkpoint_id,
                {1: [f'"{checkpoint_id}"', f'"{checkpoint_id} too"']},
                ranges_of(before) if before else {},
                base=base_of(before) if before else None,
                key=key,
                now=now,
                **options,
            )
            result = await driver.put(key, plan)
            if isinstance(result, Saved):
                break
        assert isinstance(result, Saved)


async def replace(driver: FileDriver, checkpoint_id: str, **options: Any) -> None:
    """Save under an id in use what refers to a half of what was there, and something new."""
    before = await driver.get(KEY, checkpoint_id, now=NOW)
    assert before is not None
    r = ranges_of(before)[1][0]
    reused = {1: [r._replace(end=1)]}
    plan = make_plan(checkpoint_id, {1: ['"new"']}, reused, base=base_of(before), now=NOW + 5, **options)
    assert isinstance(await driver.put(KEY, plan), Saved)


async def records(driver: FileDriver, *scopes: str, key: Key = KEY, **options: Any) -> None:
    options = {"keep": False, "now": NOW, "expires_at": None} | options
    for scope in scopes:
        await driver.put_records(key, scope, [("k", scope.encode()), (f"l{options['now']}", b"2")], **options)


async def four(driver: FileDriver) -> None:
    await grow(driver, "c1", "c2", "c3", "c4")
    await records(driver, "s1", "s2")


async def four_and_two(driver: FileDriver) -> None:
    await four(driver)
    await grow(driver, "d1", "d2", key=U)
    await records(driver, "x", key=U)


async def forty_nine(driver: FileDriver) -> None:
    await grow(driver, *[f"c{i}" for i in range(1, 50)])


async def shared_in_part(driver: FileDriver) -> None:
    await grow(driver, "c1")
    before = await driver.get(KEY, None, now=NOW)
    assert before is not None
    r = ranges_of(before)[1][0]
    reused = {1: [r._replace(skip=1)]}
    assert isinstance(await driver.put(KEY, make_plan("c2", {1: ['"z"']}, reused, base=base_of(before))), Saved)
    await grow(driver, "c3")


async def expired(driver: FileDriver) -> None:
    await grow(driver, "old1", "old2", now=1000, expires_at=2000)


async def nothing(driver: FileDriver) -> None:
    pass


SCENARIOS: dict[str, tuple[Step, Step]] = {
    "the first save": (nothing, lambda d: grow(d, "c1")),
    "a save": (four, lambda d: grow(d, "c5")),
    "a save without a block": (four, lambda d: d.put(KEY, make_plan("c5", now=NOW))),
    "a save that seals": (forty_nine, lambda d: grow(d, "c50")),
    "a save that replaces the head": (four, lambda d: replace(d, "c4")),
    "a save that replaces a middle one": (four, lambda d: replace(d, "c2")),
    "a save that replaces and frees a part": (shared_in_part, lambda d: replace(d, "c1")),
    "a save in place": (four, lambda d: replace(d, "c4", if_exists="in_place")),
    "a save in place that frees a part": (shared_in_part, lambda d: replace(d, "c1", if_exists="in_place")),
    "a save that keeps two": (four, lambda d: grow(d, "c5", keep=2)),
    "a save that keeps itself": (four, lambda d: d.put(KEY, make_plan("c5", {1: ['"n"']}, now=NOW, keep=1))),
    "a save that replaces and keeps two": (four, lambda d: replace(d, "c2", keep=2)),
    "a save after the thread expired": (expired, lambda d: grow(d, "c1")),
    "removing the newest": (four, lambda d: d.drop(KEY, ["c4", "c3"], now=NOW)),
    "removing from the middle": (four, lambda d: d.drop(KEY, ["c2", "c3"], now=NOW)),
    "removing with a part of a block": (shared_in_part, lambda d: d.drop(KEY, ["c1"], now=NOW)),
    "removing from a sealed block": (
        lambda d: grow(d, *[f"c{i}" for i in range(1, 51)]),
        lambda d: d.drop(KEY, [f"c{i}" for i in range(20, 51)], now=NOW),
    ),
    "removing a thread": (four, lambda d: d.drop(KEY, None, now=NOW)),
    "trimming": (four, lambda d: d.trim("default", older_than=NOW * 2, keep_last=1, now=NOW)),
    "copying": (four, lambda d: d.clone(KEY, U, upto=None, overwrite=False, now=NOW)),
    "copying a part": (four, lambda d: d.clone(KEY, U, upto=2, overwrite=False, now=NOW)),
    "copying over another": (four_and_two, lambda d: d.clone(KEY, U, upto=None, overwrite=True, now=NOW)),
    "the first records": (nothing, lambda d: records(d, "s1")),
    "records": (four, lambda d: records(d, "s1", keep=True, now=NOW + 1, expires_at=NOW * 2)),
    "removing records": (four, lambda d: d.drop_records(KEY, "s1", now=NOW)),
    "removing all records": (four, lambda d: d.drop_records(KEY, None, now=NOW)),
}


async def state(folder: Path) -> Any:
    """All there is to see, the times of threads left out: a save in place moves them before it is there."""
    driver = FileDriver(folder)
    out: dict[Any, Any] = {}
    for key in (KEY, U):
        infos = await driver.infos(key, before=None, limit=None, now=NOW)
        shown = []
        for info in infos:
            stored = await driver.get(key, info.checkpoint_id, now=NOW)
            parts = (info.checkpoint_id, info.version, info.parent, info.created_at, info.metadata, info.size)
            shown.append((parts, document(stored, key)))
        out[key] = shown, await driver.records(key, None, now=NOW)
    threads = await driver.threads("default", "*", limit=None, offset=0, now=NOW)
    assert {name for name, _ in threads} == {key.thread_id for key in (KEY, U) if out[key][0]}
    await driver.aclose()
    return out


async def lines_on_disk(folder: Path, key: Key) -> set[str]:
    """The lines in all of a thread's files of blocks."""
    found: set[str] = set()
    for path in folder.glob(f"t-{key.tenant}/t-{key.thread_id}/b*"):
        for frame in payloads.read(path.read_bytes(), None, ThreadName(*key)):
            found |= {e.data.decode() for e in frame.entries() if e.kind == PLAIN}
    return found


@pytest.mark.parametrize("name", SCENARIOS)
async def test_dying_at_each_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers.note_ran("file")
    prepare, step = SCENARIOS[name]

    async def run(folder: Path, life: int) -> bool:
        """Whether the step was done before its process died."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "template", folder)
        driver = FileDriver(folder, fsync=False)
        with monkeypatch.context() as patch:
            left = [life]
            patch.setattr(disk, "os", Dying(os, left))
            patch.setattr(disk, "shutil", Dying(shutil, left))
            exchange = disk._exchange

            def dying_exchange(a: str, b: str) -> bool:
                left[0] -= 1
                if left[0] < 0:
                    raise Died
                return exchange(a, b)

            patch.setattr(disk, "_exchange", dying_exchange)
            try:
                await step(driver)
            except Died:
                return False
            finally:
                await driver.aclose()
        return True

    template = FileDriver(tmp_path / "template", fsync=False)
    await template.prepare()
    await prepare(template)
    await template.aclose()
    before = await state(tmp_path / "template")
    assert await run(tmp_path / "done", 10**9)
    after = await state(tmp_path / "done")
    assert (before == after) == (name == "nothing")

    seen = []
    for life in range(1000):
        folder = tmp_path / "store"
        finished = await run(folder, life)
        found = await state(folder)
        assert found in ((after,) if finished else (before, after)), f"after {life} changes"
        seen.append(found == after)
        assert seen == sorted(seen), "it was there, and is not any more"

        driver = FileDriver(folder, fsync=False)
        for key in (KEY, U):
            if found[key][0]:
                await grow(driver, "next", key=key)
                [(_, now_there), *rest] = (await state(folder))[key][0]
                assert now_there[1] == [*found[key][0][0][1].get(1, []), '"next"', '"next too"']
                assert rest == found[key][0]
        await driver.trim("default", older_than=0, keep_last=1, now=NOW)
        for key in (KEY, U):
            infos = await driver.infos(key, before=None, limit=None, now=NOW)
            wanted = {
                line
                for i in infos
                for lines in document(await driver.get(key, i.checkpoint_id, now=NOW), key).values()
                for line in lines
            }
            assert await lines_on_disk(folder, key) == wanted
        left = [p.name for p in (folder / ".tmp").iterdir() if p.name.startswith("trash")]
        assert left == []
        await driver.aclose()
        if finished:
            break
    assert seen[0] is False
    assert len(seen) > 2

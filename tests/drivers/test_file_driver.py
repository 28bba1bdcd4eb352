"""What only the file driver does; the rest is in `test_driver_contract.py`, crashes are in `test_file_crashes.py`."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import servers
from drivers.plans import KEY, base_of, document, grown, lines_stored, make_plan, ranges_of, tick

from locus_store.backends.file import FileDriver, disk, locks
from locus_store.backends.file.names import Block
from locus_store.core.driver import Dropped, Key, Saved, Stale
from locus_store.core.errors import BackendError, StoreBusyError, UnsupportedOperationError
from locus_store.core.frames import DamagedError, UnknownFormatError
from locus_store.core.references import Range

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
THREAD = Path("t-default", "t-t")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    servers.note_ran("file")
    return tmp_path / "store"


@pytest.fixture
async def driver(folder: Path) -> AsyncIterator[FileDriver]:
    driver = FileDriver(folder)
    yield driver
    await driver.aclose()


async def grow(driver: FileDriver, *ids: str, key: Key = KEY, **options: Any) -> None:
    for checkpoint_id in ids:
        before = await driver.get(key, None, now=tick())
        plan = make_plan(
            checkpoint_id,
            {1: lines(checkpoint_id)},
            ranges_of(before) if before else {},
            base=base_of(before) if before else None,
            key=key,
            **options,
        )
        assert isinstance(await driver.put(key, plan), Saved)


async def load(driver: FileDriver, checkpoint_id: str | None = None, key: Key = KEY) -> Any:
    stored = await driver.get(key, checkpoint_id, now=tick())
    return None if stored is None else document(stored, key)[1]


async def ids(driver: FileDriver, key: Key = KEY) -> list[str]:
    return [i.checkpoint_id for i in await driver.infos(key, before=None, limit=None, now=tick())]


async def names(driver: FileDriver, pattern: str = "*", tenant: str = "default") -> list[str]:
    return [n for n, _ in await driver.threads(tenant, pattern, limit=None, offset=0, now=tick())]


def lines(*checkpoint_ids: str) -> list[str]:
    return [json.dumps(i) for i in checkpoint_ids]


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and ".locks" not in p.parts}


# ------------------------------------------------------------------------------------------------------- names on disk

HARD = [
    "../../x",
    "..",
    ".",
    "/abs",
    "C:foo",
    "a\\b",
    "tg:a_b",
    "tg:a:b",
    "tg/a:b",
    "agent:main:1",
    "会" * 100,
    "x" * 250,
    "x" * 249 + "y",
    "Thread",
    "thread",
    "THREAD",
    "\xe9",
    "e\u0301",
    "con",
    "nul.txt",
    "a.",
    "a ",
    "%41",
    "A",
    "~",
    "t-a",
    ".tmp",
    ".locks",
    "thread.json",
    "\x7f\n\t",
    "🙂" * 128,
    "-" * 512,
    "Ab" * 256,
]


async def test_cases_25_to_28_ids(driver: FileDriver, folder: Path) -> None:
    around = set(folder.parent.iterdir())
    for i, name in enumerate(HARD):
        await grow(driver, f"first {i}", name, key=Key("default", name))
    await driver.put(Key("../x", "t"), make_plan("c", key=Key("../x", "t")))
    assert set(folder.parent.iterdir()) - around == {folder}
    assert await names(driver) == HARD[::-1]
    assert await names(FileDriver(folder)) == HARD[::-1]
    for i, name in enumerate(HARD):
        key = Key("default", name)
        assert await ids(driver, key) == [name, f"first {i}"]
        assert await load(driver, name, key) == lines(f"first {i}", name)
        assert await names(driver, name.replace("\\", "\\\\").replace("*", "\\*").replace("%", "\\%")) == [name]
    assert await names(driver, tenant="../x") == ["t"]
    for path in folder.rglob("*"):
        assert len(path.name) <= 200
        assert path.name == path.name.lower()
        assert path.name.isascii()
    assert {p.name for p in folder.iterdir()} == {".tmp", ".locks", "t-default", "t-%2e%2e%2fx"}
    await driver.drop(Key("default", "tg:a:b"), None, now=tick())
    assert await names(driver) == [n for n in HARD[::-1] if n != "tg:a:b"]


async def test_the_parent_of_a_long_id_is_shown(driver: FileDriver) -> None:
    await grow(driver, "x" * 300, "y" * 300)
    newest, _ = await driver.infos(KEY, before=None, limit=None, now=tick())
    assert newest.parent == "x" * 300


@pytest.mark.parametrize("pretty", [False, True])
async def test_a_person_can_read_it(folder: Path, pretty: bool) -> None:
    driver = FileDriver(folder, pretty=pretty)
    await driver.put(KEY, make_plan("first", {1: ['"hello"']}, metadata='{"note":"会"}'.encode(), terms=(b"t" * 16,)))
    assert {p.name for p in (folder / THREAD).iterdir()} == {"thread.json", "c000000000001-first", "b000000000001"}
    text = (folder / THREAD / "c000000000001-first").read_text()
    header, payload = text.split("\n\n" if pretty else "\n", 1)
    fields = json.loads(header)
    assert (fields["checkpoint_id"], fields["version"], fields["metadata"]) == ("first", 1, '{"note":"会"}')
    assert ("\n" in header) == pretty
    assert payload.endswith('"rest of first"\n')
    assert "hello" in (folder / THREAD / "b000000000001").read_text()
    assert json.loads((folder / THREAD / "thread.json").read_text())["thread_id"] == "t"
    stored = await driver.get(KEY, None, now=tick())
    assert document(stored) == {1: ['"hello"']}
    [info] = await driver.infos(KEY, before=None, limit=None, now=tick())
    assert info.metadata == '{"note":"会"}'.encode()
    await driver.aclose()


async def test_any_bytes_in_metadata_and_ranges_come_back(driver: FileDriver) -> None:
    await driver.put(KEY, make_plan("c", metadata=b"\xff\x00\n{"))
    info = await driver.info(KEY, "c", now=tick())
    assert info is not None
    assert info.metadata == b"\xff\x00\n{"


async def test_a_header_longer_than_the_first_read(driver: FileDriver) -> None:
    metadata = json.dumps({"k": "v" * 600_000}).encode()
    await driver.put(KEY, make_plan("c", {1: ['"x"']}, metadata=metadata, terms=(b"t" * 16,)))
    [info] = await driver.find(
        "default", [b"t" * 16], thread_id=None, newest_only=True, limit=None, offset=0, now=tick()
    )
    assert info.metadata == metadata


async def test_foreign_files_are_passed_over(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1")
    for name in ("c", "cat.txt", "b", "bee", "b00000000000x", ".DS_Store", "c000000000009", "notes.md"):
        (folder / THREAD / name).write_text("x")
        (folder / "t-default" / name).write_text("x")
        (folder / name).write_text("x")
    await grow(driver, "c2")
    assert await ids(driver) == ["c2", "c1"]
    assert await names(driver) == ["t"]
    await driver.trim("default", older_than=0, keep_last=1, now=tick())


# --------------------------------------------------------------------------------------------------- folders and reads


async def test_reads_make_nothing(driver: FileDriver, folder: Path) -> None:
    assert await load(driver) is None
    assert await ids(driver) == []
    assert await names(driver) == []
    assert await driver.drop(KEY, None, now=tick()) == Dropped(0, None, None)
    assert await driver.drop_records(KEY, None, now=tick()) == 0
    await driver.trim("default", older_than=0, keep_last=1, now=tick())
    assert not folder.exists()


async def test_a_refused_save_leaves_nothing(driver: FileDriver, folder: Path) -> None:
    await driver.put(KEY, make_plan("c", expected_version=3))
    await driver.put(KEY, make_plan("c", parent="nobody"))
    assert files(folder) == set()


async def test_case_20_nothing_is_left_of_a_thread(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1", "c2", "c3", metadata=b"{}", terms=(b"t" * 16,), expires_at=2**62)
    await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=2**62)
    await driver.drop(KEY, None, now=tick())
    assert files(folder) == set()
    assert not (folder / THREAD).exists()


async def test_a_plain_save_writes_two_files(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1")
    before = {p: (folder / p).stat().st_mtime_ns for p in files(folder)}
    await grow(driver, "c2", expires_at=2**62)
    after = {p: (folder / p).stat().st_mtime_ns for p in files(folder)}
    assert {p for p in after if before.get(p) != after[p]} == {
        str(THREAD / "c000000000002-c2"),
        str(THREAD / "b000000000002"),
    }


async def test_the_folder_goes_away_while_it_is_used(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1", "c2")
    shutil.rmtree(folder)
    assert await ids(driver) == []
    await grow(driver, "d1")
    assert await ids(driver) == ["d1"]


async def test_a_folder_that_is_put_back_from_a_copy(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1", "c2")
    shutil.copytree(folder / THREAD, folder / "copy")
    await grow(driver, "c3")
    stored = await driver.get(KEY, None, now=tick())
    assert stored is not None
    shutil.rmtree(folder / THREAD)
    (folder / "copy").rename(folder / THREAD)
    assert await driver.put(KEY, make_plan("c4", {}, ranges_of(stored), base=base_of(stored))) == Stale()
    await grow(driver, "d3")
    assert await load(driver) == lines("c1", "c2", "d3")


# ------------------------------------------------------------------------------------------------------------- sealing


async def test_sealing(driver: FileDriver, folder: Path) -> None:
    everything = [f"c{i}" for i in range(120)]
    await grow(driver, *everything)
    blocks = sorted(p.name for p in (folder / THREAD).iterdir() if p.name[0] == "b")
    assert blocks[:2] == ["b000000000001-000000000050", "b000000000051-000000000100"]
    assert len(blocks) == 22
    for i in (0, 30, 49, 50, 99, 100, 119):
        assert await load(driver, f"c{i}") == lines(*everything[: i + 1])
    await driver.drop(KEY, everything[20:], now=tick())
    stored = await driver.get(KEY, None, now=tick())
    assert stored is not None
    assert lines_stored(stored) == set(lines(*everything[:20]))
    assert len([p for p in (folder / THREAD).iterdir() if p.name[0] == "b"]) == 1
    await grow(driver, "d")
    assert await load(driver) == lines(*everything[:20], "d")


async def test_large_blocks_are_not_joined(driver: FileDriver, folder: Path) -> None:
    base = None
    for i in range(1, 51):
        line = '"' + "x" * (70_000 if i % 20 == 0 else 10) + '"'
        plan = make_plan(f"c{i}", {1: [line]}, {1: [Range(1, i - 1)]} if i > 1 else {}, base=base)
        saved = await driver.put(KEY, plan)
        assert isinstance(saved, Saved)
        base = grown(plan, saved)
    joined = sorted(p.name for p in (folder / THREAD).iterdir() if p.name[0] == "b" and len(p.name) > 13)
    assert joined == ["b000000000001-000000000019", "b000000000021-000000000039", "b000000000041-000000000050"]
    assert len(await load(driver)) == 50


async def test_joined_and_single_blocks_side_by_side(driver: FileDriver, folder: Path) -> None:
    everything = [f"c{i}" for i in range(60)]
    await grow(driver, *everything[:49])
    shutil.copytree(folder / THREAD, folder / "copy")
    await grow(driver, *everything[49:])
    for path in (folder / "copy").iterdir():
        if path.name[0] == "b":
            shutil.copy(path, folder / THREAD)
    shutil.rmtree(folder / "copy")
    assert await load(driver) == lines(*everything)
    assert await load(driver, "c10") == lines(*everything[:11])
    await driver.drop(KEY, everything[5:], now=tick())
    stored = await driver.get(KEY, None, now=tick())
    assert stored is not None
    assert lines_stored(stored) == set(lines(*everything[:5]))
    assert sorted(p.name for p in (folder / THREAD).iterdir() if p.name[0] == "b") == [Block(1, 50).name]


# ------------------------------------------------------------------------------------------------------------- damage


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.write_bytes(
        {
            "half": data[: len(data) // 2],
            "most": data[:-1],
            "null": b"null",
            "nothing": b"",
            "bit": data[:20] + bytes([data[20] ^ 4]) + data[21:],
            "list": b"[1]\n",
            "longer": data + b"x",
        }[how]
    )


@pytest.mark.parametrize("how", ["half", "most", "null", "nothing", "bit", "list", "longer"])
async def test_case_11_a_damaged_checkpoint(driver: FileDriver, folder: Path, how: str) -> None:
    await grow(driver, "c1", "c2", "c3")
    damage(folder / THREAD / "c000000000002-c2", how)
    with pytest.raises(DamagedError):
        await driver.get(KEY, "c2", now=tick())
    assert await ids(driver) == ["c3", "c2", "c1"]
    assert [i.version for i in await driver.infos(KEY, before=3, limit=None, now=tick())] == [2, 1]
    assert await load(driver) == lines("c1", "c2", "c3")
    damage(folder / THREAD / "c000000000003-c3", how)
    with pytest.raises(DamagedError):
        await driver.get(KEY, None, now=tick())
    assert (await driver.infos(KEY, before=None, limit=1, now=tick()))[0].checkpoint_id == "c3"
    assert await names(driver) == await names(FileDriver(folder)) == ["t"]
    assert await driver.find(
        "default", [], thread_id=None, newest_only=False, limit=None, offset=0, now=tick()
    ) == await driver.infos(KEY, before=None, limit=None, now=tick())

    assert isinstance(await driver.put(KEY, make_plan("c4", {1: ['"new"']})), Saved)
    assert (await driver.infos(KEY, before=None, limit=1, now=tick()))[0].parent == "c3"
    assert await load(driver, "c1") == lines("c1")
    assert (await driver.drop(KEY, ["c4"], now=tick())).count == 1
    assert await load(driver, "c1") == lines("c1")
    assert (await driver.drop(KEY, ["c2", "c3"], now=tick())).count == 2
    assert await ids(driver) == ["c1"]
    stored = await driver.get(KEY, None, now=tick())
    assert stored is not None
    assert lines_stored(stored) == set(lines("c1"))
    assert {p.name for p in (folder / THREAD).iterdir()} == {"thread.json", "c000000000001-c1", "b000000000001"}


async def test_a_damaged_block_is_handed_on(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1", "c2")
    damage(folder / THREAD / "b000000000001", "half")
    stored = await driver.get(KEY, None, now=tick())
    with pytest.raises(DamagedError):
        document(stored)
    await grow(driver, "c3", key=Key("default", "u"))
    assert (await driver.drop(KEY, ["c2"], now=tick())).count == 1
    (folder / THREAD / "b000000000001").unlink()
    stored = await driver.get(KEY, None, now=tick())
    assert stored is not None
    assert stored.blocks == []


@pytest.mark.parametrize("how", ["half", "null", "nothing", "gone"])
async def test_damage_to_what_belongs_to_the_thread(driver: FileDriver, folder: Path, how: str) -> None:
    await grow(driver, "c1", "c2")
    before = await driver.get(KEY, None, now=tick())
    assert before is not None
    path = folder / THREAD / "thread.json"
    path.unlink() if how == "gone" else damage(path, how)
    assert await load(driver) == lines("c1", "c2")
    assert await ids(driver) == ["c2", "c1"]
    assert await names(driver) == await names(FileDriver(folder)) == ["t"]
    assert await driver.put(KEY, make_plan("c3", {}, ranges_of(before), base=base_of(before))) == Stale()
    await grow(driver, "c3")
    assert await load(driver) == lines("c1", "c2", "c3")
    assert json.loads(path.read_text())["thread_id"] == "t"


async def test_files_of_a_newer_release(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1", "c2")
    path = folder / THREAD / "c000000000002-c2"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(UnknownFormatError):
        await driver.get(KEY, "c2", now=tick())
    assert await ids(driver) == ["c2", "c1"]
    path = folder / THREAD / "thread.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(UnknownFormatError):
        await driver.get(KEY, "c1", now=tick())
    with pytest.raises(UnknownFormatError):
        await driver.put(KEY, make_plan("c3"))
    assert await names(FileDriver(folder)) == ["t"]
    await grow(driver, "d1", key=Key("default", "u"))
    found = await driver.find("default", [], thread_id=None, newest_only=True, limit=None, offset=0, now=tick())
    assert [i.checkpoint_id for i in found] == ["d1"]
    assert await driver.trim("default", older_than=0, keep_last=1, now=tick()) == (0, 0, ())


async def test_damaged_records(driver: FileDriver, folder: Path) -> None:
    await driver.put_records(KEY, "s", [("k", b"value")], keep=False, now=tick(), expires_at=None)
    damage(folder / THREAD / "r-s", "most")
    with pytest.raises(DamagedError):
        await driver.records(KEY, None, now=tick())


# --------------------------------------------------------------------------------------------------------------- trim


async def test_trim_sweeps_what_the_dead_have_left(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1", "c2")
    shutil.copy(folder / THREAD / "b000000000001", folder / THREAD / "b000000000003")
    for name in ("write-1-old", "write-1-new", "trash-1-x/t", "copy-1-old/t"):
        path = folder / ".tmp" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        if "old" in name:
            for p in (path, path.parent):
                os.utime(p, (1, 1))
    (folder / "t-default" / "t-empty").mkdir()
    os.utime(folder / "t-default" / "t-empty", (1, 1))
    (folder / "t-default" / "t-starting").mkdir()
    assert await driver.trim("default", older_than=0, keep_last=1, now=tick()) == (0, 1, ())
    assert files(folder) == {
        str(THREAD / n)
        for n in ("thread.json", "c000000000001-c1", "c000000000002-c2", "b000000000001", "b000000000002")
    } | {".tmp/write-1-new"}
    assert sorted(p.name for p in (folder / "t-default").iterdir()) == ["t-starting", "t-t"]
    assert sorted(p.name for p in (folder / ".tmp").iterdir()) == ["write-1-new"]
    await grow(driver, "c3")
    assert await load(driver) == lines("c1", "c2", "c3")


async def test_the_number_of_an_orphan_is_skipped(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1")
    shutil.copy(folder / THREAD / "b000000000001", folder / THREAD / "b000000000002")
    other = FileDriver(folder)
    await grow(other, "c2")
    stored = await other.get(KEY, None, now=tick())
    assert stored is not None
    assert stored.own_block == 3
    await other.aclose()


# ----------------------------------------------------------------------------------------------------- several drivers


async def test_two_drivers_see_each_other(driver: FileDriver, folder: Path) -> None:
    other = FileDriver(folder)
    for i in range(5):
        await grow(driver, f"a{i}")
        assert (await names(other))[0] == "t"
        await grow(other, f"b{i}", key=Key("default", "u"))
        assert await names(driver) == ["u", "t"]
        await grow(other, f"c{i}")
        assert await names(driver) == ["t", "u"]
        assert await load(driver) == await load(other)
    assert len(await load(driver)) == 10
    [listed] = await driver.threads("default", "u", limit=None, offset=0, now=tick())
    assert listed == (await driver.threads("default", "*", limit=None, offset=1, now=tick()))[0]
    await other.drop(KEY, None, now=tick())
    assert await names(driver) == ["u"]
    await other.aclose()


async def test_the_list_of_threads_is_remembered_only_while_it_holds(
    driver: FileDriver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        await grow(driver, "c1", key=Key("default", f"t{i}"))
    now = time.time() - 10
    for i in range(20):
        os.utime(folder / "t-default" / f"t-t{i}", (now, now))
    expected = [f"t{i}" for i in reversed(range(20))]
    assert await names(driver) == expected
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    assert await names(driver) == expected
    assert [p for p in opened if str(folder) in p] == []
    other = FileDriver(folder)
    await grow(other, "c2", key=Key("default", "t3"))
    assert await names(driver) == ["t3", *[n for n in expected if n != "t3"]]
    await other.put(Key("default", "t5"), make_plan("c1", key=Key("default", "t5"), if_exists="in_place"))
    assert (await names(driver))[0] == "t5"
    await other.drop(Key("default", "t5"), None, now=tick())
    assert (await names(driver))[0] == "t3"
    await other.aclose()


async def test_deleted_and_made_again_by_another(driver: FileDriver, folder: Path) -> None:
    other = FileDriver(folder)
    await grow(driver, "c1", "c2")
    stored = await driver.get(KEY, None, now=tick())
    assert stored is not None
    await other.drop(KEY, None, now=tick())
    await grow(other, "d1", "d2")
    assert await driver.put(KEY, make_plan("c3", {}, ranges_of(stored), base=base_of(stored))) == Stale()
    await grow(driver, "c3")
    assert await load(other) == lines("d1", "d2", "c3")
    await other.aclose()


def child(folder: Path, name: str, count: int, kind: str = "plain") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "drivers.file_child", str(folder), name, str(count), kind],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_two_processes_save_to_one_thread(driver: FileDriver, folder: Path) -> None:
    children = [child(folder, name, 100) for name in "ab"]
    assert [len(c.communicate(timeout=120)[0].splitlines()) for c in children] == [100, 100]
    shown = await driver.infos(KEY, before=None, limit=None, now=tick())
    assert [i.version for i in shown] == list(range(200, 0, -1))
    assert {i.checkpoint_id for i in shown} == {f"{name}-{i}" for name in "ab" for i in range(100)}
    before: list[str] = []
    for info in reversed(shown):
        *older, own = await load(driver, info.checkpoint_id)
        assert [own] == lines(info.checkpoint_id)
        assert older == before
        before = [*older, own]


@pytest.mark.parametrize("kind", ["plain", "mixed"])
@pytest.mark.parametrize("turns", [10, pytest.param(50, marks=pytest.mark.endurance)])
async def test_case_53_killed_at_random(driver: FileDriver, folder: Path, kind: str, turns: int) -> None:
    acknowledged: dict[str, str] = {}
    dropping: set[str] = set()
    dropped: set[str] = set()
    for turn in range(turns):
        process = child(folder, f"k{turn}", 10_000, kind)
        assert process.stdout is not None
        said = [process.stdout.readline()]
        time.sleep(random.uniform(0, 0.06))
        process.send_signal(signal.SIGKILL)
        said += process.communicate()[0].splitlines(keepends=True)
        for line in [s.split() for s in said if s.endswith("\n")]:
            if line[0] == "dropping":
                dropping.add(f"k{turn}-{line[1]}")
            elif line[0] == "dropped":
                dropped.add(f"k{turn}-{line[1]}")
            else:
                acknowledged[line[0]] = f'"k{turn}-{line[1]}"'
        shown = await ids(driver)
        assert set(acknowledged) - dropping <= set(shown)
        assert not dropped & set(shown)
        for checkpoint_id in shown if turn % 5 == 4 else shown[:5]:
            found = await load(driver, checkpoint_id)
            if not checkpoint_id.endswith("again") and checkpoint_id in acknowledged:
                assert found[-1] == acknowledged[checkpoint_id]
    assert len(acknowledged) > turns // 2
    assert await names(driver) == ["t"]
    assert {p.name[0] for p in (folder / THREAD).iterdir()} <= set("tcb")
    await grow(driver, "last")
    await driver.trim("default", older_than=0, keep_last=1, now=tick())
    for checkpoint_id in await ids(driver):
        await load(driver, checkpoint_id)


async def test_readers_among_writers(driver: FileDriver, folder: Path) -> None:
    """Whatever is read is what was saved, though files are replaced and removed all the time."""
    documents: dict[bytes, list[str]] = {}
    other = FileDriver(folder, fsync=False)
    stop = False

    async def write(name: str, writer: FileDriver) -> None:
        rng = random.Random(name)
        for i in range(120):
            checkpoint_id = f"c{rng.randrange(8)}"
            before = await writer.get(KEY, rng.choice([None, f"c{rng.randrange(8)}"]), now=tick())
            reused, kept = ({}, []) if before is None else (ranges_of(before), document(before).get(1, []))
            if len(kept) > 6 and len(reused[1]) > 1:
                reused = {1: reused[1][-1:]}
                kept = (await load_some(before, reused[1]))[1]
            plan = make_plan(
                checkpoint_id,
                {1: [f'"{name}{i}"', f'"{name}{i}-b"']},
                reused,
                base=base_of(before) if before and reused else None,
                if_exists=rng.choice(["newest", "in_place"]),
                keep=rng.choice([None, 3]),
            )
            documents[plan.stamp] = [*kept, f'"{name}{i}"', f'"{name}{i}-b"']
            await writer.put(KEY, plan)
            if i % 10 == 9:
                await writer.drop(KEY, [f"c{rng.randrange(8)}"], now=tick())

    async def load_some(stored: Any, ranges: list[Range]) -> tuple[None, list[str]]:
        from dataclasses import replace

        from locus_store.core.references import References

        return None, document(replace(stored, ranges=References({1: ranges}).format()))[1]

    async def read(reader: FileDriver) -> int:
        count = 0
        while not stop:
            for checkpoint_id in [None, *[f"c{i}" for i in range(8)]]:
                stored = await reader.get(KEY, checkpoint_id, now=tick())
                if stored is not None:
                    assert document(stored).get(1, []) == documents[stored.stamp]
                    count += 1
            shown = await ids(reader)
            assert len(set(shown)) == len(shown)
        return count

    readers = [asyncio.create_task(read(d)) for d in (driver, other, driver)]
    await asyncio.gather(write("a", driver), write("b", other), write("c", other))
    stop = True
    assert min(await asyncio.gather(*readers)) > 20
    await other.aclose()


# --------------------------------------------------------------------------------------------------- cancelling, locks


async def test_case_58_cancelled_saves(driver: FileDriver) -> None:
    await grow(driver, "first")
    line = '"' + "x" * 100_000 + '"'
    cancelled = 0
    for i in range(200):
        try:
            await asyncio.wait_for(driver.put(KEY, make_plan(f"c{i}", {1: [line]})), random.uniform(0, 0.0002))
        except TimeoutError:
            cancelled += 1
    assert cancelled > 100
    await grow(driver, "last")
    await driver.aclose()
    for checkpoint_id in await ids(driver):
        assert await load(driver, checkpoint_id) in (lines("first"), [line], [line, '"last"'], lines("first", "last"))
    assert (await driver.drop(KEY, None, now=tick())).count >= 2


async def test_a_lock_that_is_not_free(folder: Path) -> None:
    driver = FileDriver(folder, lock_timeout=0.2)
    await grow(driver, "c1")
    held = []
    for path in (folder / ".locks").iterdir():
        held.append(os.open(path, os.O_RDWR))
        fcntl.flock(held[-1], fcntl.LOCK_EX)
    for call in (
        driver.put(KEY, make_plan("c2")),
        driver.drop(KEY, None, now=tick()),
        driver.clone(KEY, Key("default", "u"), upto=None, overwrite=False, now=tick()),
        driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None),
    ):
        started = time.monotonic()
        with pytest.raises(StoreBusyError):
            await call
        assert 0.15 < time.monotonic() - started < 8  # and not 10, the default
    assert await load(driver) == lines("c1")
    for fd in held:
        os.close(fd)
    await grow(driver, "c2")
    await driver.aclose()


async def test_a_busy_thread_does_not_hold_up_others(folder: Path) -> None:
    driver = FileDriver(folder, lock_timeout=60)
    await grow(driver, "c1")
    [path] = (folder / ".locks").iterdir()
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    waiting = [asyncio.create_task(driver.put(KEY, make_plan(f"d{i}"))) for i in range(5)]
    await asyncio.sleep(0.05)
    await grow(driver, "c1", key=Key("default", "another"))
    assert not any(task.done() for task in waiting)
    os.close(fd)
    assert all(isinstance(saved, Saved) for saved in await asyncio.gather(*waiting))
    await driver.aclose()


async def test_no_such_locks_on_this_platform(driver: FileDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    with pytest.raises(UnsupportedOperationError, match="flock"):
        await driver.put(KEY, make_plan("c"))
    assert await load(driver) is None


# -------------------------------------------------------------------------------------------------------------- errors


async def test_a_base_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    driver = FileDriver(tmp_path / "file" / "store")
    for call in (
        driver.prepare(),
        driver.put(KEY, make_plan("c")),
        driver.get(KEY, None, now=tick()),
        driver.threads("default", "*", limit=None, offset=0, now=tick()),
        driver.drop(KEY, None, now=tick()),
        driver.drop_records(KEY, None, now=tick()),
        driver.clone(KEY, Key("default", "u"), upto=None, overwrite=False, now=tick()),
        driver.records(KEY, None, now=tick()),
        driver.info(KEY, None, now=tick()),
    ):
        with pytest.raises(BackendError) as caught:
            await call
        assert isinstance(caught.value.__cause__, OSError)
    await driver.aclose()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
async def test_a_folder_that_may_only_be_read(driver: FileDriver, folder: Path) -> None:
    await grow(driver, "c1")
    paths = [folder, *[p for p in folder.rglob("*") if p.is_dir()]]
    for path in paths:
        path.chmod(0o500)
    try:
        reader = FileDriver(folder)
        assert await load(reader) == lines("c1")
        assert await names(reader) == ["t"]
        with pytest.raises(BackendError):
            await reader.put(KEY, make_plan("c2"))
        await reader.aclose()
    finally:
        for path in paths:
            path.chmod(0o700)


class Failing:
    """Stands for the module ``os`` in `disk`, with one function that fails."""

    def __init__(self, name: str, code: int) -> None:
        self._name, self._code = name, code

    def __getattr__(self, name: str) -> Any:
        if name != self._name:
            return getattr(os, name)

        def fail(*_: Any, **__: Any) -> Any:
            raise OSError(self._code, os.strerror(self._code))

        return fail


@pytest.mark.parametrize(
    ("name", "code"),
    [("write", errno.ENOSPC), ("replace", errno.EACCES), ("open", errno.EROFS), ("fsync", errno.EIO)],
)
async def test_a_disk_that_fails(
    driver: FileDriver, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    await grow(driver, "c1")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", Failing(name, code))
        with pytest.raises(BackendError) as caught:
            await driver.put(KEY, make_plan("c2", {1: ['"x"']}))
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == code
        assert await load(driver) == lines("c1")
    assert await ids(driver) == ["c1"]
    assert [p for p in files(folder) if p.startswith(".tmp")] == []
    await grow(driver, "c2")
    assert await load(driver) == lines("c1", "c2")


# ----------------------------------------------------------------------------------------------------------- life cycle


def test_case_62_several_event_loops(folder: Path) -> None:
    driver = FileDriver(folder)
    threads = threading.active_count()

    async def run(i: int, close: bool) -> None:
        await grow(driver, f"c{i}")
        assert len(await load(driver)) == i + 1
        if close:
            await driver.aclose()

    for i in range(3):
        asyncio.run(run(i, close=False))
    for i in range(3, 6):
        asyncio.run(run(i, close=True))
        assert threading.active_count() == threads
    descriptors = len(os.listdir("/proc/self/fd"))
    for i in range(6, 56):
        asyncio.run(run(i, close=bool(i % 2)))
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    asyncio.run(driver.aclose())


@pytest.mark.parametrize("ending", ["", "await driver.aclose()"])
def test_case_63_a_program_ends(folder: Path, ending: str) -> None:
    program = f"""
import asyncio
from drivers.plans import KEY, make_plan, tick
from locus_store.backends.file import FileDriver
driver = FileDriver({str(folder)!r})
async def main():
    # The debug mode tells which steps took long, as any may on a busy machine.
    asyncio.get_running_loop().slow_callback_duration = 60
    await asyncio.gather(*[driver.put(KEY, make_plan(f"c{{i}}")) for i in range(20)])
    {ending}
for _ in range(3):
    asyncio.run(main())
print("done")
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", program],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("done\n", "", 0)


def test_after_a_fork(folder: Path) -> None:
    program = f"""
import asyncio, os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from drivers.plans import KEY, make_plan, tick
from locus_store.backends.file import FileDriver
driver = FileDriver({str(folder)!r})
asyncio.run(driver.put(KEY, make_plan("parent")))
child = os.fork()
asyncio.run(driver.put(KEY, make_plan("child" if child == 0 else "parent-2")))
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, timeout=20, check=True)
    assert set(asyncio.run(ids(FileDriver(folder)))) == {"parent", "child", "parent-2"}

"""The threads and connections behind `SQLiteDriver`: groups, readers, event loops, closing, busy and lost files."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from drivers.plans import KEY, base_of, document, make_plan, ranges_of, tick

import locus_store
from locus_store.backends.sqlite import SQLiteDriver
from locus_store.core.driver import Key, Saved
from locus_store.core.errors import BackendError, BackendUnavailableError, SchemaNotReadyError, StoreBusyError
from locus_store.sql import sqlite_writer
from locus_store.sql.sqlite_direct import DirectConnection

ROOT = Path(locus_store.__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


@pytest.fixture(autouse=True)
def _noted() -> None:
    servers.note_ran("sqlite", sqlite3.sqlite_version)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def our_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("locus_store-sqlite")]


def open_files(folder: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    gc.collect()
    deadline = time.monotonic() + 30
    while (our_threads() or open_files(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert our_threads() == []
    assert open_files(tmp_path) == []


async def save(driver: SQLiteDriver, checkpoint_id: str, line: str = "x", key: Key = KEY, **options: Any) -> Saved:
    """Save a checkpoint that adds one line to what is there."""
    before = await driver.get(key, None, now=tick())
    reused = ranges_of(before) if before else {}
    plan = make_plan(
        checkpoint_id, {1: [f'"{line}"']}, reused, base=base_of(before) if before else None, key=key, **options
    )
    result = await driver.put(key, plan)
    assert isinstance(result, Saved), result
    return result


async def load(driver: SQLiteDriver, checkpoint_id: str | None = None, key: Key = KEY) -> list[str] | None:
    stored = await driver.get(key, checkpoint_id, now=tick())
    return None if stored is None else [line.strip('"') for line in document(stored, key)[1]]


async def count(driver: SQLiteDriver, key: Key = KEY) -> int:
    return len(await driver.infos(key, before=None, limit=None, now=tick()))


def python(program: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(program), *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finished(process: subprocess.Popen[str], seconds: float = 60) -> str:
    out, err = process.communicate(timeout=seconds)
    assert err == ""
    assert process.returncode == 0
    return out


class TestLifeCycle:
    @pytest.mark.parametrize("closes", [True, False])
    @pytest.mark.parametrize("where", ["file", "memory"])
    def test_case_62_several_loops(self, path: Path, where: str, closes: bool) -> None:
        driver = SQLiteDriver(path if where == "file" else ":memory:")

        async def turn(i: int) -> None:
            await save(driver, f"c{i}", f"line {i}")
            assert await load(driver) == [f"line {n}" for n in range(i + 1)]
            if closes:
                await driver.aclose()
                assert our_threads() == []

        for i in range(3):
            asyncio.run(turn(i))
        asyncio.run(driver.aclose())

    async def test_case_63_close_leaves_nothing(self, path: Path) -> None:
        gc.collect()  # what other tests left must not go while this one counts
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        driver = SQLiteDriver(path)
        for i in range(5):
            await asyncio.gather(*[save(driver, f"c{i}", key=Key("default", f"t{n}")) for n in range(8)])
            await driver.aclose()
            await driver.aclose()
            assert threading.active_count() <= before[0]
            assert len(os.listdir("/proc/self/fd")) <= before[1]
            assert os.listdir(path.parent) == ["store.db"], "the log was not put back into the file"

    async def test_connections_that_close_at_the_same_moment_leave_no_log(self, path: Path) -> None:
        for i in range(50):
            driver = SQLiteDriver(path)
            await save(driver, f"c{i}")
            await asyncio.gather(*[load(driver) for _ in range(8)])
            await driver.aclose()
            assert os.listdir(path.parent) == ["store.db"]

    @pytest.mark.parametrize("where", ["file", "memory"])
    @pytest.mark.parametrize("ends", ["", "sys.exit(0)", "raise KeyboardInterrupt"])
    def test_case_63_a_program_that_forgets_to_close(self, path: Path, where: str, ends: str) -> None:
        program = f"""
            import asyncio, sys
            from drivers.plans import KEY, make_plan, tick
            from locus_store.backends.sqlite import SQLiteDriver

            driver = SQLiteDriver(sys.argv[1])

            async def main():
                # The debug mode tells which steps took long, as any may on a busy machine.
                asyncio.get_running_loop().slow_callback_duration = 60
                await driver.put(KEY, make_plan("c", {{1: ['"x"']}}))
                assert await driver.get(KEY, None, now=tick())
                print("saved", flush=True)

            try:
                asyncio.run(main())
                {ends}
            except KeyboardInterrupt:
                pass
        """
        process = python(program, str(path) if where == "file" else ":memory:")
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        start = time.monotonic()
        finished(process)
        assert time.monotonic() - start < 10  # it does not wait for anything
        if where == "file":
            assert os.listdir(path.parent) == ["store.db"]

    async def test_memory_lives_as_long_as_the_driver(self) -> None:
        one, two = SQLiteDriver(":memory:"), SQLiteDriver(":memory:")
        await save(one, "c")
        await one.aclose()
        assert our_threads() == []
        assert await load(one) == ["x"]
        assert await load(two) is None
        assert not one.capabilities.persistent
        await one.aclose()
        await two.aclose()

    async def test_a_driver_that_is_forgotten_ends_its_threads(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await save(driver, "c")
        del driver  # the fixture sees that nothing is left

    async def test_nothing_is_made_before_the_first_call(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "store.db"
        driver = SQLiteDriver(path)
        assert os.listdir(tmp_path) == []
        assert await load(driver) is None
        assert path.exists()
        await driver.aclose()

    async def test_without_the_right_to_make_a_schema(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "store.db"
        careful = SQLiteDriver(path, create_schema=False)
        with pytest.raises(SchemaNotReadyError):
            await careful.prepare()
        assert os.listdir(tmp_path) == []
        path.parent.mkdir()
        sqlite3.connect(path).close()
        with pytest.raises(SchemaNotReadyError):
            await load(careful)
        await one_with(path, "x")
        assert await load(careful) == ["x"]
        await careful.aclose()

    async def test_closing_while_calls_are_under_way(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await driver.prepare()
        plans = [make_plan(f"c{i}", {1: ['"x"']}) for i in range(20)]
        saves = [asyncio.ensure_future(driver.put(KEY, plan)) for plan in plans]
        await asyncio.sleep(0)
        await driver.aclose()
        assert all([isinstance(await s, Saved) for s in saves])
        assert await count(driver) == 20
        await driver.aclose()

    async def test_a_forked_child_opens_anew(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await save(driver, "parent")
        process = await asyncio.to_thread(finished, python(FORK, str(path)))
        assert process.split() == ["child", "parent"]
        assert await count(driver) == 3
        await driver.aclose()


FORK = """
    import asyncio, os, sys
    from drivers.plans import KEY, make_plan
    from locus_store.backends.sqlite import SQLiteDriver

    driver = SQLiteDriver(sys.argv[1])
    asyncio.run(driver.put(KEY, make_plan("before", {1: ['"x"']})))
    child = os.fork()
    if child == 0:
        asyncio.run(driver.put(KEY, make_plan("child", {1: ['"x"']})))
        asyncio.run(driver.aclose())
        print("child", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("parent")
    asyncio.run(driver.aclose())
"""


class TestGroups:
    async def occupied(self, driver: SQLiteDriver) -> tuple[asyncio.Future[Any], threading.Event]:
        """The writer does nothing until the event is set; what is sent to it meanwhile becomes one group."""
        await driver.prepare()
        go = threading.Event()
        waiting = asyncio.ensure_future(driver._write(lambda _: go.wait(60)))
        await asyncio.sleep(0.02)
        return waiting, go

    async def test_saves_that_wait_share_a_transaction(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        commits: list[int] = []
        commit = sqlite_writer.Writer._commit

        def counted(self: Any, connection: Any, outcomes: list[Any]) -> None:
            commits.append(len(outcomes))
            commit(self, connection, outcomes)

        driver = SQLiteDriver(path)
        waiting, go = await self.occupied(driver)
        monkeypatch.setattr(sqlite_writer.Writer, "_commit", counted)
        saves = [asyncio.ensure_future(driver.put(KEY, make_plan(f"c{i}", {1: ['"x"']}))) for i in range(10)]
        await asyncio.sleep(0.01)
        go.set()
        results = await asyncio.gather(*saves)
        await waiting
        assert sorted(r.version for r in results) == list(range(1, 11))
        assert sum(commits) == 11
        assert len(commits) <= 2
        await driver.aclose()

    @pytest.mark.parametrize("undoes", ["itself", "everything"])
    async def test_one_that_fails_is_undone_alone(self, path: Path, undoes: str) -> None:
        def half_a_save(connection: DirectConnection) -> None:
            connection.raw.execute("UPDATE locus_store_threads SET version = 1000")
            if undoes == "everything":  # as SQLite does when the disk is full
                connection.raw.execute("ROLLBACK")
            raise ZeroDivisionError

        driver = SQLiteDriver(path)
        waiting, go = await self.occupied(driver)
        jobs = []
        for i in range(9):
            save = driver.put(KEY, make_plan(f"c{i}", {1: ['"x"']}))
            jobs.append(asyncio.ensure_future(driver._write(half_a_save) if i % 3 == 1 else save))
            if i % 3 == 1:
                save.close()
        await asyncio.sleep(0.01)
        go.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        await waiting
        assert [type(r) for r in results] == [Saved, ZeroDivisionError, Saved] * 3
        assert sorted(r.version for r in results if isinstance(r, Saved)) == list(range(1, 7))
        assert await count(driver) == 6
        await driver.aclose()

    async def test_a_commit_that_fails_acknowledges_nothing(self, path: Path) -> None:
        def broken(connection: DirectConnection) -> None:
            # A deferred constraint is only looked at when the transaction ends.
            connection.raw.executescript(
                """SAVEPOINT s; CREATE TABLE a (id INTEGER PRIMARY KEY);
                CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED);
                INSERT INTO b VALUES (1); RELEASE s"""
            )

        driver = SQLiteDriver(path)
        waiting, go = await self.occupied(driver)
        jobs = [asyncio.ensure_future(driver.put(KEY, make_plan(f"c{i}", {1: ['"x"']}))) for i in range(3)]
        jobs.append(asyncio.ensure_future(driver._write(broken)))
        go.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        acknowledged = sum(isinstance(r, Saved) for r in results)
        assert await count(driver) == acknowledged
        await asyncio.gather(waiting, return_exceptions=True)
        await save(driver, "after")
        await driver.aclose()

    async def test_readers_do_not_wait_for_the_writer(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await save(driver, "c")
        waiting, go = await self.occupied(driver)
        assert await load(driver) == ["x"]
        assert not waiting.done()
        go.set()
        await waiting
        await driver.aclose()

    async def test_case_58_cancelled_saves_leave_nothing_half_done(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await driver.prepare()
        acknowledged = 0
        for i in range(200):
            plan = make_plan(f"c{i}", {1: ['"x"'] * 50})
            try:
                await asyncio.wait_for(driver.put(KEY, plan), 0.0005)
                acknowledged += 1
            except TimeoutError:
                pass
        await save(driver, "last")
        infos = await driver.infos(KEY, before=None, limit=None, now=tick())
        assert acknowledged < len(infos) <= 201
        assert [i.version for i in infos] == list(range(len(infos), 0, -1))
        for info in infos[:20]:
            assert await load(driver, info.checkpoint_id)
        await driver.aclose()

    async def test_what_is_cancelled_before_it_began_never_runs(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        waiting, go = await self.occupied(driver)
        saving = asyncio.ensure_future(driver.put(KEY, make_plan("c", {1: ['"x"']})))
        await asyncio.sleep(0.01)
        saving.cancel()
        await asyncio.sleep(0)
        go.set()
        await waiting
        assert await load(driver) is None
        await driver.aclose()


class TestBusy:
    async def test_a_lock_that_is_not_freed(self, path: Path) -> None:
        driver = SQLiteDriver(path, busy_timeout=0.3)
        await save(driver, "c")
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.raises(StoreBusyError) as caught:
            await driver.put(KEY, make_plan("d", {1: ['"x"']}))
        assert 0.2 < time.monotonic() - start < 10  # and not 30, the default
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert await load(driver) == ["x"]
        holder.execute("ROLLBACK")
        holder.close()
        await save(driver, "d")
        await driver.aclose()

    async def test_the_first_read_does_not_wait_for_a_writer_elsewhere(self, path: Path) -> None:
        await one_with(path, "x")
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        driver = SQLiteDriver(path)
        await asyncio.wait_for(driver.prepare(), 15)
        assert await asyncio.wait_for(load(driver), 15) == ["x"]
        holder.close()
        await driver.aclose()

    async def test_a_lock_that_is_freed(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await save(driver, "c")
        holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.2, holder.execute, "COMMIT")
        await save(driver, "d")
        holder.close()
        await driver.aclose()

    def test_case_51_two_processes_open_one_new_file(self, path: Path) -> None:
        program = """
            import asyncio, sys, time
            from drivers.plans import KEY, make_plan
            from locus_store.backends.sqlite import SQLiteDriver
            from locus_store.core.driver import Saved

            async def main():
                driver = SQLiteDriver(sys.argv[1])
                times = []
                await asyncio.sleep(float(sys.argv[3]) - time.time())
                for i in range(200):
                    start = time.perf_counter()
                    assert isinstance(await driver.put(KEY, make_plan(f"{sys.argv[2]}-{i}", {1: ['"x"']})), Saved)
                    times.append(time.perf_counter() - start)
                print(sorted(times)[197])
                await driver.aclose()

            asyncio.run(main())
        """
        start = str(time.time() + 2)
        processes = [python(program, str(path), name, start) for name in "ab"]
        assert all([float(finished(process)) < 2 for process in processes])

        async def check() -> None:
            driver = SQLiteDriver(path)
            infos = await driver.infos(KEY, before=None, limit=None, now=tick())
            assert [i.version for i in infos] == list(range(400, 0, -1))
            assert {i.checkpoint_id for i in infos} == {f"{name}-{i}" for name in "ab" for i in range(200)}
            await driver.aclose()

        asyncio.run(check())

    @pytest.mark.parametrize("after", [1, 7, 30])
    def test_killed_while_it_saves(self, path: Path, after: int) -> None:
        program = """
            import asyncio, sys
            from drivers.plans import Key, make_plan
            from locus_store.backends.sqlite import SQLiteDriver

            async def saves(driver, task):
                for i in range(10_000):
                    await driver.put(Key("default", f"t{task}"), make_plan(f"{i}", {1: [f'"{task}-{i}"']}))
                    print(task, i, flush=True)

            async def main():
                driver = SQLiteDriver(sys.argv[1])
                await asyncio.gather(*[saves(driver, task) for task in range(4)])

            asyncio.run(main())
        """
        process = python(program, str(path))
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().split() for _ in range(after)]
        process.kill()
        acknowledged += [line.split() for line in process.communicate()[0].splitlines(keepends=True) if "\n" in line]

        async def check() -> None:
            driver = SQLiteDriver(path)
            for task, i in acknowledged:
                assert await load(driver, i, Key("default", f"t{task}")) == [f"{task}-{i}"]
            for task in range(4):
                key = Key("default", f"t{task}")
                for info in await driver.infos(key, before=None, limit=None, now=tick()):
                    assert await load(driver, info.checkpoint_id, key) == [f"{task}-{info.checkpoint_id}"]
            await driver.aclose()

        asyncio.run(check())


class TestLostFiles:
    async def test_deleted(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await save(driver, "c")
        for name in os.listdir(path.parent):
            (path.parent / name).unlink()
        with pytest.raises(BackendUnavailableError, match="deleted or replaced"):
            await load(driver)
        await save(driver, "d", "new")
        assert await load(driver) == ["new"]
        assert await count(driver) == 1
        await driver.aclose()

    async def test_only_the_database_is_deleted_and_its_log_stays(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await save(driver, "c")
        path.unlink()
        with pytest.raises(BackendUnavailableError):
            await driver.put(KEY, make_plan("d", {1: ['"x"']}))
        await save(driver, "e", "new")
        await driver.aclose()
        assert_intact(path)
        assert os.listdir(path.parent) == ["store.db"]

    async def test_replaced_by_another(self, path: Path) -> None:
        other = path.with_name("other.db")
        await one_with(other, "other")
        driver = SQLiteDriver(path)
        for i in range(20):
            await save(driver, f"c{i}", "mine")
        os.replace(other, path)
        with pytest.raises(BackendUnavailableError):
            await driver.put(KEY, make_plan("d", {1: ['"x"']}))
        assert await load(driver) == ["other"]
        await driver.aclose()
        assert_intact(path)

    async def test_the_log_of_whoever_opened_the_new_file_is_spared(self, path: Path) -> None:
        driver = SQLiteDriver(path)
        await save(driver, "c", "mine")
        for name in os.listdir(path.parent):
            (path.parent / name).unlink()
        other = SQLiteDriver(path)
        await save(other, "c", "other")
        with pytest.raises(BackendUnavailableError):
            await load(driver)
        await driver.aclose()
        assert sorted(os.listdir(path.parent)) == ["store.db", "store.db-shm", "store.db-wal"]
        await save(other, "d", "other")
        third = SQLiteDriver(path)
        assert await load(third) == ["other", "other"]
        await third.aclose()
        await other.aclose()
        assert_intact(path)

    async def test_a_folder_that_went(self, tmp_path: Path) -> None:
        driver = SQLiteDriver(tmp_path / "a" / "store.db")
        await save(driver, "c")
        shutil.rmtree(tmp_path / "a")
        with pytest.raises(BackendUnavailableError):
            await load(driver)
        await driver.aclose()

    async def test_what_is_no_database(self, path: Path) -> None:
        path.write_bytes(b"a text, not a database" * 100)
        driver = SQLiteDriver(path)
        with pytest.raises(BackendError, match=r"store\.db' is no SQLite database") as caught:
            await load(driver)
        assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
        await driver.aclose()
        assert path.read_bytes() == b"a text, not a database" * 100

    async def test_a_folder_in_the_way(self, tmp_path: Path) -> None:
        driver = SQLiteDriver(tmp_path)
        with pytest.raises(BackendUnavailableError, match="is a folder, not a file"):
            await load(driver)
        await driver.aclose()


class TestReclaim:
    @pytest.mark.parametrize("where", ["file", "memory"])
    async def test_case_22_the_file_shrinks(self, path: Path, where: str) -> None:
        driver = SQLiteDriver(path if where == "file" else ":memory:")
        for i in range(5):
            await save(driver, f"c{i}", "x" * 1_000_000)
        other = SQLiteDriver(path)
        if where == "file":
            await load(other)
        await driver.drop(KEY, None, now=tick())
        freed = await driver.reclaim()
        assert freed > 4_000_000
        if where == "file":
            assert path.stat().st_size < 200_000
        assert await driver.reclaim() < 10_000
        await save(driver, "after")
        await other.aclose()
        await driver.aclose()

    async def test_impossible(self, path: Path) -> None:
        driver = SQLiteDriver(path, busy_timeout=0.2)
        await save(driver, "c")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM locus_store_threads").fetchone()
        await save(driver, "d")
        with pytest.raises(StoreBusyError):
            await driver.reclaim()
        reader.close()
        await driver.aclose()


def assert_intact(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def one_with(path: Path, line: str) -> None:
    driver = SQLiteDriver(path)
    await save(driver, "c", line)
    await driver.aclose()


async def test_an_error_tells_no_payload(path: Path) -> None:
    driver = SQLiteDriver(path)
    await driver.prepare()
    raw = sqlite3.connect(path)
    raw.execute("DROP TABLE locus_store_blocks")
    raw.close()
    with pytest.raises(BackendError, match="no such table") as caught:
        await driver.put(KEY, make_plan("c", {1: ['"secret"']}))
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    await driver.aclose()


async def test_paths(path: Path) -> None:
    strange = path.with_name("ä b?c#d%20.db")
    driver = SQLiteDriver(os.path.relpath(strange))
    await save(driver, "c")
    await driver.aclose()
    assert os.listdir(path.parent) == [strange.name]

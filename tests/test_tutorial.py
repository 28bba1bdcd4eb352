"""The lesson that the SDK's tutorial on checkpoint backends teaches, step by step: what each call must return.

Run as a program, this file takes the whole lesson in the folder that it is given: nothing is closed, and the folder is
removed while all is still open.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from locus_store.core.backend import Backend
from locus_store.core.messages import Message
from locus_store.core.state import AgentState
from locus_store.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend

ROOT = Path(__file__).resolve().parents[1]


def conversation(*texts: str, agent: str = "guide") -> AgentState:
    """A state in which user and assistant speak in turn."""
    state = AgentState(agent_id=agent)
    for number, text in enumerate(texts):
        state = state.with_message(Message.assistant(text) if number % 2 else Message.user(text))
    return state


async def part_1_memory() -> None:
    checkpointer = MemoryCheckpointer()
    empty = AgentState(agent_id="guide")
    asked = empty.with_message(Message.user("What is a checkpoint?"))
    answered = asked.with_message(Message.assistant("A state that was saved."))
    assert (len(empty.messages), len(asked.messages), len(answered.messages)) == (0, 1, 2)

    saved = await checkpointer.save(answered, "first")
    assert type(saved) is str
    assert len(saved) == 32
    assert int(saved, 16) >= 0
    loaded = await checkpointer.load("first")
    assert loaded is not None
    assert len(loaded.messages) == 2
    assert loaded == answered
    assert loaded is not answered
    assert await checkpointer.list_checkpoints("first") == [saved]


async def part_2_sqlite(folder: Path) -> SQLiteBackend:
    path = folder / "store.db"
    backend = SQLiteBackend(path=str(path))
    assert not path.exists()

    documents = [
        {"agent_id": f"agent {n}", "messages": [{"role": "user", "content": f"hello {n}"}], "iteration": n}
        for n in range(3)
    ]
    for number, document in enumerate(documents):
        await backend.save(f"talk_{number}", document)
    assert path.exists()
    loaded = await backend.load("talk_1")
    assert loaded == documents[1]
    assert list(loaded) == ["agent_id", "messages", "iteration"]
    assert await backend.list_threads() == ["talk_2", "talk_1", "talk_0"]
    assert await backend.exists("talk_1") is True
    assert await backend.delete("talk_2") is True
    assert await backend.list_threads() == ["talk_1", "talk_0"]
    assert await backend.exists("talk_2") is False
    assert await backend.delete("talk_2") is False
    assert await backend.load("talk_2") is None
    return backend


async def part_3_files(folder: Path) -> FileCheckpointer:
    checkpointer = FileCheckpointer(base_dir=str(folder / "saved"))
    assert not (folder / "saved").exists()
    state = conversation("Where do you live?", "In files.")
    for name in ("talk_a", "talk_b"):
        assert type(await checkpointer.save(state, name)) is str
    loaded = await checkpointer.load("talk_a")
    assert loaded is not None
    assert len(loaded.messages) == 2
    assert checkpointer.capabilities.list_threads is True
    assert await checkpointer.list_threads() == ["talk_b", "talk_a"]
    return checkpointer


def part_5_capabilities(folder: Path) -> None:
    for checkpointer in (MemoryCheckpointer(), FileCheckpointer(base_dir=str(folder / "none"))):
        assert checkpointer.capabilities.list_threads is True
        assert checkpointer.capabilities.persistent_checkpoint_ids is True
    assert not (folder / "none").exists()


async def part_6_versions() -> None:
    checkpointer = MemoryCheckpointer()
    states = [conversation(*["one", "two", "three"][:count]) for count in (1, 2, 3)]
    made = [await checkpointer.save(state, "growing") for state in states]
    assert len(set(made)) == 3
    assert await checkpointer.list_checkpoints("growing") == made[::-1]
    first = await checkpointer.load("growing", checkpoint_id=made[0])
    latest = await checkpointer.load("growing")
    assert first is not None
    assert latest is not None
    assert (len(first.messages), len(latest.messages)) == (1, 3)


def part_7_choosing() -> None:
    made = [MemoryCheckpointer(), MemoryCheckpointer(), FileCheckpointer(base_dir="/proc/no/such/place")]
    assert [type(one).__name__ for one in made] == ["MemoryCheckpointer", "MemoryCheckpointer", "FileCheckpointer"]


async def part_9_many_threads(backend: SQLiteBackend) -> None:
    for user in ("ada", "bob", "cyd"):
        for session in (0, 1):
            await backend.save(f"user_{user}_session_{session}", {"user": user, "session": session})
    everything = await backend.list_threads()
    assert len(everything) == 8
    assert await backend.list_threads(pattern="user_ada%") == ["user_ada_session_1", "user_ada_session_0"]
    assert await backend.list_threads(pattern="user_ada*") == ["user_ada_session_1", "user_ada_session_0"]
    first = await backend.list_threads(limit=3, offset=0)
    assert first == ["user_cyd_session_1", "user_cyd_session_0", "user_bob_session_1"]
    second = await backend.list_threads(limit=3, offset=3)
    assert second == ["user_bob_session_0", "user_ada_session_1", "user_ada_session_0"]
    rest = await backend.list_threads(limit=3, offset=6)
    assert rest == ["talk_1", "talk_0"]
    assert first + second + rest == everything
    assert await backend.list_threads(limit=3, offset=9) == []


async def whole_lesson(folder: Path) -> list[object]:
    """All parts in order; nothing is closed, and in the end the folder is gone."""
    await part_1_memory()
    backend = await part_2_sqlite(folder)
    checkpointer = await part_3_files(folder)
    part_5_capabilities(folder)
    await part_6_versions()
    part_7_choosing()
    await part_9_many_threads(backend)
    shutil.rmtree(folder)
    return [backend, checkpointer]


# ----------------------------------------------------------------------------------------------------- part by part


async def test_part_1_memory() -> None:
    await part_1_memory()


async def test_parts_2_and_9_sqlite(tmp_path: Path) -> None:
    backend = await part_2_sqlite(tmp_path)
    await part_9_many_threads(backend)
    await backend.close()


async def test_part_3_files(tmp_path: Path) -> None:
    await part_3_files(tmp_path)


def test_part_5_capabilities(tmp_path: Path) -> None:
    part_5_capabilities(tmp_path)


async def test_part_6_versions() -> None:
    await part_6_versions()


def test_part_7_choosing() -> None:
    part_7_choosing()


# ----------------------------------------------------------------------------------------------- what goes unsaid


def test_the_program_ends_though_nothing_is_closed_and_the_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "lesson"
    folder.mkdir()
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", __file__, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    ended = time.monotonic() - started
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert ended < 30
    assert list(tmp_path.iterdir()) == []


def test_the_lesson_again_and_again_in_one_process(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            left = asyncio.run(whole_lesson(folder))
            del left
            gc.collect()


def test_constructors_do_nothing_outside(tmp_path: Path) -> None:
    code = """
import sys
from locus_store import *

def make():
    MemoryBackend(), MemoryCheckpointer(), FileBackend("none/a"), FileCheckpointer(base_dir="none/b")
    SQLiteBackend("none/c.db"), SQLiteCheckpointer("none/d.db")
    PostgreSQLBackend("nowhere.invalid"), PostgreSQLCheckpointer(dsn="postgresql://nowhere.invalid/d")
    open_backend(), open_backend("file:none/e"), open_checkpointer("postgresql://nowhere.invalid/d")

def watch(event, arguments):
    if watching and event.split(".")[0] in ("open", "os", "sqlite3", "socket", "shutil", "subprocess"):
        print(event, arguments)

make()  # what is imported on the way is not meant
watching = True
sys.addaudithook(watch)
make()
watching = False
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


START = 1_700_000_000_000_000


@pytest.fixture(params=["memory", "file", "sqlite"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path, now: list[int]) -> AsyncIterator[Backend]:
    """Each of the lesson's three stores, with a clock that stands still at ``now[0]``."""
    made: dict[str, Callable[..., Backend]] = {
        "memory": lambda **options: MemoryCheckpointer(**options).backend,
        "file": lambda **options: FileCheckpointer(base_dir=tmp_path / "saved", **options).backend,
        "sqlite": lambda **options: SQLiteBackend(path=tmp_path / "store.db", **options),
    }
    async with made[request.param](clock=lambda: now[0]) as store:
        yield store


@pytest.fixture
def now() -> list[int]:
    return [START]


async def test_newest_first_though_the_clock_stands_still(backend: Backend) -> None:
    names = [f"t{number}" for number in (3, 1, 2, 9, 0)]
    for name in names:
        await backend.save(name, {"name": name})
    made = [await backend.save("t1", {"number": number}) for number in range(5)]
    newest_first = ["t1", "t0", "t9", "t2", "t3"]
    assert await backend.list_threads() == newest_first
    assert [(await backend.list_threads(limit=2, offset=at)) for at in (0, 2, 4)] == [
        ["t1", "t0"],
        ["t9", "t2"],
        ["t3"],
    ]
    assert (await backend.list_checkpoints("t1"))[:5] == made[::-1]


async def test_a_thread_that_is_saved_again_moves_to_the_front_and_keeps_its_beginning(
    backend: Backend, now: list[int]
) -> None:
    await backend.save("a", {"n": 1})
    began = (await backend.history("a"))[-1].created_at
    now[0] += 1_000_000
    await backend.save("b", {"n": 1})
    now[0] += 1_000_000
    await backend.save("a", {"n": 2})
    assert await backend.list_threads() == ["a", "b"]
    history = await backend.history("a")
    assert history[-1].created_at == began
    assert (history[0].created_at - began).total_seconds() == 2


async def test_patterns(backend: Backend) -> None:
    for name in ("user_1", "userX1", "user-1", "User_1", "user%1"):
        await backend.save(name, {})
    assert await backend.list_threads(pattern="user_1") == ["user_1"]
    assert await backend.list_threads(pattern="user_%") == ["user_1"]
    assert await backend.list_threads(pattern=r"user\%1") == ["user%1"]
    assert len(await backend.list_threads(pattern="user?1")) == 4
    assert len(await backend.list_threads(pattern="%")) == len(await backend.list_threads(pattern="*")) == 5
    assert await backend.list_threads(10, 1, "user*") == ["user-1", "userX1", "user_1"]


async def test_ten_checkpoints_are_listed_unless_more_are_asked_for(backend: Backend) -> None:
    made = [await backend.save("t", {"n": number}) for number in range(12)]
    assert await backend.list_checkpoints("t") == made[:1:-1]
    assert await backend.list_checkpoints("t", limit=3) == made[:8:-1]
    assert await backend.list_checkpoints("t", limit=None) == made[::-1]


async def test_faces_that_are_mixed_up_are_refused_with_the_remedy(backend: Backend) -> None:
    with pytest.raises(TypeError, match=r"backend\.checkpointer"):
        await backend.save(conversation("a"), "t")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"checkpointer\.backend\.save"):
        await backend.checkpointer(AgentState).save("t", {"a": 1})  # type: ignore[arg-type]
    assert await backend.list_threads() == []


if __name__ == "__main__":
    kept = asyncio.run(whole_lesson(Path(sys.argv[1])))
    print("done")

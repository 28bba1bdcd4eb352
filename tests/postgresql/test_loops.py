"""Any event loop: three in a row, closed or not, forgotten, or closed behind the store's back."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import servers
from drivers.plans import KEY, tick
from postgresql.steps import fresh, lines, save

from locus_store.backends.postgresql import PostgreSQLDriver

Open = Callable[..., PostgreSQLDriver]
HEAD = """
import asyncio, sys
from drivers.plans import KEY, tick
from postgresql.steps import fresh, lines, save
from locus_store.backends.postgresql import PostgreSQLDriver
driver = PostgreSQLDriver(sys.argv[1])
"""


def run(program: str, url: str) -> str:
    """What a program prints; anything that it says on the way, warnings included, is a failure."""
    tests = Path(servers.__file__).parent
    root = Path(__import__("locus_store").__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(program), url],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tests}"},
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize("close", [True, False])
def test_three_in_a_row(postgresql_url: str, close: bool) -> None:
    driver = PostgreSQLDriver(postgresql_url)

    async def once(i: int) -> None:
        await asyncio.gather(*[save(driver, fresh(f"x{i}")) for _ in range(5)])
        assert await lines(driver) == [f"x{i}"]
        if close:
            await driver.aclose()
            await driver.aclose()

    for i in range(3):
        asyncio.run(once(i))


def test_a_program_that_forgets_to_close(postgresql_url: str) -> None:
    program = """
        async def main():
            await asyncio.gather(*[save(driver, fresh("x")) for _ in range(20)])
            print(await lines(driver))
        asyncio.run(main())
        asyncio.run(main())
    """
    assert run(program, postgresql_url).split() == ["['x']"] * 2


def test_a_program_that_ends_with_tasks_at_work(postgresql_url: str) -> None:
    program = """
        async def main():
            await asyncio.gather(*[save(driver, fresh("x")) for _ in range(50)])
            for _ in range(30):
                asyncio.ensure_future(save(driver, fresh("y")))
                asyncio.ensure_future(driver.drop(KEY, ["z"], now=tick()))
            await asyncio.sleep(0.01)
        asyncio.run(main())
        print("end")
    """
    assert run(program, postgresql_url).split() == ["end"]


def test_a_program_that_fails(postgresql_url: str) -> None:
    program = """
        async def main():
            await save(driver, fresh("x"))
            raise KeyboardInterrupt
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("end")
    """
    assert run(program, postgresql_url).split() == ["end"]


def test_a_store_that_is_dropped(postgresql_url: str) -> None:
    program = """
        import gc
        async def main():
            global driver
            await save(driver, fresh("x"))
            del driver
            gc.collect()
            await asyncio.sleep(0.1)
        asyncio.run(main())
        print("end")
    """
    assert run(program, postgresql_url).split() == ["end"]


@pytest.mark.parametrize("close", [True, False])
def test_descriptors_and_sessions_stay_flat(
    postgresql_server: servers.PostgreSQLServer, postgresql_url: str, close: bool
) -> None:
    driver = PostgreSQLDriver(postgresql_url)

    async def once() -> None:
        await asyncio.gather(*[save(driver, fresh("x")) for _ in range(4)])
        if close:
            await driver.aclose()

    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc to count descriptors in")
    asyncio.run(once())
    before = count()
    for _ in range(50):
        asyncio.run(once())
    assert count() <= before
    assert len(driver._engines._opened) <= 1
    name = postgresql_url.rpartition("/")[2]
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
    # The server needs a moment to notice that a client has gone.
    deadline = time.monotonic() + 15
    while postgresql_server.execute(query)[0][0] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert postgresql_server.execute(query)[0][0] == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_that_is_closed_without_a_word(postgresql_url: str) -> None:
    """Its transports cannot be closed in order any more, but they are let go."""
    driver = PostgreSQLDriver(postgresql_url)
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(save(driver, fresh("x")))
        loop.close()
    assert asyncio.run(lines(driver)) == ["x"]
    assert len(driver._engines._opened) == 1
    del driver
    gc.collect()


def test_loops_in_several_threads(postgresql_url: str) -> None:
    driver = PostgreSQLDriver(postgresql_url, max_pool_size=2)
    failures: list[BaseException] = []

    async def work() -> None:
        for _ in range(5):
            await asyncio.gather(*[save(driver, fresh("x")) for _ in range(4)])

    def thread() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failures
    found = asyncio.run(driver.infos(KEY, before=None, limit=None, now=tick()))
    assert len(found) == 80


async def test_closing_while_others_work(open_driver: Open) -> None:
    """What is under way ends as it would; what begins later opens again."""
    driver = open_driver(max_pool_size=2)

    async def work() -> None:
        for _ in range(20):
            await save(driver, fresh("x"))

    async def close() -> None:
        for _ in range(10):
            await asyncio.sleep(0.005)
            await driver.aclose()

    await asyncio.gather(work(), work(), work(), close())
    assert len(await driver.infos(KEY, before=None, limit=None, now=tick())) == 60

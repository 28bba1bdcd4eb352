"""A process that saves to a file store: ``python -m drivers.file_child FOLDER NAME COUNT [KIND]``.

It grows one list by a line a save, which is the checkpoint's id, and prints each id once its save was acknowledged.
"""

from __future__ import annotations

import asyncio
import sys

from drivers.plans import KEY, base_of, make_plan, ranges_of, tick

from locus_store.backends.file import FileDriver
from locus_store.core.driver import Saved


async def main(folder: str, name: str, count: int, kind: str) -> None:
    driver = FileDriver(folder)
    for i in range(count):
        checkpoint_id = f"{name}-{i}"
        if kind == "mixed" and i % 7 == 3:
            checkpoint_id = f"{name}-again"
        while True:
            before = await driver.get(KEY, None, now=tick())
            plan = make_plan(
                checkpoint_id,
                {1: [f'"{name}-{i}"']},
                ranges_of(before) if before else {},
                base=base_of(before) if before else None,
                expected_version=(before.version if before else 0) if kind == "plain" else None,
                if_exists="in_place" if kind == "mixed" and i % 14 == 3 else "newest",
            )
            if isinstance(await driver.put(KEY, plan), Saved):
                break
        print(checkpoint_id, i, flush=True)
        if kind == "mixed" and i % 9 == 8:
            print("dropping", i - 1, flush=True)
            await driver.drop(KEY, [f"{name}-{i - 1}"], now=tick())
            print("dropped", i - 1, flush=True)
    await driver.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "plain"))

"""A user of a cluster who may do no more than the documentation says is needed."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_cluster.conftest import Open
from redis_servers import RedisCluster

from locus_store import BackendUnavailableError


@pytest.fixture
def user(cluster: RedisCluster, prefix: str) -> Iterator[str]:
    text = (Path(__file__).resolve().parents[2] / "docs" / "redis.md").read_text()
    rights = re.findall(r"\+[a-z|]+", text[text.index("**Rights**") :])
    assert "+asking" in rights
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "me", "on", ">secret", f"~{prefix}*", *rights)
    yield cluster.store_url.replace("://", "://me:secret@")
    for node in cluster.nodes:
        node.command("ACL", "DELUSER", "me")


async def test_the_rights_that_the_documentation_names_are_enough(
    cluster: RedisCluster, prefix: str, user: str, open_store: Open
) -> None:
    store = open_store(url=user, timeout=0.5, ttl_seconds=60, renew_on_load=True)
    for i in range(3):
        await store.save("t", {"messages": [str(n) * 300 for n in range(i)]}, f"c{i}", metadata={"i": i})
    await store.save("t", {"a": 1}, "c1")
    await store.put_records("t", "s", {"k": 1})
    assert await store.records("t", "s") == {"k": 1}
    assert await store.copy_thread("t", "u")
    assert await store.delete("t", "c0")
    assert len(await store.query_by_metadata("i", 2, versions="all")) == 2
    slot = cluster.slot(f"{prefix}{{default:t}}:h".encode())
    source = cluster.owner(slot)
    loop = asyncio.get_running_loop()
    moved = 0

    def between() -> None:
        nonlocal moved
        moved += 1
        if moved == 2:  # all keys are on the other node, which is asked with ASKING until the slot is its own
            with contextlib.suppress(BackendUnavailableError):
                assert asyncio.run_coroutine_threadsafe(store.load("t", "c2"), loop).result() is not None

    for node in (next(node for node in cluster.nodes if node is not source), source):
        moved = 0
        await asyncio.to_thread(cluster.move, slot, node, between)
    assert sorted(await store.list_threads(pattern="*")) == ["t", "u"]
    await store.vacuum(older_than_days=0)
    assert await store.delete("u")

"""What is done to one thread touches no other, on real servers: they list a folder before or after its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import s3_servers

from locus_store.backends.objects import names
from locus_store.backends.objects.s3 import S3Backend
from locus_store.core.driver import Key

IDS = [
    "a",
    "a/b",
    "a-b",
    "a.b",
    "a/",
    "a/v/1",
    "/a",
    "a//b",
    "../a",
    "..",
    ".",
    "a%2Fb",
    "a+b c",
    "A",
    "a\\b",
    "a\n",
    "a?x=1#y&z",
    "ä会",
    "\U0001f600",
    "a" * 512,
    "a" * 511 + "b",
    ".h" + "0" * 64,
    "v",
    "m",
]


@pytest.fixture(params=["seaweedfs", pytest.param("moto", marks=pytest.mark.endurance)])
def server(request: pytest.FixtureRequest) -> s3_servers.S3Server:
    found: s3_servers.S3Server = request.getfixturevalue(request.param)
    found.ensure_running()
    return found


@pytest.fixture
def bucket(server: s3_servers.S3Server) -> s3_servers.Bucket:
    return server.create_bucket()


@pytest.fixture
def open_store(server: s3_servers.S3Server, bucket: s3_servers.Bucket) -> Callable[..., S3Backend]:
    def open_one(prefix: str = "p", **options: Any) -> S3Backend:
        return S3Backend(
            bucket.name,
            prefix,
            endpoint_url=server.endpoint,
            region_name=s3_servers.REGION,
            aws_access_key_id=s3_servers.ACCESS_KEY,
            aws_secret_access_key=s3_servers.SECRET_KEY,
            **options,
        )

    return open_one


async def fill(store: S3Backend, thread: str) -> None:
    for name in ("1", "a/b", thread):
        await store.save(thread, {"of": thread, "as": name}, name, {"k": name})
    await store.put_records(thread, "s", {"k": thread})


async def as_it_was(store: S3Backend, thread: str) -> None:
    history = await store.history(thread, limit=None)
    expected = dict.fromkeys(reversed(["1", "a/b", thread]))
    assert [i.checkpoint_id for i in history] == [*expected]
    for name in expected:
        assert await store.load(thread, name) == {"of": thread, "as": name}
    assert await store.records(thread, "s") == {"k": thread}


def of_others(bucket: s3_servers.Bucket, thread: str) -> dict[str, int]:
    """All objects but a thread's own."""
    folder = f"/d/{names.encode(thread)}/"
    return {k: v for k, v in bucket.sizes().items() if folder not in k and not k.endswith(f".{names.encode(thread)}")}


async def test_deletions_with_hostile_ids_touch_nobody_else(open_store, bucket):
    store = open_store()
    for thread in IDS:
        await fill(store, thread)
    assert sorted(await store.list_threads(limit=None)) == sorted(IDS)
    for n, thread in enumerate(IDS):
        before = of_others(bucket, thread)
        assert await store.delete(thread, ["1"])
        assert await store.list_checkpoints(thread) == [*dict.fromkeys([thread, "a/b"])]
        assert await store.delete(thread)
        assert bucket.sizes() == before == of_others(bucket, thread)
        assert not await store.exists(thread)
        for other in IDS[n + 1 : n + 4]:
            await as_it_was(store, other)
    assert [k for k in bucket.sizes() if "/.probe/" not in k] == []
    await store.close()


async def test_other_changes_touch_nobody_else(open_store, bucket):
    store = open_store()
    for thread in ("a/b", "a-b", "a.b", "a0"):
        await fill(store, thread)
    before = of_others(bucket, "a")
    await fill(store, "a")
    await store.save("a", {"of": "a", "as": "new"}, "1")
    await store.save("a", {"of": "a", "as": "new"}, "a/b", if_exists="in_place")
    await store.delete_records("a", "s")
    assert of_others(bucket, "a") == before
    short = open_store(ttl_seconds=60, clock=lambda: 0)
    await short.save("a", {"of": "a"}, "short")
    await short.close()
    assert not await store.exists("a")
    await store.vacuum()
    assert bucket.sizes() == before
    await fill(store, "a")
    await store.copy_thread("a/b", "a", overwrite=True)
    assert of_others(bucket, "a") == before
    await store.vacuum(older_than_days=0, keep_last=3)
    assert of_others(bucket, "a") == before
    for thread in ("a/b", "a-b", "a.b", "a0"):
        await as_it_was(store, thread)
    await store.close()


async def test_stores_whose_prefixes_begin_alike_are_apart(open_store, bucket):
    stores = {p: open_store(p) for p in ("", "p", "p/q", "p-q", "default", "default/d/t")}
    tenants = [(p, t) for p in stores for t in ("default", "d", "m", "default/d")]
    for prefix, tenant in tenants:
        await stores[prefix].tenant(tenant).save("t", {"in": [prefix, tenant]})
    for prefix, tenant in tenants:
        before = bucket.sizes()
        store = stores[prefix].tenant(tenant)
        assert await store.list_threads() == ["t"]
        assert await store.load("t") == {"in": [prefix, tenant]}
        await store.vacuum(older_than_days=0, keep_last=1)
        assert bucket.sizes() == before
        assert await store.delete("t")
        gone = before.keys() - bucket.sizes().keys()
        root = names.Folder(names.check_prefix(prefix), Key(tenant, "t")).tenant.threads.removesuffix("d/")
        assert gone
        assert all(key.startswith(root) for key in gone)
    assert [k for k in bucket.sizes() if "/.probe/" not in k] == []
    for store in stores.values():
        await store.close()

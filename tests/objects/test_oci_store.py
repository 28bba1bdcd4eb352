"""Stores over OCI's double: a short way through what `make endurance` runs the whole shared suite over, and the two buckets
that it runs it in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import backends
import elsewhere
import pytest
from oci_buckets import DoubleBucket, NamedBucket, OCIBucket
from oci_double.process import NAMESPACE, Process, User

from locus_store import AgentState, OCIBucketBackend, OCIBucketCheckpointer, open_backend
from locus_store.memory.backends import oci_bucket_checkpointer


@pytest.fixture
def place(oci_double_bucket: OCIBucket) -> backends.Place:
    return backends.OCIDoublePlace(bucket=oci_double_bucket)


async def test_the_life_of_a_thread(place: backends.Place) -> None:
    left = backends.Left()
    store, other = place.open(), place.open()
    for i in range(5):
        await store.save("user:a/b", {"i": i}, f"c{i}", {"i": i, "even": i % 2 == 0})
    await store.save("user:a", {"i": "x"})
    assert await other.load("user:a/b") == {"i": 4}
    assert await other.load("user:a/b", "c1") == {"i": 1}
    assert await other.list_checkpoints("user:a/b") == ["c4", "c3", "c2", "c1", "c0"]
    assert await other.list_threads(pattern="user:*") == ["user:a", "user:a/b"]
    found = await other.query_by_metadata({"even": True}, versions="all")
    assert [r["checkpoint_id"] for r in found] == ["c4", "c2", "c0"]
    assert await other.copy_thread("user:a/b", "copy", upto="c2") is True
    assert await store.delete("user:a/b", "c4") is True
    assert await other.load("user:a/b") == {"i": 3}
    assert await store.delete("user:a/b") is True
    assert await other.exists("user:a/b") is False
    assert await other.load("user:a") == {"i": "x"}
    assert await other.list_checkpoints("copy") == ["c2", "c1", "c0"]
    for thread in ("user:a", "copy"):
        assert await other.delete(thread) is True
    assert place.count() == 0
    for one in (store, other):
        await one.close()
    await left.assert_nothing()


async def test_no_connection_is_left_although_somebody_keeps_the_errors(place: backends.Place) -> None:
    left = backends.Left()
    store, kept = place.open(), []
    await store.save("t", {}, "a")
    for _ in range(20):
        with pytest.raises(Exception, match="'a'") as error:
            await store.save("t", {"n": 2}, "a", if_exists="error")
        kept.append(error)
    kept.append(await _failed(store._driver._port))  # type: ignore[attr-defined]
    await store.close()
    await left.assert_nothing()
    assert len(kept) == 21


async def _failed(port: Any) -> BaseException:
    await port.put("agents/x", b"1")
    with pytest.raises(Exception, match="already") as error:
        await port.put("agents/x", b"2", new=True)
    await port.delete(["agents/x"])
    return error.value


async def test_all_faces_lead_to_the_same_bucket(place: backends.OCIPlace) -> None:
    arguments = place.bucket.arguments
    assert place.url is not None
    state = AgentState(agent_id="a", messages=[])
    first = oci_bucket_checkpointer(**arguments)
    await first.save(state, "t")
    for other in (
        OCIBucketCheckpointer(**arguments),
        OCIBucketBackend(**arguments).checkpointer(),
        open_backend(place.url).checkpointer(),
    ):
        found = await other.load("t")
        assert found is not None
        assert found.agent_id == "a"
        await other.close()
    await first.close()


def _named(double: Process, user: User, bucket: str, **more: str) -> NamedBucket:
    environment = {"BUCKET": bucket, "CONFIG": str(user.config_file), "ENDPOINT": double.url, **more}
    return NamedBucket({f"LOCUS_STORE_TEST_OCI_{name}": value for name, value in environment.items()})


@pytest.fixture(params=["of the double", "named by the environment", "with its namespace"])
def bucket(request: pytest.FixtureRequest, oci_double: Process, oci_user: User) -> Iterator[OCIBucket]:
    made: OCIBucket
    name = oci_double.make_bucket()
    if request.param == "of the double":
        made = DoubleBucket(oci_double, oci_user)
    else:
        made = _named(oci_double, oci_user, name + (f"@{NAMESPACE}" if "namespace" in request.param else ""))
    yield made
    oci_double.tell("drop bucket", name)


async def test_buckets_of_the_shared_suite(bucket: OCIBucket) -> None:
    left = backends.Left()
    bucket.put("a/b c", b"1")
    bucket.put("d", b"2")
    bucket.put("d", b"3")
    assert bucket.objects() == {"a/b c": b"1", "d": b"3"}
    bucket.remove("d")
    bucket.empty()
    assert bucket.objects() == {}
    async with open_backend(bucket.url) as store:
        await store.save("t", {"n": 1})
    assert len(bucket.objects()) == 4  # the marker, the record with what says where it is, and the beginning of the log
    bucket.empty()
    await left.assert_nothing()


def test_the_environment_may_say_all_of_it(oci_double: Process, oci_user: User) -> None:
    profile = oci_user.write_profile("agents", name="named")
    bucket = _named(oci_double, oci_user, "b@n", PROFILE="agents", CONFIG=str(profile), REGION="r", AUTH="api_key")
    assert bucket.arguments == {
        "bucket_name": "b",
        "namespace": "n",
        "prefix": f"locus-store-{os.getpid()}/",
        "auth_type": "api_key",
        "profile_name": "agents",
        "config_file": str(profile),
        "region": "r",
        "service_endpoint": oci_double.url,
    }
    assert bucket.version == f"the bucket 'b' at {oci_double.url}"


def test_the_sdk_is_imported_by_the_first_call_and_not_in_the_loops_thread(place: backends.Place) -> None:
    done = elsewhere.run(
        """
        import asyncio, sys, threading

        threads = []

        class Watch:
            def find_spec(self, name, path=None, target=None):
                if name == "oci":
                    threads.append(threading.current_thread().name)

        from elsewhere import connect

        async def main():
            async with connect(sys.argv[1]) as store:
                assert "oci" not in sys.modules
                sys.meta_path.insert(0, Watch())
                await store.save("t", {})

        asyncio.run(main())
        print(threads)
        """,
        place.address,
    )
    assert done.returncode == 0, done.stderr
    assert "locus-store-oci" in done.stdout
    assert "MainThread" not in done.stdout

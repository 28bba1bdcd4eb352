"""A whole store on a service that fails in the middle: each call has done what it says, or raised; nothing twice."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import s3_servers
from objects.s3_ports import shared_bucket
from s3_proxy import Fault, LateListings, Request, S3Proxy

from locus_store.backends.objects.s3 import S3Backend
from locus_store.core.errors import BackendError, BackendUnavailableError, StoreBusyError, UnsupportedOperationError

_numbers = itertools.count(1)

Open = Callable[..., S3Backend]


def open_on(server: s3_servers.S3Server, endpoint: str, prefix: str, **options: Any) -> S3Backend:
    found = {
        "endpoint_url": endpoint,
        "region_name": s3_servers.REGION,
        "aws_access_key_id": s3_servers.ACCESS_KEY,
        "aws_secret_access_key": s3_servers.SECRET_KEY,
        "max_retries": 2,
        "timeout": 20,
    }
    return S3Backend(shared_bucket(server).name, prefix, **{**found, **options})


@pytest.fixture
def prefix() -> str:
    return f"faults-{os.getpid()}-{next(_numbers)}/"


@pytest.fixture
async def proxy(moto: s3_servers.Moto) -> AsyncIterator[S3Proxy]:
    shared_bucket(moto)
    async with S3Proxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture
def open_store(moto: s3_servers.Moto, proxy: S3Proxy, prefix: str) -> Open:
    """Opens stores that reach the double by way of the proxy."""

    def open_one(**options: Any) -> S3Backend:
        return open_on(moto, proxy.endpoint, prefix, **options)

    return open_one


@pytest.fixture
def direct(moto: s3_servers.Moto, prefix: str) -> S3Backend:
    """One that does not."""
    shared_bucket(moto)
    return open_on(moto, moto.endpoint, prefix)


# ------------------------------------------------------------------------------------------------------ one fault each

FAULTS = {
    "500 before": Fault(500),
    "500 after": Fault(500, when="after"),
    "503 before": Fault(503, "SlowDown"),
    "503 after": Fault(503, "SlowDown", when="after"),
    "429 before": Fault(429, "TooManyRequests"),
    "reset before": Fault(None),
    "reset after": Fault(None, when="after"),
    "late": Fault(0, delay=1.5),  # longer than the client waits
}

Call = Callable[[S3Backend], Awaitable[Any]]
CALLS: dict[str, tuple[Call, Any]] = {
    "save": (lambda s: s.save("t", {"n": "new"}, "new"), "new"),
    "save without an id": (lambda s: s.save("t", {"n": "new"}), ...),
    "save as expected": (lambda s: s.save("t", {"n": "new"}, "new", expected_version=3), "new"),
    "save unless there": (lambda s: s.save("t", {"n": "new"}, "new", if_exists="error"), "new"),
    "save the first": (lambda s: s.save("u", {"n": "new"}, "new", expected_version=0), "new"),
    "replace": (lambda s: s.save("t", {"n": "new"}, "1"), "1"),
    "replace in place": (lambda s: s.save("t", {"n": "new"}, "1", if_exists="in_place"), "1"),
    "load": (lambda s: s.load("t"), {"n": 3}),
    "load one": (lambda s: s.load("t", "1"), {"n": 1}),
    "list": (lambda s: s.list_checkpoints("t"), ["3", "2", "1"]),
    "list threads": (lambda s: s.list_threads(), ["t"]),
    "delete one": (lambda s: s.delete("t", "2"), ...),
    "delete": (lambda s: s.delete("t"), ...),
    "copy": (lambda s: s.copy_thread("t", "u"), ...),
    "vacuum": (lambda s: s.vacuum(older_than_days=0, keep_last=1), ...),
    "put records": (lambda s: s.put_records("t", "s", {"k": 1}), ...),
}
BRIEFLY = ["save as expected", "replace in place", "delete"]


def thread(*checkpoints: tuple[int, str, str | None, Any], records: Any = ()) -> list[Any]:
    """What `everything` says of a thread."""
    return [*[list(column) for column in zip(*checkpoints, strict=True)], dict(records)]


ONE, TWO, THREE = (1, "1", None, {"n": 1}), (2, "2", "1", {"n": 2}), (3, "3", "2", {"n": 3})
NEW = (4, "new", "3", {"n": "new"})
AFTER = {
    "save": {"t": thread(NEW, THREE, TWO, ONE)},
    "save without an id": {"t": thread((4, "drawn", "3", {"n": "new"}), THREE, TWO, ONE)},
    "save as expected": {"t": thread(NEW, THREE, TWO, ONE)},
    "save unless there": {"t": thread(NEW, THREE, TWO, ONE)},
    "save the first": {"t": thread(THREE, TWO, ONE), "u": thread((1, "new", None, {"n": "new"}))},
    "replace": {"t": thread((4, "1", "3", {"n": "new"}), THREE, (2, "2", None, {"n": 2}))},
    "replace in place": {"t": thread(THREE, TWO, (1, "1", None, {"n": "new"}))},
    "load": {"t": thread(THREE, TWO, ONE)},
    "delete one": {"t": thread((3, "3", None, {"n": 3}), ONE)},
    "delete": {},
    "copy": {"t": thread(THREE, TWO, ONE), "u": thread(THREE, TWO, ONE)},
    "vacuum": {"t": thread((3, "3", None, {"n": 3}))},
    "put records": {"t": thread(THREE, TWO, ONE, records={"k": 1})},
}


async def everything(store: S3Backend) -> dict[str, Any]:
    """All that a tenant has; a checkpoint that was named by the store is called so."""
    found: dict[str, Any] = {}
    for thread in sorted(await store.list_threads(limit=None)):
        known = [(i.version, i.checkpoint_id, i.parent) for i in await store.history(thread, limit=None)]
        names = [name if len(name) < 9 else "drawn" for _, name, _ in known]
        found[thread] = [
            [v for v, _, _ in known],
            names,
            [p if p is None or len(p) < 9 else "drawn" for _, _, p in known],
            [await store.load(thread, name) for _, name, _ in known],
            await store.records(thread, "s"),
        ]
    return found


async def three(store: S3Backend) -> None:
    for n in (1, 2, 3):
        await store.save("t", {"n": n}, str(n))


def cases() -> list[Any]:
    """Each call with each fault; most are for the long tests."""
    found = []
    for call, fault in itertools.product(CALLS, FAULTS):
        brief = call in BRIEFLY and fault in ("503 after", "reset after")
        found.append(pytest.param(call, fault, marks=[] if brief else [pytest.mark.endurance]))
    return found


@pytest.mark.parametrize(("call", "fault"), cases())
async def test_every_request_fails_once_and_the_call_is_done_once(open_store, proxy, direct, call, fault):
    """The client repeats each of them, and what it finds of its own first attempt is its own."""
    do, expected = CALLS[call]
    await three(direct)
    store = open_store(timeout=0.5 if fault == "late" else 20)
    if fault.endswith("before"):  # it knows the thread; with the other faults it does not
        await store.load("t")
    seen: set[tuple[str, str]] = set()

    def rule(request: Request) -> Fault | None:
        name = request.method, request.target
        if name in seen:
            return None
        seen.add(name)
        return FAULTS[fault]

    proxy.rule = rule
    result = await do(store)
    proxy.rule = lambda _: None
    assert proxy.faults == len(seen) > 0
    if expected is not ...:
        assert result == expected
    assert await everything(direct) == AFTER.get(call, AFTER["load"])
    await store.save("t", {"n": "afterwards"})
    assert await direct.load("t") == {"n": "afterwards"}
    await store.close()


# ---------------------------------------------------------------------------------------------------------- many faults


@pytest.mark.endurance
@pytest.mark.parametrize("seed", [1, 2])
async def test_faults_everywhere_and_each_save_raised_or_is_there_once(open_store, proxy, direct, seed):
    rng = random.Random(seed)
    kinds = [f for name, f in FAULTS.items() if name != "late"]
    proxy.rule = lambda _: rng.choice(kinds) if rng.random() < 0.15 else None
    acknowledged: dict[str, int] = {}
    failed: set[str] = set()

    async def save(store: S3Backend, by: int) -> None:
        for n in range(12):
            name = f"{by}-{n}"
            try:
                acknowledged[await store.save(f"t{by % 2}", {"n": n}, name)] = n
            except (BackendUnavailableError, StoreBusyError):
                failed.add(name)

    stores = [open_store(max_retries=1) for _ in range(2)]
    await asyncio.gather(*[save(stores[by % 2], by) for by in range(4)])
    proxy.rule = lambda _: None
    assert proxy.faults > 20
    assert len(acknowledged) > 20
    names = []
    for thread in ("t0", "t1"):
        found = await direct.list_checkpoints(thread, limit=None)
        versions = [i.version for i in await direct.history(thread, limit=None)]
        assert versions == [*range(len(found), 0, -1)]
        names += found
        for name in found:
            assert await direct.load(thread, name) == {"n": int(name.partition("-")[2])}
    assert len(set(names)) == len(names)
    assert acknowledged.keys() <= set(names) <= acknowledged.keys() | failed
    for store in stores:
        await store.save("t0", {"n": 0}, "afterwards")
        await store.close()


async def test_an_outage_while_it_lasts_is_an_error_and_never_missing(open_store, proxy):
    store = open_store(max_retries=0)
    await three(store)
    for fault in (Fault(503, "SlowDown"), Fault(500), Fault(None), Fault(429, "TooManyRequests")):
        proxy.rule = lambda _, fault=fault: fault
        for call in (
            lambda: store.load("t"),
            lambda: store.load("t", "1"),
            lambda: store.exists("t"),
            store.list_threads,
            lambda: store.list_checkpoints("t"),
            lambda: store.delete("t"),
            lambda: store.query_by_metadata({}),
            lambda: store.copy_thread("t", "u"),
            store.vacuum,
        ):
            with pytest.raises(BackendUnavailableError):
                await call()
    proxy.rule = lambda _: None
    assert await store.list_checkpoints("t") == ["3", "2", "1"]
    await store.close()


# ------------------------------------------------------------------------------------------------------------- answers


async def test_a_conflict_is_tried_again(open_store, proxy):
    """409 says that the service could not decide, 412 that there is an object."""
    store = open_store()
    await three(store)
    left = 3

    def rule(request: Request) -> Fault | None:
        nonlocal left
        if "if-none-match" in request.headers and left:
            left -= 1
            return Fault(409, "ConditionalRequestConflict")
        return None

    proxy.rule = rule
    await store.save("t", {"n": 4}, "4")
    assert left == 0
    assert await store.list_checkpoints("t") == ["4", "3", "2", "1"]
    await store.close()


@pytest.mark.parametrize("size", [10, 100_000])
async def test_bodies_that_end_too_soon(open_store, proxy, size):
    store = open_store()
    document = {"n": 1, "data": os.urandom(size)}
    await store.save("t", document, "1")
    for cut in (0, 1, 50):
        proxy.rule = lambda request, cut=cut: Fault(0, cut=cut) if request.method == "GET" else None
        reader = open_store(max_retries=0)
        for call in (reader.load, reader.exists, reader.list_checkpoints, reader.delete):
            with pytest.raises(BackendUnavailableError):
                await call("t")
        await reader.close()
        before, proxy.faults = len(proxy.requests), 0
        # Once only: the client asks again.
        proxy.rule = lambda _, cut=cut, before=before: Fault(0, cut=cut) if len(proxy.requests) == before + 2 else None
        assert await store.load("t") == document
        assert proxy.faults == 1
    proxy.rule = lambda _: None
    assert await store.list_checkpoints("t") == ["1"]
    await store.close()


@pytest.mark.parametrize("body", [b"", b"<html>", b"<ListBucketResult>", b"<!DOCTYPE html><p>Sign in"])
async def test_a_listing_that_is_none_is_an_error(open_store, proxy, body):
    store = open_store(max_retries=0)
    await three(store)
    proxy.rule = lambda request: Fault(200, body=body) if request.kind == "LIST" else None
    for call in (store.load, store.exists, store.delete, store.list_checkpoints):
        with pytest.raises(BackendError):
            await call("t")
    with pytest.raises(BackendError):
        await store.list_threads()
    proxy.rule = lambda _: None
    assert await store.list_checkpoints("t") == ["3", "2", "1"]
    await store.close()


# ------------------------------------------------------------------------------------------------- no conditional writes


def ignores_conditions(request: Request) -> None:
    """A service that does not know If-None-Match."""
    request.headers.pop("if-none-match", None)


async def test_a_service_that_ignores_conditions_is_found_out(open_store, proxy, direct):
    proxy.rule = ignores_conditions
    store = open_store()
    for call in (
        lambda: store.save("t", {"n": 1}),
        lambda: store.delete("t"),
        lambda: store.put_records("t", "s", {"k": 1}),
        store.vacuum,
    ):
        with pytest.raises(UnsupportedOperationError, match="single_writer=True"):
            await call()
    assert await direct.list_threads() == []
    await store.close()


async def test_case_54_a_single_writer_is_safe_on_such_a_service(open_store, proxy, direct):
    proxy.rule = ignores_conditions
    store = open_store(single_writer=True)
    assert not store.capabilities.shared
    names = await asyncio.gather(*[store.save("t", {"n": n}) for n in range(20)])
    assert len(set(names)) == 20
    for n, name in enumerate(names):
        assert await direct.load("t", name) == {"n": n}
    await asyncio.gather(*[store.save("t", {"n": n}, "same") for n in range(5)], store.delete("t", names[3]))
    assert len(await store.list_checkpoints("t", limit=None)) == 20
    assert await store.copy_thread("t", "u")
    assert await store.delete("t")
    assert await direct.list_threads() == ["u"]
    await store.close()


# ------------------------------------------------------------------------------------------------------ late listings


@pytest.mark.parametrize("by", [2, pytest.param(5, marks=pytest.mark.endurance)])
async def test_listings_that_are_late_lose_and_double_nothing(open_store, proxy, direct, by):
    late = LateListings(by)
    proxy.rule = late
    stores = [open_store() for _ in range(2)]
    saved: dict[str, int] = {}

    async def save(store: S3Backend, who: int) -> None:
        for n in range(10):
            name = await store.save("t", {"n": n}, f"{who}-{n}")
            saved[name] = n
            # One's own save is seen at once: as the newest, or behind others' that are newer.
            found = await store.load("t")
            assert found is not None
            assert await store.exists("t")

    await asyncio.gather(*[save(stores[who % 2], who) for who in range(3)])
    assert late.hidden > 0
    proxy.rule = lambda _: None
    history = await direct.history("t", limit=None)
    assert [i.version for i in history] == [*range(30, 0, -1)]
    assert {i.checkpoint_id for i in history} == saved.keys()
    assert [i.parent for i in history] == [*[i.checkpoint_id for i in history[1:]], None]
    for name, n in saved.items():
        assert await direct.load("t", name) == {"n": n}
    for store in stores:
        await store.close()


async def test_a_thread_that_is_deleted_while_listings_are_late_is_gone(open_store, proxy, direct):
    store = open_store()
    await store.save("t", {"n": 0}, "0")
    proxy.rule = LateListings(30)
    for n in range(1, 8):
        await store.save("t", {"n": n}, str(n))
    assert await store.delete("t")
    assert await store.load("t") is None
    proxy.rule = lambda _: None
    assert await direct.list_threads() == []
    assert await direct.load("t") is None
    assert await store.load("t", "3") is None
    await store.save("t", {"n": "new"}, "new")
    assert await direct.list_checkpoints("t") == ["new"]
    await store.close()


# -------------------------------------------------------------------------------------- a real server that goes away


async def saves_through(store: S3Backend, trouble: Callable[[], Awaitable[None]]) -> tuple[dict[str, int], set[str]]:
    """200 saves, in the middle of which something happens; those that were acknowledged, and those that raised."""
    acknowledged: dict[str, int] = {}
    failed: set[str] = set()
    begun = asyncio.Event()

    async def save(by: int) -> None:
        for n in range(50):
            name = f"{by}-{n}"
            try:
                acknowledged[await store.save(f"t{by}", {"n": n}, name)] = n
            except (BackendUnavailableError, StoreBusyError):
                failed.add(name)
            if len(acknowledged) >= 60:
                begun.set()

    async def after_a_while() -> None:
        await begun.wait()
        await trouble()

    await asyncio.gather(after_a_while(), *[save(by) for by in range(4)])
    assert len(acknowledged) + len(failed) == 200
    return acknowledged, failed


@pytest.mark.parametrize(
    "trouble",
    [
        "restarted",
        pytest.param("paused", marks=pytest.mark.endurance),
        pytest.param("cut off", marks=pytest.mark.endurance),
    ],
)
async def test_200_saves_while_the_server_goes_away(seaweedfs, prefix, trouble):
    shared_bucket(seaweedfs)
    async with S3Proxy(seaweedfs.endpoint) as proxy:
        store = open_on(seaweedfs, proxy.endpoint, prefix, timeout=1.0, max_retries=1)

        async def happens() -> None:
            if trouble == "paused":
                seaweedfs.pause()
                await asyncio.sleep(4)
                seaweedfs.resume()
            elif trouble == "restarted":
                seaweedfs.kill()
                await asyncio.to_thread(seaweedfs.start)
            else:
                proxy.rule = lambda _: Fault(None)
                await asyncio.sleep(2)
                proxy.rule = lambda _: None

        try:
            acknowledged, failed = await saves_through(store, happens)
        finally:
            await asyncio.to_thread(seaweedfs.ensure_running)
        other = open_on(seaweedfs, seaweedfs.endpoint, prefix)
        for by in range(4):
            found = await other.history(f"t{by}", limit=None)
            names = [i.checkpoint_id for i in found]
            assert [i.version for i in found] == [*range(len(names), 0, -1)]
            theirs = {name for name in acknowledged if name.startswith(f"{by}-")}
            assert theirs <= set(names) <= theirs | failed
            for name in names:
                assert await other.load(f"t{by}", name) == {"n": int(name.partition("-")[2])}
        await store.save("t0", {"n": 0}, "afterwards")
        assert await store.load("t0") == {"n": 0}
        await store.close()
        await other.close()

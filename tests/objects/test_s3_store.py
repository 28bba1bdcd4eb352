"""Stores in S3 buckets: services that cannot do all, wrong settings, and what the errors say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import backends
import pytest
import s3_servers
import servers
from certificates import tls_server
from elsewhere import run
from objects.s3_ports import shared_bucket
from s3_proxy import Fault, Request, S3Proxy

from locus_store import (
    AgentState,
    BackendError,
    BackendUnavailableError,
    S3Backend,
    S3Checkpointer,
    UnsupportedOperationError,
    open_backend,
)
from locus_store.memory.backends import s3_checkpointer


@pytest.fixture
def bucket(moto: s3_servers.Moto) -> s3_servers.Bucket:
    shared_bucket(moto)
    return moto.create_bucket()


@pytest.fixture
async def proxy(bucket: s3_servers.Bucket) -> AsyncIterator[S3Proxy]:
    async with S3Proxy(bucket.endpoint) as proxy:
        yield proxy


def arguments(place: s3_servers.Bucket, **options: Any) -> dict[str, Any]:
    """What a backend in a bucket needs; the options win."""
    return {
        "bucket": place.name,
        "endpoint_url": place.endpoint,
        "region_name": s3_servers.REGION,
        "aws_access_key_id": s3_servers.ACCESS_KEY,
        "aws_secret_access_key": s3_servers.SECRET_KEY,
        "max_retries": 1,
        **options,
    }


@pytest.fixture
def store(bucket: s3_servers.Bucket, proxy: S3Proxy) -> Iterator[S3Backend]:
    """A store behind the proxy."""
    return S3Backend(**arguments(bucket, endpoint_url=proxy.endpoint))


# ------------------------------------------------------------------------------------------- services that are not S3


async def test_case_77_a_service_that_knows_plain_requests_only(store, proxy, bucket):
    def rule(request: Request) -> Fault | None:
        headers = request.headers
        # What was there from the beginning is a SHA-256 of the body, and an MD5 of a list of what is to be deleted.
        new = [
            name for name in headers if name.startswith(("x-amz-sdk-checksum", "x-amz-trailer", "x-amz-checksum-crc"))
        ]
        if request.kind == "PUT":
            new += [name for name in headers if name.startswith("x-amz-checksum")]
        if new or "transfer-encoding" in headers or "content-encoding" in headers:
            return Fault(501, "NotImplemented")
        if not headers["x-amz-content-sha256"].isalnum() or headers["x-amz-content-sha256"].startswith("UNSIGNED"):
            return Fault(501, "NotImplemented")  # STREAMING-…-TRAILER, UNSIGNED-PAYLOAD
        if request.kind == "MULTIDELETE" and "content-md5" not in headers:
            return Fault(400, "MissingContentMD5")
        return None

    proxy.rule = rule
    for n in range(3):
        await store.save("t", {"n": n, "text": "ä" * 100_000}, f"c{n}")
    assert await store.load("t", "c1") == {"n": 1, "text": "ä" * 100_000}
    assert await store.copy_thread("t", "copy")
    assert await store.delete("t", ["c0", "c1"])
    assert await store.delete("copy")
    assert await store.vacuum() == 0
    assert await store.delete("t")
    assert bucket.sizes() == {}
    assert proxy.faults == 0, [r for r in proxy.requests if r.answered == 501]
    await store.close()


@pytest.mark.parametrize("status", [400, 501])
async def test_case_77_a_service_without_multi_delete(store, proxy, bucket, status):
    proxy.rule = lambda request: Fault(status, "NotImplemented") if request.kind == "MULTIDELETE" else None
    for n in range(3):
        await store.save("t", {"n": n}, f"c{n}")
    assert await store.delete("t", "c0")
    assert await store.list_checkpoints("t") == ["c2", "c1"]
    assert await store.delete("t")
    assert bucket.sizes() == {}
    await store.close()


def forget_conditions(request: Request) -> None:
    """A service that takes no notice of conditions."""
    request.headers.pop("if-none-match", None)


@pytest.mark.parametrize("by", ["setup", "save", "put_records", "copy_thread", "vacuum"])
async def test_a_service_without_conditional_writes_is_found_out(store, proxy, bucket, by):
    proxy.rule = forget_conditions
    calls = {
        "setup": lambda: store.setup(),
        "save": lambda: store.save("t", {}),
        "put_records": lambda: store.put_records("t", "s", {"k": 1}),
        "copy_thread": lambda: store.copy_thread("t", "u"),
        "vacuum": lambda: store.vacuum(),
    }
    for _ in range(2):
        with pytest.raises(UnsupportedOperationError, match=r"conditional writes.*single_writer=True"):
            await calls[by]()
    assert await store.load("t") is None
    assert bucket.sizes() == {}
    await store.close()


async def test_its_single_writer_may_use_it(proxy, bucket):
    proxy.rule = forget_conditions
    async with S3Backend(**arguments(bucket, endpoint_url=proxy.endpoint), single_writer=True) as store:
        assert store.capabilities.shared is False
        await store.setup()
        for n in range(3):
            await store.save("t", {"n": n}, f"c{n}", expected_version=n)
        await store.save("t", {"n": "new"}, "c1", if_exists="in_place")
        assert [await store.load("t", f"c{n}") for n in range(3)] == [{"n": 0}, {"n": "new"}, {"n": 2}]
        assert await store.delete("t")
    assert bucket.sizes() == {}


async def test_a_conflict_is_tried_again(store, proxy):
    await store.setup()
    left = 3

    def rule(request: Request) -> Fault | None:
        nonlocal left
        if left and "if-none-match" in request.headers:
            left -= 1
            return Fault(409, "ConditionalRequestConflict")
        return None

    proxy.rule = rule
    await store.save("t", {"n": 1}, "a")
    assert left == 0
    assert await store.list_checkpoints("t") == ["a"]
    await store.close()


async def test_a_save_whose_answer_was_lost_is_there_once(store, proxy):
    await store.save("t", {"n": 0}, "first")
    lost: list[str] = []

    def rule(request: Request) -> Fault | None:
        if not lost and "if-none-match" in request.headers:
            lost.append(request.key)
            return Fault(None, when="after")
        return None

    proxy.rule = rule
    await store.save("t", {"n": 1}, "second", expected_version=1)
    assert len(lost) == 1
    assert await store.list_checkpoints("t") == ["second", "first"]
    await store.close()


# --------------------------------------------------------------------------------------------------- wrong settings


CALLS = {
    "setup": lambda s: s.setup(),
    "save": lambda s: s.save("t", {"secret": "of the user's"}),
    "load": lambda s: s.load("t"),
    "list_threads": lambda s: s.list_threads(),
    "delete": lambda s: s.delete("t"),
    "vacuum": lambda s: s.vacuum(),
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "secret key": ({"aws_secret_access_key": "wrong-secret"}, "check aws_secret_access_key"),
    "access key": ({"aws_access_key_id": "nobody"}, "check aws_access_key_id"),
    "bucket": ({"bucket": "there-is-none"}, "there is no such bucket: make it, or pass create_bucket=True"),
}


async def said(store: S3Backend, call: str, kind: type[BackendError]) -> str:
    """What the error of a call says, in which there are no secrets."""
    with pytest.raises(BackendError) as error:
        await CALLS[call](store)
    await store.close()
    assert type(error.value) is kind
    assert error.value.__cause__ is not None
    for text in (str(error.value), repr(error.value), repr(store)):
        for secret in (s3_servers.SECRET_KEY, "wrong-secret", "of the user's"):
            assert secret not in text
    return str(error.value)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_setting_is_told_with_the_bucket(seaweedfs, what, call):
    given, expected = WRONG[what]
    made = arguments(shared_bucket(seaweedfs), **given)
    text = await said(S3Backend(**made), call, BackendError)
    assert f"the S3 bucket {made['bucket']!r} at {seaweedfs.endpoint}" in text
    assert expected in text


@pytest.mark.parametrize("call", ["setup", "save", "vacuum"])
async def test_one_who_may_only_read(seaweedfs, call):
    made = arguments(shared_bucket(seaweedfs), aws_access_key_id=s3_servers.READER_KEY)
    text = await said(S3Backend(**made), call, BackendError)
    assert f"the S3 bucket {made['bucket']!r}" in text
    assert "s3:PutObject" in text
    async with S3Backend(**made) as reader:
        assert await reader.load("t") is None
        assert await reader.list_threads(pattern="nobody*") == []


@pytest.mark.parametrize("call", CALLS)
async def test_nobody_is_there(bucket, call):
    made = arguments(bucket, endpoint_url="http://127.0.0.1:9", max_retries=0)
    text = await said(S3Backend(**made), call, BackendUnavailableError)
    assert f"the S3 bucket {bucket.name!r} at http://127.0.0.1:9: it cannot be reached" in text


async def test_a_bucket_that_is_missing_is_made_if_that_is_asked_for(moto):
    made = arguments(moto.bucket(f"{shared_bucket(moto).name}-made"), create_bucket=True)
    async with S3Backend(**made) as store:
        await store.save("t", {"n": 1})
        assert await store.load("t") == {"n": 1}


async def test_certificates(bucket, tmp_path):
    tls, authority = tls_server(tmp_path)
    async with S3Proxy(bucket.endpoint, tls) as proxy:
        given = arguments(bucket, endpoint_url=proxy.endpoint, max_retries=0)
        text = await said(S3Backend(**given), "save", BackendUnavailableError)
        assert f"{bucket.name!r} at {proxy.endpoint}: its certificate is not trusted (UnknownIssuer)" in text
        assert "verify" in text
        assert proxy.requests == []
        for verify in (str(authority), False):
            async with S3Backend(**given, verify=verify) as store:
                await store.save("t", {"verify": verify})
                assert await store.load("t") == {"verify": verify}
    text = await said(S3Backend(**given, verify=str(tmp_path / "none.pem")), "save", BackendError)
    assert f"{bucket.name!r} at {proxy.endpoint}: verify names a file that cannot be read" in text


async def test_tls_where_there_is_none(bucket):
    given = arguments(bucket, endpoint_url=bucket.endpoint.replace("http://", "https://"), max_retries=0)
    text = await said(S3Backend(**given), "save", BackendUnavailableError)
    assert f"the S3 bucket {bucket.name!r}" in text
    assert "it does not speak TLS" in text


# ------------------------------------------------------------------------------------------------------- other ways in


async def test_the_environment_says_who_signs_in(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_servers.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_servers.SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.endpoint)
    monkeypatch.setenv("AWS_REGION", s3_servers.REGION)
    async with open_backend(f"s3://{bucket.name}/agents") as store:
        await store.save("t", {"n": 1})
        assert s3_servers.SECRET_KEY not in repr(store)
    assert all(key.startswith("agents/") for key in bucket.sizes())
    assert len(bucket.sizes()) > 0


async def test_agent_states(bucket):
    async with S3Checkpointer(**arguments(bucket)) as checkpointer, s3_checkpointer(**arguments(bucket)) as other:
        await checkpointer.save(AgentState(agent_id="a"), "t")
        found = await other.load("t")
        assert found is not None
        assert found.agent_id == "a"
        for one in (checkpointer, other):
            assert s3_servers.SECRET_KEY not in repr(one)
            assert s3_servers.ACCESS_KEY not in repr(one)


async def test_a_store_that_is_handed_in(bucket):
    from obstore.store import S3Store

    handed = S3Store(
        bucket.name,
        endpoint=bucket.endpoint,
        region=s3_servers.REGION,
        access_key_id=s3_servers.ACCESS_KEY,
        secret_access_key=s3_servers.SECRET_KEY,
        client_options={"allow_http": True},
    )
    async with S3Backend(store=handed) as store:
        await store.save("t", {"n": 1})
        assert s3_servers.SECRET_KEY not in repr(store)
    async with S3Backend(**arguments(bucket)) as other:
        assert await other.load("t") == {"n": 1}


async def test_closing_leaves_no_connection(seaweedfs):
    place = backends.S3Place(server=seaweedfs)
    servers.note_ran(place.name, seaweedfs.version)
    async with place.open() as store:
        await store.save("warm", {})
    left = backends.Left()
    for _ in range(20):
        async with place.open() as store:
            await store.list_threads()
    await left.assert_nothing()


@pytest.mark.parametrize("attempt", range(10))
def test_case_63_a_program_that_closes_nothing_ends_well(bucket, attempt):
    """Right after its last call, when obstore's threads have not let go of that yet."""
    done = run(
        """
        import asyncio, json, sys
        from locus_store import S3Backend

        store = S3Backend(**json.loads(sys.argv[1]))
        asyncio.run(store.save("t", {"n": 1}))
        asyncio.run(store.load("t"))
        """,
        json.dumps(arguments(bucket)),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

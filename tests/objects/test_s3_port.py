"""The port over obstore: what becomes of errors, faults and the peculiarities of S3 look-alikes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import s3_servers
from objects.s3_ports import options_for, port_of, shared_bucket
from s3_proxy import Fault, Request, S3Proxy

from locus_store.backends.objects.obstore_port import ObstorePort
from locus_store.backends.objects.port import ObjectConflictError, ObjectExistsError, all_listed
from locus_store.core.errors import BackendError, BackendUnavailableError

CALLS = {
    "get": lambda port: port.get("errors/a"),
    "list": lambda port: port.list("errors/"),
    "put": lambda port: port.put("errors/a", b"1"),
    "put new": lambda port: port.put("errors/new", b"1", new=True),
    "delete": lambda port: port.delete(["errors/nobody"]),
}
WRITES = ("put", "put new", "delete")


@pytest.fixture(params=list(CALLS))
def call(request: pytest.FixtureRequest) -> Any:
    return CALLS[request.param]


@pytest.fixture
def server(moto: s3_servers.Moto) -> s3_servers.Moto:
    shared_bucket(moto)
    return moto


@pytest.fixture
async def proxy(server: s3_servers.Moto) -> AsyncIterator[S3Proxy]:
    async with S3Proxy(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
async def port(server: s3_servers.Moto, proxy: S3Proxy) -> AsyncIterator[ObstorePort]:
    made = port_of(options_for(server, endpoint_url=proxy.endpoint))
    yield made
    await made.aclose()


class TestErrors:
    async def fails(self, call: Any, kind: type[BackendError], server: s3_servers.S3Server, **options: Any) -> str:
        port = port_of(options_for(server, **options))
        with pytest.raises(BackendError) as error:
            await call(port)
        await port.aclose()
        assert type(error.value) is kind
        assert error.value.__cause__ is not None
        text = str(error.value)
        assert (options.get("aws_secret_access_key") or s3_servers.SECRET_KEY) not in text
        return text

    async def test_a_wrong_secret_key(self, seaweedfs, call):
        text = await self.fails(call, BackendError, seaweedfs, aws_secret_access_key="wrong-secret")
        assert "check aws_secret_access_key" in text

    async def test_a_wrong_access_key(self, seaweedfs, call):
        text = await self.fails(call, BackendError, seaweedfs, aws_access_key_id="nobody")
        assert "check aws_access_key_id" in text

    @pytest.mark.parametrize("call", [CALLS[name] for name in WRITES], ids=WRITES)
    async def test_one_who_may_only_read(self, seaweedfs, call):
        text = await self.fails(call, BackendError, seaweedfs, aws_access_key_id=s3_servers.READER_KEY)
        assert "AccessDenied: these credentials lack a right" in text

    async def test_no_such_bucket(self, server, call):
        text = await self.fails(call, BackendError, server, bucket="there-is-none")
        assert "the S3 bucket 'there-is-none' at http://127.0.0.1" in text
        assert "create_bucket=True" in text

    async def test_no_such_server(self, server, call):
        text = await self.fails(call, BackendUnavailableError, server, endpoint_url="http://127.0.0.1:9")
        assert "cannot be reached" in text

    async def test_a_web_server_that_is_none_of_s3(self, port, proxy, call):
        # It says "404" to everything, and nothing is missing.
        proxy.rule = lambda _: Fault(404, "NotFound")
        with pytest.raises(BackendError, match="404"):
            await call(port)

    async def test_no_credentials(self, server, call, monkeypatch):
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # nobody asks the machine's own
        text = await self.fails(call, BackendError, server, aws_access_key_id=None, aws_secret_access_key=None)
        assert "no credentials: give aws_access_key_id" in text

    async def test_an_object_that_is_not_there(self, server):
        port = port_of(options_for(server))
        assert await port.get("errors/nobody") is None
        assert await port.get("errors/nobody", start=5) is None

    async def test_one_of_many_is_not_deleted(self, port, proxy):
        body = (
            b"<DeleteResult><Error><Key>errors/b</Key><Code>%s</Code><Message>on purpose</Message></Error>"
            b"</DeleteResult>"
        )
        for code, kind in ((b"AccessDenied", BackendError), (b"InternalError", BackendUnavailableError)):
            proxy.rule = lambda _, code=code: Fault(200, body=body % code)
            with pytest.raises(BackendError, match=code.decode()) as error:
                await port.delete(["errors/a", "errors/b"])
            assert type(error.value) is kind


class TestFaults:
    @pytest.mark.parametrize("fault", [Fault(500), Fault(503, "SlowDown"), Fault(429, "TooManyRequests"), Fault(None)])
    async def test_a_fault_that_passes_is_not_noticed(self, port, proxy, call, fault):
        await port.delete(["errors/new"])
        before = len(proxy.requests)
        proxy.rule = lambda _: fault if len(proxy.requests) == before + 1 else None
        await call(port)
        assert proxy.faults == 1

    @pytest.mark.parametrize("fault", [Fault(500), Fault(503, "SlowDown"), Fault(None)])
    async def test_a_fault_that_lasts_is_an_outage(self, port, proxy, call, fault):
        proxy.rule = lambda _: fault
        with pytest.raises(BackendUnavailableError):
            await call(port)
        proxy.rule = lambda _: None
        await port.delete(["errors/new"])
        await call(port)

    async def test_an_answer_that_is_lost_leaves_the_object(self, port, proxy):
        # The attempt is repeated, and meets its own first one: whose it is, the driver finds out.
        await port.delete(["errors/new"])
        before = len(proxy.requests)
        proxy.rule = lambda _: Fault(None, when="after") if len(proxy.requests) == before + 1 else None
        with pytest.raises(ObjectExistsError):
            await port.put("errors/new", b"mine", new=True)
        found = await port.get("errors/new")
        assert found is not None
        assert found.data == b"mine"

    async def test_a_conflict_is_no_existing_object(self, port, proxy):
        proxy.rule = lambda _: Fault(409, "ConditionalRequestConflict")
        with pytest.raises(ObjectConflictError):
            await port.put("errors/new", b"", new=True)

    async def test_a_server_that_does_not_answer(self, server, proxy):
        proxy.rule = lambda _: Fault(0, delay=30)
        port = port_of(options_for(server, endpoint_url=proxy.endpoint, timeout=0.3, max_retries=0))
        with pytest.raises(BackendUnavailableError):
            await port.get("errors/a")

    async def test_requests_wait_for_their_turn(self, server, proxy):
        most = now = 0

        def rule(_: Request) -> Fault | None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            asyncio.get_running_loop().call_later(0.02, done)
            return Fault(0, delay=0.03)

        def done() -> None:
            nonlocal now
            now -= 1

        proxy.rule = rule
        port = port_of(options_for(server, endpoint_url=proxy.endpoint), max_requests=4)
        await asyncio.gather(*[port.get(f"errors/{n}") for n in range(40)])
        assert 1 < most <= 4


class TestLookAlikes:
    async def test_case_77_no_chunked_uploads_and_no_new_checksums(self, port, proxy):
        def rule(request: Request) -> Fault | None:
            """OCI's and others' S3 doors: a plain body with its length, and a multi-delete with an MD5."""
            headers = request.headers
            if "transfer-encoding" in headers or "x-amz-trailer" in headers or "content-encoding" in headers:
                return Fault(501, "NotImplemented")
            if headers["x-amz-content-sha256"].startswith("STREAMING"):
                return Fault(501, "NotImplemented")
            if request.method in ("PUT", "POST") and "content-length" not in headers:
                return Fault(411, "MissingContentLength")
            if request.kind == "MULTIDELETE" and "content-md5" not in headers:
                return Fault(400, "MissingContentMD5")
            return None

        proxy.rule = rule
        for name in "abc":
            await port.put(f"case77/{name}", name.encode() * 100_000, new=name == "a")
        await port.delete([f"case77/{name}" for name in "abc"])
        assert await all_listed(port, "case77/") == []
        assert proxy.faults == 0

    @pytest.mark.parametrize("status", [400, 405, 501])
    async def test_without_multi_delete_objects_are_deleted_one_by_one(self, port, proxy, status):
        proxy.rule = lambda request: Fault(status, "NotImplemented") if request.kind == "MULTIDELETE" else None
        for turn in range(2):
            for name in "abc":
                await port.put(f"singly/{name}", b"")
            before = proxy.count("MULTIDELETE")
            await port.delete([f"singly/{name}" for name in "abc"])
            assert await all_listed(port, "singly/") == []
            if turn:  # what was found out is remembered
                assert proxy.count("MULTIDELETE") == before
        assert proxy.count("DELETE") == 6

    async def test_a_bucket_is_made_if_that_is_asked_for(self, seaweedfs, server):
        for made_on in (seaweedfs, server):
            made_on.ensure_running()
            options = options_for(made_on, bucket=f"made-on-demand-{id(made_on)}")
            ports = [port_of(options, create=True) for _ in range(3)]
            await asyncio.gather(*[port.put(f"k{n}", b"") for n, port in enumerate(ports)])
            assert len(await all_listed(ports[0], "")) == 3

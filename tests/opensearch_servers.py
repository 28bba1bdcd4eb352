"""Servers for the tests of OpenSearch: two doubles, or a real server that somebody else runs.

No real server can be had from a package. `Osmem` speaks OpenSearch and shows every write at once, `Noida` speaks
Elasticsearch 8 and shows writes to searches only after a refresh, as real ones do. With ``LOCUS_STORE_TEST_OPENSEARCH_URL``
(``http://user:password@host:9200``) the suite goes through a real one, too. `tests/conftest.py` makes fixtures of this.
"""

from __future__ import annotations

import http.client
import importlib.util
import itertools
import json
import os
import signal
import ssl
import subprocess
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import servers

OPENSEARCH_URL = "LOCUS_STORE_TEST_OPENSEARCH_URL"
"""The environment variable that names a real server."""

_NAMES = itertools.count(1)


class OpenSearchError(Exception):
    """The server refused a request of the tests' own client."""


class OpenSearchServer(ABC):
    """A server, looked at past the store: a connection for each request, so that nothing stays open.

    Attributes:
        name: What the table of backends calls it.
        version: What the summary says of it.
        managed: Whether it is ours, so that a test may stop it.
    """

    name: str
    version: str
    managed = False

    def __init__(self, url: str) -> None:
        self.url = url
        self._indexes: list[str] = []

    @property
    def port(self) -> int:
        """The port it listens on, the same after each restart."""
        return urlsplit(self.url).port or 9200

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request; the answer, taken apart."""
        parts = urlsplit(self.url)
        headers = {"Content-Type": "application/json"}
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = "Basic " + b64encode(user.encode()).decode()
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(parts.hostname or "", self.port, timeout=30, context=context)
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", self.port, timeout=30)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise OpenSearchError(f"{method} {path}: {answer.status} {said[:300]!r}")
        return json.loads(said) if said else None

    def new_index(self) -> str:
        """The name of an index that is not there. Of those that were given out before, the last twenty stay."""
        while len(self._indexes) >= 20:
            self.drop_index(self._indexes.pop(0))
        self._indexes.append(f"locus-test-{os.getpid()}-{next(_NAMES)}")
        return self._indexes[-1]

    def address(self, index: str) -> str:
        """The URL by which a store finds an index."""
        parts = urlsplit(self.url)
        return f"opensearch{'s' if parts.scheme == 'https' else ''}://{parts.netloc}/{index}"

    def drop_index(self, index: str) -> None:
        """Removes an index and its template, if they are there."""
        for path in (f"/{index}", f"/_index_template/{index}"):
            try:
                self.request("DELETE", path)
            except OpenSearchError as error:
                if ": 404 " not in str(error):
                    raise

    def documents(self, index: str) -> list[dict[str, Any]]:
        """All documents of an index: ``_id`` and ``_source`` and more."""
        try:
            self.request("POST", f"/{index}/_refresh")
        except OpenSearchError as error:
            if ": 404 " in str(error):
                return []
            raise
        found: list[dict[str, Any]] = []
        body: dict[str, Any] = {"size": 1000, "query": {"match_all": {}}}
        page = self.request("POST", f"/{index}/_search?scroll=1m", body)
        while page["hits"]["hits"]:
            found += page["hits"]["hits"]
            page = self.request("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
        self.request("DELETE", "/_search/scroll", {"scroll_id": [page["_scroll_id"]]})
        return found

    def clear(self, index: str) -> None:
        """Removes all documents of an index."""
        self.request("POST", f"/{index}/_refresh")
        self.request("POST", f"/{index}/_delete_by_query?refresh=true", {"query": {"match_all": {}}})

    def write(self, index: str, documents: list[dict[str, Any]]) -> None:
        """Stores documents as `documents` gives them."""
        for at in range(0, len(documents), 500):
            lines: list[str] = []
            for one in documents[at : at + 500]:
                lines += [json.dumps({"index": {"_id": one["_id"]}}), json.dumps(one["_source"])]
            answer = self.request("POST", f"/{index}/_bulk", ("\n".join(lines) + "\n").encode())
            assert not answer["errors"], answer

    def ensure_running(self) -> None:  # noqa: B027  somebody else's runs, or does not
        """Starts it if a test left it stopped."""

    def close(self) -> None:  # noqa: B027  somebody else's stays
        """Stops it, if it is ours."""


class External(OpenSearchServer):
    """A real server that somebody else runs."""

    name = "opensearch"

    def __init__(self, url: str) -> None:
        super().__init__(url.rstrip("/"))
        version = self.request("GET", "/")["version"]
        self.version = f"{version.get('distribution', 'Elasticsearch')} {version['number']}"


class Double(OpenSearchServer):
    """A double that is ours: it ends with this process, and keeps its port through a restart."""

    managed = True

    def __init__(self) -> None:
        super().__init__("")
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = servers.Folder(f"locus-{self.name}-")
        self._log = self._folder.path / "log"
        try:
            for attempt in range(5):
                self.url = f"http://127.0.0.1:{servers.free_port()}"
                try:
                    self.start()
                except servers.ServerUnavailableError:
                    if attempt == 4:
                        raise
                else:
                    break
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _command(self) -> list[str]:
        """What starts it."""

    def start(self) -> None:
        """Starts it, and waits until it answers; does nothing while it runs."""
        if self._process is not None:
            return
        self._process = servers.Runner([], None, end="KILL").popen(self._command(), self._log, tied=True)
        deadline = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self.request("GET", "/")
            except (OSError, http.client.HTTPException, OpenSearchError):
                time.sleep(0.02)
            else:
                return
        self.kill()
        raise servers.ServerUnavailableError(
            f"{self.name} did not start: {self._log.read_text(errors='replace')[-500:]}"
        )

    def ensure_running(self) -> None:
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

    def stop(self) -> None:
        """Stops it in order."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            servers.end(process, signal.SIGTERM)

    def kill(self) -> None:
        """Crashes it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.kill()
        self._folder.remove()


class Osmem(Double):
    """A double of OpenSearch in memory; a restart empties it."""

    name = "opensearch-double"
    version = "osmem 0.1.6, a double in memory; no OpenSearch"

    def _command(self) -> list[str]:
        program = _package("osmem_server") / "bin" / "osmem-server"
        return [str(program), "-addr", f"127.0.0.1:{self.port}", "-no-stdin-watch", "-no-ja"]


class Noida(Double):
    """A double of Elasticsearch 8, in which searches see a write after a refresh; it keeps its data."""

    name = "elasticsearch-double"
    version = "noida-db 0.2.3, a double; no Elasticsearch"

    def _command(self) -> list[str]:
        program = str(_package("noida_db") / "noida-db")
        options = ["--elasticsearch-port", str(self.port), "--data-dir", str(self._folder.path / "data")]
        return [program, "start", "--only", "elasticsearch", *options]


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise servers.ServerUnavailableError(f"the package {name} is not installed: see the extra 'test'")
    return Path(found.origin).parent

"""The double as a process: ``python -m oci_double.server [certificate.pem key.pem]`` prints its port."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from oci_double import signing
from oci_double.answers import Answer, Refused, as_json
from oci_double.buckets import Buckets, Object
from oci_double.faults import Fault, Faults
from oci_double.identity import Identity

NAMESPACE = "doublespace"


class Double:
    """All that the server knows."""

    def __init__(self) -> None:
        self.buckets = Buckets(NAMESPACE)
        self.identity = Identity()
        self.faults = Faults()
        self.requests: Counter[str] = Counter()  # by method and what it is about
        self.users: Counter[str] = Counter()  # by key id

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        url = urlsplit(target)
        if url.path.startswith("/opc/v2/"):
            return self.identity.metadata(url.path.removeprefix("/opc/v2/"), headers)
        if (method, url.path) == ("POST", "/v1/x509"):
            return self.identity.federate(method, target, headers, body)
        who = signing.check(method, target, headers, body, self.identity.keys, signs_body=method == "POST")
        self.users[who] += 1
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        # A name's own slashes are percent-encoded; a literal one is taken as a part of it as well.
        return self._dispatch(method, url.path.lstrip("/").split("/", 4), query, headers, body)

    def _dispatch(
        self, method: str, path: list[str], query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> Answer:
        match (method, *path):
            case ("GET", "n") | ("GET", "n", ""):
                return self._counted("namespace", as_json(NAMESPACE))
            case (_, "n", namespace, *_) if unquote(namespace) != NAMESPACE:
                text = "You do not have authorization to perform this request, or the requested resource is not there."
                raise Refused(404, "NamespaceNotFound", text)
            case ("POST", "n", _, "b") | ("POST", "n", _, "b", ""):
                self.requests["create bucket"] += 1
                return self.buckets.create_bucket(json.loads(body))
            case ("HEAD", "n", _, "b", bucket):
                return self._counted("head bucket", self.buckets.head_bucket(unquote(bucket)))
            case ("GET", "n", _, "b", bucket, "o"):
                self.requests["list"] += 1
                return self.buckets.list(unquote(bucket), query)
            case (_, "n", _, "b", bucket, rest) if rest.startswith("o/") and len(rest) > 2:
                self.requests[method.lower()] += 1
                return self._object(method, unquote(bucket), unquote(rest[2:]), headers, body)
        raise Refused(404, "NotFound", "There is no operation supported at the URI path and HTTP method you specified.")

    def _object(self, method: str, bucket: str, name: str, headers: dict[str, str], body: bytes) -> Answer:
        if method == "PUT":
            return self.buckets.put(bucket, name, body, headers)
        if method in ("GET", "HEAD"):
            return self.buckets.get(bucket, name, headers)
        if method == "DELETE":
            return self.buckets.delete(bucket, name, headers)
        raise Refused(405, "MethodNotAllowed", "The target resource does not support the HTTP method.")

    def _counted(self, name: str, answer: Answer) -> Answer:
        self.requests[name] += 1
        return answer

    # ------------------------------------------------------------------------------------------ what tests order

    def control(self, command: str, given: Any) -> Any:
        """Commands of tests, which the service does not have."""
        stored = self.buckets.buckets
        match command:
            case "know":
                self.identity.know(**given)
            case "forget":
                self.identity.forget(given)
            case "make bucket":
                self.buckets.make(given, "ocid1.compartment.oc1..double")
            case "drop bucket":
                stored.pop(given, None)
            case "forbid":
                self.buckets.forbidden.add(given)
            case "allow":
                self.buckets.forbidden.discard(given)
            case "fault":
                self.faults.order(Fault(**given))
            case "no faults":
                self.faults.clear()
            case "objects":
                return {name: found.data.hex() for name, found in stored.get(given, {}).items()}
            case "sizes":
                return {name: len(found.data) for name, found in stored.get(given, {}).items()}
            case "put objects":
                bucket, objects = given
                now = time.time()
                made = {n: Object(bytes.fromhex(d), str(uuid.uuid4()), now, now) for n, d in objects.items()}
                stored[bucket] = made
            case "put object":
                bucket, name, data = given
                self.buckets.put(bucket, name, bytes.fromhex(data), {})
            case "remove object":
                bucket, name = given
                self.buckets.delete(bucket, name, {})
            case "requests":
                return self.requests
            case "users":
                return self.users
            case "tokens":
                return self.identity.tokens_given
            case "compartment":
                return self.buckets.compartments.get(given)
            case _:
                raise ValueError(command)
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    double: Double

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # whoever sent it was killed: half an object is none
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path == "/control":
            command, given = json.loads(body)
            self._send(as_json(self.double.control(command, given)))
            return
        fault = self.double.faults.next(self.command, self.path)
        kind = fault.kind if fault else None
        if kind == "drop":
            self._drop()
            return
        if fault and kind == "delay":
            time.sleep(fault.seconds)
        if fault and kind == "error":
            answer = Refused(fault.status, fault.code, "ordered by a test", **(fault.headers or {})).answer()
        else:
            try:
                answer = self.double.answer(self.command, self.path, headers, body)
            except Refused as refused:
                answer = refused.answer()
        if kind == "drop_after":
            self._drop()
            return
        theirs = headers.get("opc-request-id", "")
        answer.headers["opc-request-id"] = f"{theirs[:32]}/{uuid.uuid4().hex.upper()}/{uuid.uuid4().hex.upper()}"
        if "opc-client-request-id" in headers:
            answer.headers["opc-client-request-id"] = headers["opc-client-request-id"]
        self._send(answer, cut=kind == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  the names that the base class looks for

    def _send(self, answer: Answer, *, cut: bool = False) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        body = b"" if self.command == "HEAD" else answer.body
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self._drop()
        else:
            self.wfile.write(body)

    def _drop(self) -> None:
        self.wfile.flush()
        # With an RST, so that the client notices at once.
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes in the middle is nothing to write about.
        if not isinstance(sys.exception(), (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


def main(*tls: str) -> None:
    Handler.double = Double()
    if os.environ.get("OCI_DOUBLE_BUSY") == "1":
        Handler.double.faults.order(Fault("error", status=503, code="ServiceUnavailable", times=-1))
    port = int(os.environ.get("OCI_DOUBLE_PORT", "0"))
    server = Server(("127.0.0.1", port), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    # Whoever started it has gone when its end of standard input closes.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

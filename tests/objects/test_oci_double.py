"""The double of OCI Object Storage itself: what it refuses, and that it answers the SDK as the service does."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import oci
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from oci_double.identity import make_token
from oci_double.process import NAMESPACE, Process, User


@pytest.fixture
def bucket(oci_double: Process) -> Iterator[str]:
    name = oci_double.make_bucket()
    yield name
    oci_double.tell("drop bucket", name)


@pytest.fixture
def client(oci_double: Process, oci_user: User) -> Iterator[Any]:
    made = new_client(oci_double, oci_user)
    yield made
    made.base_client.session.close()


def new_client(double: Process, user: User) -> Any:
    return oci.object_storage.ObjectStorageClient(
        oci.config.from_file(str(user.config_file)),
        service_endpoint=double.url,
        retry_strategy=oci.retry.NoneRetryStrategy(),
        circuit_breaker_strategy=oci.circuit_breaker.NoCircuitBreakerStrategy(),
    )


class refusing:  # noqa: N801  it reads like pytest.raises
    """Asserts that the service answers its block with a status and a code."""

    def __init__(self, status: int, code: str) -> None:
        self.expected = (status, code)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        assert isinstance(error, oci.exceptions.ServiceError), error
        assert (error.status, error.code) == self.expected
        assert error.headers["opc-request-id"]
        return True


# ----------------------------------------------------------------------------------------------------------- signatures

SIGNED = ["date", "(request-target)", "host"]


def send(
    double: Process,
    user: User,
    *,
    signed: list[str] = SIGNED,
    method: str = "GET",
    body: bytes = b"",
    signed_target: str | None = None,
    target: str = "/n/",
    key_id: str | None = None,
    algorithm: str = "rsa-sha256",
    **headers: str,
) -> tuple[int, dict[str, Any]]:
    """Sends a request that is signed by hand."""
    sent = {"host": f"127.0.0.1:{double.port}", "date": email.utils.formatdate(usegmt=True), **headers}
    lines = [
        f"{name}: {method.lower()} {signed_target or target}" if name.startswith("(") else f"{name}: {sent[name]}"
        for name in signed
    ]
    signature = user.key.sign("\n".join(lines).encode(), padding.PKCS1v15(), hashes.SHA256())
    sent["authorization"] = (
        f'Signature version="1",keyId="{key_id or user.key_id}",algorithm="{algorithm}",'
        f'headers="{" ".join(signed)}",signature="{base64.b64encode(signature).decode()}"'
    )
    return ask(double, method, target, body, sent)


def ask(double: Process, method: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", double.port, timeout=30)
    try:
        connection.request(method, target, body, headers)
        connection.sock.shutdown(socket.SHUT_WR)  # nothing follows, even if more was promised
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_half_of_an_object_is_no_object(oci_double: Process, oci_user: User, bucket: str, client: Any) -> None:
    """As it comes from a process that is killed while it sends."""
    target = f"/n/{NAMESPACE}/b/{bucket}/o/half"
    with pytest.raises(http.client.RemoteDisconnected):
        send(oci_double, oci_user, method="PUT", target=target, body=b"half", **{"content-length": "8"})
    assert client.list_objects(NAMESPACE, bucket).data.objects == []


def test_a_signed_request_is_answered(oci_double: Process, oci_user: User) -> None:
    assert send(oci_double, oci_user) == (200, NAMESPACE)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"signed_target": "/n/other"}, "the signature is not the key's"),
        ({"signed": ["date", "host"]}, "not signed: (request-target)"),
        ({"signed": ["(request-target)", "host"]}, "not signed: date"),
        ({"signed": ["date", "(request-target)"]}, "not signed: host"),
        ({"key_id": "ocid1.tenancy.oc1..x/ocid1.user.oc1..y/00:11"}, "unknown key id"),
        ({"algorithm": "hmac-sha256"}, "another algorithm"),
        ({"date": email.utils.formatdate(0, usegmt=True)}, "more than five minutes off"),
        ({"method": "POST", "target": f"/n/{NAMESPACE}/b/"}, "not signed: content-length"),
    ],
)
def test_a_request_that_is_not_signed_as_it_must_be(
    oci_double: Process, oci_user: User, wrong: dict[str, Any], reason: str
) -> None:
    status, answer = send(oci_double, oci_user, **wrong)
    assert (status, answer["code"]) == (401, "NotAuthenticated")
    assert reason in answer["message"]


def test_a_body_that_is_not_the_one_that_was_signed(oci_double: Process, oci_user: User) -> None:
    body = b'{"name": "x", "compartmentId": "ocid1.compartment.oc1..x"}'
    headers = {
        "content-length": str(len(body)),
        "content-type": "application/json",
        "x-content-sha256": base64.b64encode(hashlib.sha256(b"other").digest()).decode(),
    }
    signed = [*SIGNED, *headers]
    target = f"/n/{NAMESPACE}/b/"
    status, answer = send(oci_double, oci_user, method="POST", target=target, body=body, signed=signed, **headers)
    assert status == 401
    assert "x-content-sha256" in answer["message"]


def test_a_request_without_a_signature(oci_double: Process) -> None:
    status, answer = ask(oci_double, "GET", "/n/", b"", {})
    assert (status, answer["code"]) == (401, "NotAuthenticated")


def test_a_key_of_somebody_else(oci_double: Process, oci_user: User, tmp_path: Any) -> None:
    other = User(tmp_path, user="other")
    with refusing(401, "NotAuthenticated"):
        new_client(oci_double, other).get_namespace()
    status, answer = send(oci_double, other, key_id=oci_user.key_id)
    assert status == 401
    assert "the signature is not the key's" in answer["message"]


def test_a_token_is_as_good_as_a_key(oci_double: Process, tmp_path: Any) -> None:
    user = User(tmp_path, user="guest")
    token = make_token()
    assert send(oci_double, user, key_id=f"ST${token}")[0] == 401
    user.with_token(oci_double, token)
    assert send(oci_double, user, key_id=f"ST${token}") == (200, NAMESPACE)


# -------------------------------------------------------------------------------------------------- buckets and objects


def test_names_with_anything_in_them(client: Any, bucket: str) -> None:
    names = ["a/b//c", "a/b//c/", "é ü/日本", "100%2F", "a+b?c#d&e=f", "..", "."]
    for name in names:
        client.put_object(NAMESPACE, bucket, name, name.encode())
    assert [o.name for o in client.list_objects(NAMESPACE, bucket).data.objects] == sorted(names, key=str.encode)
    for name in names:
        assert client.get_object(NAMESPACE, bucket, name).data.content == name.encode()
    for name in ("a\0b", "x" * 1025):
        with refusing(400, "InvalidObjectName"):
            client.put_object(NAMESPACE, bucket, name, b"")


def test_conditions(client: Any, bucket: str) -> None:
    first = client.put_object(NAMESPACE, bucket, "a", b"1", if_none_match="*").headers["etag"]
    with refusing(412, "IfNoneMatchFailed"):
        client.put_object(NAMESPACE, bucket, "a", b"2", if_none_match="*")
    second = client.put_object(NAMESPACE, bucket, "a", b"1", if_match=first).headers["etag"]
    assert second != first, "not a hash of what it holds"
    with refusing(412, "IfMatchFailed"):
        client.put_object(NAMESPACE, bucket, "a", b"3", if_match=first)
    with refusing(412, "IfMatchFailed"):
        client.put_object(NAMESPACE, bucket, "nobody", b"3", if_match=first)
    with refusing(412, "IfMatchFailed"):
        client.delete_object(NAMESPACE, bucket, "a", if_match=first)
    with refusing(400, "InvalidParameter"):
        client.put_object(NAMESPACE, bucket, "a", b"3", if_none_match=second)
    with refusing(400, "UnmatchedContentMD5"):
        client.put_object(NAMESPACE, bucket, "a", b"3", content_md5="AAAA")
    client.delete_object(NAMESPACE, bucket, "a", if_match=second)
    with refusing(404, "ObjectNotFound"):
        client.get_object(NAMESPACE, bucket, "a")
    with refusing(404, "ObjectNotFound"):
        client.delete_object(NAMESPACE, bucket, "a")


def test_ranges(client: Any, bucket: str) -> None:
    client.put_object(NAMESPACE, bucket, "a", b"0123456789")
    for wanted, data, where in [
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=8-", b"89", "bytes 8-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=5-99", b"56789", "bytes 5-9/10"),
    ]:
        answer = client.get_object(NAMESPACE, bucket, "a", range=wanted)
        assert (answer.status, answer.data.content, answer.headers["content-range"]) == (206, data, where)
    with refusing(416, "InvalidRange"):
        client.get_object(NAMESPACE, bucket, "a", range="bytes=10-")


def test_listings(oci_double: Process, client: Any, bucket: str) -> None:
    oci_double.put_objects(bucket, {f"p/{i:04}": b"x" for i in range(1500)} | {"q/a/b": b"", "q/a/c": b"", "q/d": b""})
    page = client.list_objects(NAMESPACE, bucket, prefix="p/").data
    assert len(page.objects) == 1000
    assert (page.next_start_with, page.objects[0].size, page.objects[0].etag) == ("p/1000", None, None)
    page = client.list_objects(NAMESPACE, bucket, prefix="p/", start=page.next_start_with).data
    assert (len(page.objects), page.objects[0].name, page.next_start_with) == (500, "p/1000", None)
    page = client.list_objects(NAMESPACE, bucket, start_after="p/1498", end="q/d", fields="name,size,etag").data
    assert [(o.name, o.size) for o in page.objects] == [("p/1499", 1), ("q/a/b", 0), ("q/a/c", 0)]
    assert page.objects[0].etag == client.get_object(NAMESPACE, bucket, "p/1499").headers["etag"]
    page = client.list_objects(NAMESPACE, bucket, prefix="q/", delimiter="/").data
    assert ([o.name for o in page.objects], page.prefixes) == (["q/d"], ["q/a/"])
    with refusing(400, "InvalidParameter"):
        client.list_objects(NAMESPACE, bucket, limit=1001)


def test_buckets(oci_double: Process, client: Any) -> None:
    make = oci.object_storage.models.CreateBucketDetails
    place = "ocid1.compartment.oc1..here"
    with refusing(404, "BucketNotFound"):
        client.list_objects(NAMESPACE, "made-here")
    assert client.create_bucket(NAMESPACE, make(name="made-here", compartment_id=place)).data.compartment_id == place
    with refusing(409, "BucketAlreadyExists"):
        client.create_bucket(NAMESPACE, make(name="made-here", compartment_id=place))
    assert client.head_bucket(NAMESPACE, "made-here").status == 200
    with refusing(404, "NamespaceNotFound"):
        client.list_objects("elsewhere", "made-here")
    with refusing(400, "InvalidBucketName"):
        client.create_bucket(NAMESPACE, make(name="not/a name", compartment_id=place))
    oci_double.tell("drop bucket", "made-here")


def test_faults(oci_double: Process, client: Any, bucket: str) -> None:
    client.put_object(NAMESPACE, bucket, "a", b"0123456789")
    oci_double.fault("error", status=429, code="TooManyRequests", contains=bucket, skip=1, times=1)
    assert client.get_object(NAMESPACE, bucket, "a").data.content == b"0123456789"
    with refusing(429, "TooManyRequests"):
        client.get_object(NAMESPACE, bucket, "a")
    oci_double.fault("cut", method="GET", contains=bucket)
    with pytest.raises(OSError, match=r"IncompleteRead|Connection broken"):
        _ = client.get_object(NAMESPACE, bucket, "a").data.content
    for kind, name in (("drop", "before"), ("drop_after", "after")):
        oci_double.fault(kind, method="PUT", contains=bucket)
        with pytest.raises(oci.exceptions.RequestException):
            client.put_object(NAMESPACE, bucket, name, b"1")
    assert set(oci_double.objects(bucket)) == {"a", "after"}

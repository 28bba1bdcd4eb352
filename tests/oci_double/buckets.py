"""Buckets and objects: what the service does with them."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any

from oci_double.answers import Answer, Refused, as_json

PAGE = 1000
"""The most objects in one answer of a listing."""

LONGEST_NAME = 1024
"""Bytes of an object's name."""

LISTED = ("name", "size", "etag", "timeCreated", "md5", "timeModified", "storageTier", "archivalState")


@dataclass(frozen=True)
class Object:
    data: bytes
    etag: str
    created: float
    modified: float

    @property
    def md5(self) -> str:
        return base64.b64encode(hashlib.md5(self.data).digest()).decode()

    def headers(self) -> dict[str, str]:
        return {
            "etag": self.etag,
            "last-modified": formatdate(self.modified, usegmt=True),
            "content-md5": self.md5,
            "content-type": "application/octet-stream",
            "storage-tier": "Standard",
            "version-id": str(uuid.uuid5(uuid.NAMESPACE_OID, self.etag)),
        }


class Buckets:
    """All buckets of one namespace. What it does to an object, it does to it alone, in one step."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.compartments: dict[str, str] = {}  # of each bucket
        self.buckets: dict[str, dict[str, Object]] = {}
        self.forbidden: set[str] = set()  # buckets that nobody may use; they look as if they were not there
        self._lock = threading.Lock()

    def make(self, name: str, compartment: str) -> None:
        self.buckets[name] = {}
        self.compartments[name] = compartment

    # ---------------------------------------------------------------------------------------------------- buckets

    def create_bucket(self, details: Mapping[str, Any]) -> Answer:
        name, compartment = details.get("name"), details.get("compartmentId")
        if not name or not compartment:
            raise Refused(400, "MissingParameter", "name and compartmentId are required")
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", name):
            raise Refused(400, "InvalidBucketName", f"The bucket name '{name}' is invalid")
        if not re.fullmatch(r"ocid1\.(compartment|tenancy)\..*", compartment):
            raise Refused(404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
        with self._lock:
            if name in self.buckets:
                raise Refused(409, "BucketAlreadyExists", f"Either the bucket '{name}' exists, or it is not yours")
            self.make(name, compartment)
        about = {"namespace": self.namespace, "name": name, "compartmentId": compartment, "storageTier": "Standard"}
        return as_json(about, etag=str(uuid.uuid4()), location=f"/n/{self.namespace}/b/{name}")

    def head_bucket(self, bucket: str) -> Answer:
        self._of(bucket)
        return Answer(200, {"etag": str(uuid.uuid5(uuid.NAMESPACE_OID, bucket))})

    def _of(self, bucket: str) -> dict[str, Object]:
        if bucket not in self.buckets or bucket in self.forbidden:
            raise Refused(
                404,
                "BucketNotFound",
                f"Either the bucket named '{bucket}' does not exist in the namespace '{self.namespace}'"
                " or you are not authorized to access it",
            )
        return self.buckets[bucket]

    # ---------------------------------------------------------------------------------------------------- objects

    def put(self, bucket: str, name: str, data: bytes, headers: Mapping[str, str]) -> Answer:
        if not 0 < len(name.encode()) <= LONGEST_NAME or any(c in name for c in "\0\r\n"):
            raise Refused(400, "InvalidObjectName", "The object name is invalid")
        objects = self._of(bucket)
        given = headers.get("content-md5")
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        if given is not None and given != md5:
            raise Refused(400, "UnmatchedContentMD5", f"The computed MD5 of the request body ({md5}) does not match")
        if headers.get("if-none-match") not in (None, "*"):
            raise Refused(400, "InvalidParameter", "if-none-match takes nothing but *")
        with self._lock:
            old = objects.get(name)
            if old is not None and headers.get("if-none-match") == "*":
                raise Refused(412, "IfNoneMatchFailed", "The If-None-Match header is '*' but the object exists")
            self._if_match(headers, old)
            now = time.time()
            objects[name] = new = Object(data, str(uuid.uuid4()), old.created if old else now, now)
        return Answer(200, {"etag": new.etag, "last-modified": formatdate(now, usegmt=True), "opc-content-md5": md5})

    def get(self, bucket: str, name: str, headers: Mapping[str, str]) -> Answer:
        found = self._found(bucket, name)
        self._if_match(headers, found)
        if headers.get("if-none-match") == found.etag:
            raise Refused(304, "", "", etag=found.etag)
        wanted = headers.get("range")
        if wanted is None:
            return Answer(200, found.headers(), found.data)
        first, last = _range(wanted, len(found.data))
        about = {**found.headers(), "content-range": f"bytes {first}-{last}/{len(found.data)}"}
        return Answer(206, about, found.data[first : last + 1])

    def delete(self, bucket: str, name: str, headers: Mapping[str, str]) -> Answer:
        with self._lock:
            self._if_match(headers, self._found(bucket, name))
            del self.buckets[bucket][name]
        return Answer(204, {"last-modified": formatdate(time.time(), usegmt=True)})

    def _found(self, bucket: str, name: str) -> Object:
        found = self._of(bucket).get(name)
        if found is None:
            raise Refused(
                404,
                "ObjectNotFound",
                f"The object '{name}' was not found in the bucket '{bucket}'",
            )
        return found

    def _if_match(self, headers: Mapping[str, str], found: Object | None) -> None:
        wanted = headers.get("if-match")
        if wanted is not None and (found is None or wanted not in ("*", found.etag)):
            raise Refused(412, "IfMatchFailed", "The If-Match header does not match the object's etag")

    # --------------------------------------------------------------------------------------------------- listings

    def list(self, bucket: str, query: Mapping[str, str]) -> Answer:
        objects = self._of(bucket)
        limit = query.get("limit", str(PAGE))
        fields = [name.lower() for name in query.get("fields", "name").split(",")]
        unknown = set(fields) - {name.lower() for name in LISTED}
        if not re.fullmatch(r"[1-9][0-9]{0,3}", limit) or int(limit) > PAGE or unknown:
            raise Refused(400, "InvalidParameter", "limit must be from 1 to 1000, and fields those of an object")
        if query.get("delimiter", "/") != "/":
            raise Refused(400, "InvalidParameter", "only '/' is supported as a delimiter")
        prefix = query.get("prefix", "")
        with self._lock:
            chosen = {n: o for n, o in objects.items() if n.startswith(prefix) and _within(n, query)}
        shown: list[dict[str, Any]] = []
        prefixes: dict[str, None] = {}
        answer: dict[str, Any] = {"objects": shown, "prefixes": []}
        for name in sorted(chosen, key=str.encode):
            head, slash, _ = name[len(prefix) :].partition("/")
            group = prefix + head + slash if slash and "delimiter" in query else None
            if group in prefixes:
                continue
            if len(shown) + len(prefixes) == int(limit):
                answer["nextStartWith"] = name
                break
            if group is not None:
                prefixes[group] = None
            else:
                shown.append(_summary(name, chosen[name], fields))
        answer["prefixes"] = list(prefixes)
        return as_json(answer)


def _within(name: str, query: Mapping[str, str]) -> bool:
    here = name.encode()
    return (
        ("start" not in query or here >= query["start"].encode())
        and ("startAfter" not in query or here > query["startAfter"].encode())
        and ("end" not in query or here < query["end"].encode())
    )


def _summary(name: str, found: Object, fields: list[str]) -> dict[str, Any]:
    about = {
        "name": name,
        "size": len(found.data),
        "etag": found.etag,
        "md5": found.md5,
        "timeCreated": _time(found.created),
        "timeModified": _time(found.modified),
        "storageTier": "Standard",
    }
    return {key: value for key, value in about.items() if key == "name" or key.lower() in fields}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _range(text: str, size: int) -> tuple[int, int]:
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", text)
    if match is None or match[0] == "bytes=-":
        raise Refused(400, "InvalidParameter", "the range is no range of bytes")
    if not match[1]:
        first, last = max(0, size - int(match[2])), size - 1
    else:
        first, last = int(match[1]), min(int(match[2] or size), size - 1)
    if first > last:
        raise Refused(416, "InvalidRange", f"the range lies outside of the object's {size} bytes")
    return first, last

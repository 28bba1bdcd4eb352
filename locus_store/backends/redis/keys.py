"""The names of keys, written down here because what is stored outlives every release.

    <prefix>{<tenant>:<thread>}:h, :v, :r      a thread: a hash, its checkpoint ids by version, the names of its records
    <prefix>{<tenant>:<thread>}~<token>:h, :r  a copy of a thread that is not finished; it expires within the hour
    <prefix>{<tenant>}:i, :m, :n               a tenant: the index of its threads, and of their metadata

``lua/prelude.lua`` says what is in them. What stands in the braces is what a cluster looks at, so all keys of one
thread lie in one place. Tenant and thread are percent-encoded: there is no brace, colon, star or blank in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from locus_store.core.driver import Key

DEFAULT_PREFIX = "locus_store:"

_BYTES = [chr(b) if re.fullmatch(r"[A-Za-z0-9_.-]", chr(b), re.ASCII) else f"%{b:02X}" for b in range(256)]
_plain = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII).fullmatch


@lru_cache(maxsize=4096)
def _encode(text: str) -> str:
    return text if _plain(text) else "".join([_BYTES[b] for b in text.encode()])


class Keys:
    """Makes the names of one store's keys.

    Args:
        prefix: What all of them begin with.
        cluster: Whether a script must do with the keys of one thread or one tenant.
    """

    def __init__(self, prefix: str, *, cluster: bool = False) -> None:
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a str, got {type(prefix).__name__}")
        if "{" in prefix or "}" in prefix:
            raise ValueError("prefix must have no braces: what stands in them decides where a cluster keeps a key")
        self.prefix = prefix
        self._cluster = cluster

    def thread(self, key: Key) -> list[bytes]:
        """The keys of a thread."""
        tag = self._tag(key)
        return [f"{tag}:h".encode(), f"{tag}:v".encode(), f"{tag}:r".encode()]

    def read(self, key: Key) -> list[bytes]:
        """Those in which its checkpoints are.

        While a cluster moves a slot a script must wait for keys that are not there, as a thread's third one often is.
        """
        return self.thread(key)[:2]

    def of(self, key: Key) -> list[bytes]:
        """The keys of a script that changes a thread: the tenant's are among them where one script may have both."""
        return self.thread(key) if self._cluster else self.thread(key) + self.tenant(key.tenant)

    def copy(self, key: Key, token: str) -> list[bytes]:
        """The keys of a copy that becomes the thread; the second one is not used yet."""
        tag = self._tag(key)
        return [f"{tag}~{token}:h".encode(), f"{tag}~{token}:v".encode(), f"{tag}~{token}:r".encode()]

    def tenant(self, tenant: str) -> list[bytes]:
        """The keys of a tenant."""
        tag = f"{self.prefix}{{{_encode(tenant)}}}"
        return [f"{tag}:i".encode(), f"{tag}:m".encode(), f"{tag}:n".encode()]

    def threads_of(self, tenant: str) -> bytes:
        """A pattern for SCAN: the first key of each thread of a tenant."""
        prefix = re.sub(r"([\\*?\[\]^-])", r"\\\1", self.prefix)
        return f"{prefix}{{{_encode(tenant)}:*}}:h".encode()

    def _tag(self, key: Key) -> str:
        return f"{self.prefix}{{{_encode(key.tenant)}:{_encode(key.thread_id)}}}"


def thread_ids(found: Sequence[bytes | str]) -> list[str]:
    """The ids of the threads that some keys belong to; keys that are none of ours are passed over."""
    ids: list[str] = []
    for key in found:
        data = key.encode() if isinstance(key, str) else key
        name = data[data.rindex(b"{") + 1 : data.rindex(b"}")].partition(b":")[2]
        try:
            thread_id = unquote_to_bytes(name).decode()
        except UnicodeDecodeError:
            continue
        if thread_id and _encode(thread_id).encode() == name:
            ids.append(thread_id)
    return ids

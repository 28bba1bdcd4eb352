"""The documents of a thread, as they are in the index.

    t-<hash>            the thread: its counters, its head, and where its checkpoints and blocks are; what it says is so
    <life>-<slot>       a slot: what one save or one removal added, created once, under the next number
    n-<hash>            a name: in which slot the checkpoint with an id is; a hint, which may be wrong
    <life>-r-<hash>     records: those of one scope
    <life>-l            a life: that documents of a thread's life are there, so that `vacuum` finds what nobody needs

A **life** is a random name for one thread from its first save to its deletion. All but the thread's own document carry
it, so a thread is gone, whole, when that one document is. ``data`` holds what is small and ``body`` what is not;
neither is indexed. The other fields are for searching, and no name of a field comes from outside.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from hashlib import blake2b
from typing import Any

from locus_store.core.driver import Key

Source = dict[str, Any]

SMALL = {"excludes": ["body", "words"]}
"""What of a document is read where its payloads are not wanted."""


def _hash(*parts: str) -> str:
    digest = blake2b(digest_size=20)
    for part in parts:
        data = part.encode()
        digest.update(b"%d " % len(data) + data)
    return digest.hexdigest()


def thread_name(key: Key) -> str:
    """The id of a thread's document."""
    return f"t-{_hash(*key)}"


def slot_name(life: str, slot: int) -> str:
    """The id of a slot's document."""
    return f"{life}-{slot}"


def checkpoint_name(key: Key, checkpoint_id: str) -> str:
    """The id of the document that says where a checkpoint is."""
    return f"n-{_hash(*key, checkpoint_id)}"


def records_name(life: str, scopes: str, scope: str) -> str:
    """The id of the document that holds the records of a scope."""
    return f"{life}-r-{_hash(scopes, scope)}"


def life_name(life: str) -> str:
    """The id of the document that says that a life has begun."""
    return f"{life}-l"


def pack(data: bytes) -> str:
    """Bytes as JSON has them."""
    return b2a_base64(data, newline=False).decode()


def unpack(text: str) -> bytes:
    """The bytes again."""
    return a2b_base64(text)


def pack_terms(terms: tuple[bytes, ...] | list[bytes]) -> list[str]:
    """Digests as they are searched for."""
    return [term.hex() for term in terms]

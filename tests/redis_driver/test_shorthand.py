"""Checkpoints' payloads made shorter."""

from __future__ import annotations

import asyncio
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus_store import AgentState, MemoryBackend, Message
from locus_store.backends.redis import layout, shorthand
from locus_store.backends.redis.shorthand import pack, unpack
from locus_store.core.driver import Key
from locus_store.core.frames import DamagedError


def payload_of(state: AgentState) -> bytes:
    async def saved() -> bytes:
        store = MemoryBackend()
        await store.checkpointer().save(state, "t")
        stored = await store._driver.get(Key("default", "t"), None, now=0)
        assert stored is not None
        return stored.payload

    return asyncio.run(saved())


def test_the_text_is_the_one_that_stored_payloads_were_made_with() -> None:
    assert crc32(shorthand._TEXT) == 3619932957


@given(st.binary(max_size=300), st.integers(0, 40))
def test_what_was_packed_comes_back(part: bytes, times: int) -> None:
    payload = b"1 " + part * times
    assert unpack(pack(payload)) == payload
    assert len(pack(payload)) <= len(payload)


def test_an_agent_state_takes_little() -> None:
    state = AgentState(agent_id="bench", max_iterations=1000).with_message(Message.user("x" * 400)).with_iteration(7)
    payload = payload_of(state)
    assert len(payload) > 1000
    assert len(pack(payload)) < 200


@pytest.mark.parametrize("size", [0, 100, 70_000, 1_000_000])
def test_what_is_very_short_or_very_long_stays_as_it_is(size: int) -> None:
    payload = b"1 m " + b"x" * size
    assert pack(payload) == payload


def test_damage_is_found() -> None:
    packed = pack(payload_of(AgentState()))
    for damaged in (packed[:-5], packed + b"x", packed[:1], b"z" + b"\xff" * 20):
        with pytest.raises(DamagedError, match="payload"):
            unpack(damaged)


def test_a_payload_does_not_become_longer_than_any_that_was_packed() -> None:
    packed = pack(b"1 " + b"x" * 65_000)
    assert len(packed) < 1000
    deflate = shorthand.zlib.compressobj(1, 8, -15, zdict=shorthand._TEXT)
    bomb = b"z" + deflate.compress(b"x" * 50_000_000) + deflate.flush()
    with pytest.raises(DamagedError, match="not whole"):
        unpack(bomb)


def test_a_record_is_given_another_payload() -> None:
    head = b"1 4 5 1 5 17 99 7 3 1 " + b"ab" * 16 + b"\n"
    payload = payload_of(AgentState())
    record = head + b"[[1,5]]" + b"abc" + b"t" * 16 + pack(payload)
    changed = layout.with_payload(record, b"1 other")
    assert layout.read(changed) == layout.read(record)._replace(payload=b"1 other")
    assert layout.read(record).payload == payload

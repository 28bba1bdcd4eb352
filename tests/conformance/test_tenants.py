"""Tenants: no call inside one sees or touches what is another's."""

from __future__ import annotations

import pytest
from cases import assert_same
from histories import message


async def fill(store, mark):
    documents = {}
    for i in range(3):
        documents[f"c{i}"] = {"of": mark, "messages": [message(f"{mark} {j}") for j in range(i + 1)]}
        await store.save("t", documents[f"c{i}"], f"c{i}", {"of": mark, "i": i})
    await store.put_records("t", "scope", {"of": mark})
    return documents


async def assert_whole(store, mark, documents):
    assert await store.list_threads() == ["t"]
    assert await store.list_checkpoints("t") == ["c2", "c1", "c0"]
    for name, document in documents.items():
        assert_same(await store.load("t", name), document)
    assert [r["metadata"]["of"] for r in await store.query_by_metadata({}, versions="all")] == [mark] * 3
    assert [r["metadata"]["of"] for r in await store.list_with_metadata()] == [mark]
    assert await store.records("t", "scope") == {"of": mark}
    assert [i.version for i in await store.history("t")] == [3, 2, 1]


async def test_the_same_ids_in_several_tenants(store, other):
    acme, globex = store.tenant("acme"), store.tenant("globex")
    saved = {mark: await fill(s, mark) for mark, s in (("default", store), ("acme", acme), ("globex", globex))}
    await assert_whole(store, "default", saved["default"])
    await assert_whole(acme, "acme", saved["acme"])
    await assert_whole(other.tenant("globex"), "globex", saved["globex"])


async def test_none_sees_what_is_anothers(store):
    await fill(store.tenant("acme"), "acme")
    for stranger in (store, store.tenant("Acme"), store.tenant("acm_"), store.tenant("%"), store.tenant("*")):
        assert await stranger.load("t") is None
        assert await stranger.load("t", "c1") is None
        assert await stranger.exists("t") is False
        assert await stranger.list_threads() == []
        assert await stranger.list_threads(pattern="*") == []
        assert await stranger.list_checkpoints("t") == []
        assert await stranger.history("t") == []
        assert await stranger.get_metadata("t") is None
        assert await stranger.query_by_metadata({}) == []
        assert await stranger.query_by_metadata({"of": "acme"}, versions="all") == []
        assert await stranger.query_by_metadata({}, thread_id="t") == []
        assert await stranger.records("t", "scope") == {}
        assert await stranger.copy_thread("t", "u") is False


async def test_none_touches_what_is_anothers(store, clock, open_store):
    acme = open_store(clock=clock, tenant="acme")
    documents = await fill(acme, "acme")
    clock.advance(days=100)
    stranger = open_store(clock=clock).tenant("globex")
    assert await stranger.delete("t") is False
    assert await stranger.delete("t", "c1") is False
    assert await stranger.delete("t", ["c0", "c1", "c2"]) is False
    assert await stranger.delete_records("t") == 0
    assert await stranger.vacuum(older_than_days=0, keep_last=0) == 0
    await stranger.save("t", {"of": "globex"}, "c1", expected_version=0)
    await stranger.put_records("t", "scope", {"of": "globex"})
    await stranger.delete("t")
    await assert_whole(acme, "acme", documents)


async def test_a_vacuum_is_of_one_tenant(open_store, clock):
    default = open_store(clock=clock)
    acme = default.tenant("acme")
    await fill(default, "default")
    await fill(acme, "acme")
    clock.advance(days=100)
    assert await acme.vacuum() == 2
    assert len(await default.list_checkpoints("t")) == 3


async def test_the_option_and_the_method_mean_the_same(open_store, store):
    await open_store(tenant="acme").save("t", {"a": 1})
    assert await store.tenant("acme").load("t") == {"a": 1}
    assert await store.tenant("default").load("t") is None
    await store.save("t", {"a": 2})
    assert await store.tenant("acme").tenant("default").load("t") == {"a": 2}


async def test_options_go_along(open_store, clock):
    acme = open_store(clock=clock, ttl_seconds=60, keep_checkpoints=2).tenant("acme")
    for i in range(3):
        await acme.save("t", {"i": i})
    assert len(await acme.list_checkpoints("t")) == 2
    clock.advance(seconds=61)
    assert await acme.exists("t") is False


async def test_checkpointers_have_tenants(store):
    acme = store.tenant("acme").checkpointer()
    default = store.checkpointer()
    await acme.save(acme.state_type(agent_id="a"), "t")
    assert await default.load("t") is None
    assert (await default.tenant("acme").load("t")).agent_id == "a"


async def test_the_backend_of_a_checkpointers_tenant_is_of_that_tenant(store):
    acme = store.checkpointer().tenant("acme")
    await acme.save(acme.state_type(agent_id="a"), "t")
    assert (await acme.backend.load("t"))["agent_id"] == "a"
    assert await store.load("t") is None


NAMES = ["default", "Acme", "acme", "a/b", "..", "a:b", "会", "x" * 128, " ", "t", "%"]


async def test_any_name(store, place):
    for name in NAMES:
        await store.tenant(name).save("t", {"of": name})
    for name in NAMES:
        assert await store.tenant(name).load("t") == {"of": name}
        assert await store.tenant(name).list_threads() == ["t"]
    for name in NAMES:
        assert await store.tenant(name).delete("t") is True
    assert place.count() == 0


def test_wrong_names_are_refused(store, place):
    for name, error in (
        ("", ValueError),
        ("x" * 129, ValueError),
        ("a\x00", ValueError),
        ("\ud800", ValueError),
        (None, TypeError),
    ):
        with pytest.raises(error, match="tenant"):
            store.tenant(name)
        with pytest.raises(error, match="tenant"):
            place.open(tenant=name)

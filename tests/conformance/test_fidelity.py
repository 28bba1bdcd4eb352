"""What goes in comes out: equal, of the same type, in the same order; or it is refused by name."""

from __future__ import annotations

import pytest
from cases import METADATA_ONLY_REFUSES, REFUSED, VALUES, assert_same
from histories import message

from locus_store.core.errors import SerializationError


def places(value):
    """A value in every kind of place that the entry log treats in a way of its own."""
    filler = [message(i) for i in range(3)]
    return {
        "alone": {"v": value},
        "deep": {"a": {"b": {"c": value}}},
        "in a short list": {"l": [value]},
        "in a long list": {"l": [*filler, value, {"inner": [value]}], "t": (value, *filler)},
        "in a large rest": {"pad": "x" * 5000, "v": value},
    }


async def test_a_value_comes_back_wherever_it_stands(store, other):
    for name, value in VALUES.items():
        for where, document in places(value).items():
            await store.save(name, document, where)
            assert_same(await store.load(name), document, f"{name}, {where}: $")
        for where, document in places(value).items():
            assert_same(await other.load(name, where), document, f"{name}, {where}, elsewhere: $")


async def test_all_of_them_at_once_and_again_unchanged(store, other):
    document = {"values": VALUES, "list": list(VALUES.values()), **VALUES}
    for _ in range(3):
        await store.save("t", document)
        assert_same(await other.load("t"), document)
    turned = {"list": list(VALUES.values())[::-1], "values": dict(reversed(VALUES.items()))}
    await store.save("t", turned)
    assert_same(await other.load("t"), turned)


async def test_metadata_comes_back_and_is_found(store, other):
    values = {name: value for name, value in VALUES.items() if name not in METADATA_ONLY_REFUSES}
    for name, value in values.items():
        await store.save(name, {}, "c", {"v": value, "é": [value]})
    for name, value in values.items():
        expected = {"v": value, "é": [value]}
        (info,) = await other.history(name)
        assert_same(info.metadata, expected, f"{name}: $")
        assert_same((await other.get_metadata(name, "c"))["metadata"], expected, f"{name}: $")
        assert name in [r["thread_id"] for r in await other.query_by_metadata({"v": value})]
    for row in await other.list_with_metadata():
        assert_same(row["metadata"]["v"], values[row["thread_id"]], f"{row['thread_id']}: $")


async def test_keys_come_back_in_the_order_of_the_last_save(store, other):
    await store.save("t", {"a": 1, "b": [message(1)], "c": {"x": 1, "y": 2}})
    turned = {"c": {"y": 2, "x": 1}, "b": [dict(reversed(message(1).items()))], "a": 1}
    await store.save("t", turned)
    assert_same(await other.load("t"), turned)


async def test_what_would_not_come_back_is_refused_by_name_and_nothing_is_written(store, place):
    await store.save("t", {"messages": [message(0)]}, "c")
    before = place.count()
    for name, make in REFUSED.items():
        bad = make()
        for document, path in (
            ({"a": {"b": bad}}, "$.a.b"),
            ({"messages": [message(0), {"x": [1, bad]}]}, "$.messages[1].x[1]"),
            ({"t": (bad,)}, "$.t[0]"),
        ):
            for arguments in ({"document": document}, {"document": {}, "metadata": document}):
                with pytest.raises(SerializationError) as caught:
                    await store.save("t", **arguments)
                assert caught.value.path.startswith(path), name
                assert caught.value.reason, name
    assert place.count() == before
    assert await store.list_checkpoints("t") == ["c"]
    await store.save("t", {"messages": [message(0), message(1)]})
    assert await store.load("t") == {"messages": [message(0), message(1)]}


@pytest.mark.parametrize("kind", [dict, list])
async def test_a_subclass_of_a_container_is_refused_at_the_root_and_below(store, kind):
    class Sub(kind):
        pass

    with pytest.raises(SerializationError) as caught:
        await store.save("t", {"a": Sub()})
    assert caught.value.path == "$.a"
    assert "Sub" in caught.value.reason


async def test_a_document_that_is_a_subclass_of_dict_is_refused(store):
    class Sub(dict):
        pass

    with pytest.raises((SerializationError, TypeError)):
        await store.save("t", Sub(a=1))
    assert await store.exists("t") is False


@pytest.mark.parametrize("key", [object(), len, frozenset], ids=["object", "function", "class"])
async def test_a_key_that_would_not_come_back_is_refused(store, key):
    with pytest.raises(SerializationError):
        await store.save("t", {"a": {key: 1}})
    assert await store.exists("t") is False


async def test_no_message_of_an_error_holds_the_value(store):
    class Secret:
        def __repr__(self) -> str:
            return "s3cr3t"

    with pytest.raises(SerializationError) as caught:
        await store.save("t", {"a": Secret()})
    assert "s3cr3t" not in str(caught.value)
    assert "Secret" in str(caught.value)

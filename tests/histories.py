"""How documents of one thread follow each other: every way that the entry log must get right."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal


def message(n, size=200):
    """About `size` bytes, told apart by `n`."""
    return {"role": "user", "content": f"{n}: " + "lorem ipsum " * (size // 12), "n": n}


def growing(steps=12):
    messages = [message(i) for i in range(steps)]
    return [{"messages": messages[: i + 1], "step": i} for i in range(steps)]


def sliding():
    messages = [message(i) for i in range(30)]
    return [{"messages": messages[i : i + 6], "at": i} for i in range(24)]


def summarised():
    documents, messages = [], []
    for i in range(20):
        messages = [*messages, message(i)]
        if i % 7 == 6:
            messages = [{"role": "system", "content": f"summary {i} " * 40}, *messages[-3:]]
        documents.append({"messages": messages})
    return documents


def edited():
    documents = growing(8)
    for i in (3, 0, 6):
        changed = list(documents[-1]["messages"])
        changed[i] = message(f"edited {i}")
        documents.append({"messages": changed, "step": i})
    return documents


def cut_and_regrown():
    documents = growing(8)
    kept = documents[-1]["messages"][:3]
    return [*documents, {"messages": kept}, {"messages": [*kept, message("new")]}, documents[-1], documents[2]]


def repeated():
    one, two = message("same"), message("two")
    return [{"messages": [one] * n + [two] + [one] * n} for n in (1, 3, 2, 0, 4)]


def many_lists():
    documents = []
    for i in range(15):
        lists = {f"list {k}": [message(f"{k}/{j}", 300) for j in range(i // (k + 1) + 1)] for k in range(5)}
        documents.append({"deep": {"er": lists}, "tuple": tuple(message(j) for j in range(i)), "i": i})
    return documents


def shuffled():
    rng = random.Random(1)
    messages = [message(i) for i in range(12)]
    documents = []
    for _ in range(12):
        rng.shuffle(messages)
        documents.append({"messages": list(messages)})
    return documents


def large_rest():
    rest = {f"key {i}": "v" * 100 for i in range(100)}
    return [{**rest, "n": 1}, {**rest, "n": 1, "messages": growing()[5]["messages"]}, {**rest, "n": 2}, {"n": 2}]


def types_change():
    """Elements that are equal to what they were, and yet not the same; in a list that is large enough to be shared."""
    one = [message(1), message(2)]
    turned = [dict(reversed(m.items())) for m in one]
    return [
        {"l": [*one, True, 1, 1.0]},
        {"l": [*one, 1, True, 1.0]},
        {"l": (*one, 1, True, 1.0)},
        {"l": [*one, {"a": 0.0}, [0.0], 0.0]},
        {"l": [*one, {"a": -0.0}, [-0.0], -0.0]},
        {"l": [*one, {"a": 0}, [0], False]},
        {"l": {"k": one}},
        {"l": None},
        {"l": [*one, {"x": 1, "y": 1}]},
        {"l": [*one, {"y": 1, "x": 1}]},
        {"l": [*one, {"x": 1, "y": [2]}]},
        {"l": [*one, {"y": [2], "x": 1}]},
        {"l": [*turned, {"y": [2], "x": 1}]},
        {"l": [*turned, {"y": (2,), "x": 1}]},
        {"l": [*one, {"x": {}, "y": []}, None]},
        {"l": [*one, {"x": [], "y": {}}, None]},
        {"l": [*one, Decimal("1.0"), datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, b"1"]},
        {"l": [*one, Decimal("1.00"), datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), {True, 2}, "1"]},
    ]


HISTORIES = {
    f.__name__.replace("_", " "): f()
    for f in (
        growing,
        sliding,
        summarised,
        edited,
        cut_and_regrown,
        repeated,
        many_lists,
        shuffled,
        large_rest,
        types_change,
    )
}

MIXED = ["sliding", "summarised", "cut and regrown", "many lists"]
"""A few of them that have a bit of everything, for what is not about the entry log itself."""

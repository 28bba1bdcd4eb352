"""A machine that saves, loads, deletes and loses documents in every order, for the tests of the entry log.

Several `Backend` objects over one `MemoryDriver` are several processes: each has its own idea of what is stored.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from exactness import assert_exact, run
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from locus_store.backends.memory import MemoryDriver
from locus_store.core import payloads
from locus_store.core.backend import Backend
from locus_store.core.driver import Key, Stored
from locus_store.core.frames import REMOVED, ThreadName

THREAD = "t"
PATHS = [("messages",), ("steps",), ("deep", "er", "notes"), ("deep", "pair"), ("few",)]


class JoiningDriver(MemoryDriver):
    """Gives blocks as a store does that has joined some of them."""

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        stored = await super().get(key, checkpoint_id, now=now)
        if stored is None:
            return None
        blocks = list(stored.blocks)
        joined = [b"".join(blocks[i : i + 3]) for i in range(0, len(blocks), 3)]
        return Stored(
            stored.checkpoint_id,
            stored.version,
            stored.stamp,
            stored.epoch,
            stored.own_block,
            stored.ranges,
            stored.payload,
            joined,
        )


# --- what is stored, worked out here and not by the package ------------------------------------------------------------

Entries = set[tuple[int, int, int]]


def stored_entries(thread: Any, name: ThreadName, codec: Any = None) -> Entries:
    """(list, block, offset) of every entry that is in a thread's blocks and was not removed."""
    found: Entries = set()
    for payload in thread.blocks.values():
        for frame in payloads.read(payload, codec, name):
            entries = iter(frame.entries())
            for number, count in frame.counts:
                for offset in range(count):
                    if next(entries).kind != REMOVED:
                        found.add((number, frame.number, offset))
    return found


def referred_to(thread: Any, stored: Entries) -> Entries:
    """Those that some checkpoint refers to, from the text of the ranges."""
    found: Entries = set()
    for checkpoint in thread.checkpoints.values():
        for number, *ranges in json.loads(checkpoint.ranges):
            for r in ranges:
                first, last = (r[0], r[1]) if len(r) > 1 else (r[0], r[0])
                if first == 0:
                    first = last = checkpoint.own_block
                skip, end = r[2] if len(r) > 2 else 0, r[3] if len(r) > 3 else 1 << 60
                for listed, block, offset in stored:
                    if (
                        listed == number
                        and first <= block <= last
                        and not (block == first and offset < skip)
                        and not (block == last and offset >= end)
                    ):
                        found.add((listed, block, offset))
    return found


def lists_of(document: dict[Any, Any]) -> Iterator[tuple[dict[Any, Any], Any]]:
    for key, value in document.items():
        if type(value) in (list, tuple):
            yield document, key
        elif type(value) is dict:
            yield from lists_of(value)


# --- documents --------------------------------------------------------------------------------------------------------


def element(kind: str, n: int) -> Any:
    """The same for the same arguments, as large as a message or not."""
    zone = [None, UTC][n % 2]
    made: dict[str, Any] = {
        "message": {"role": "user", "content": f"{n}: " + "lorem ipsum " * 12, "n": n},
        "nested": {
            "role": "assistant",
            "content": [{"type": "text", "text": "x" * 150, "n": n}],
            "calls": [],
            "meta": {},
        },
        "text": f"{n} " * 40,
        "short": f"s{n % 3}",
        "number": n % 4,
        "float": n / 2,
        "bytes": bytes([n % 256]) * 90,
        "with bytes": {"image": bytes([n % 256]) * 60, "n": n},
        "tuple": ("a" * 100, n, (n,)),
        "time": {"at": datetime(2026, 1, 1, tzinfo=zone) + timedelta(seconds=n), "text": "x" * 100},
        "set": {"tags": {f"t{n}", f"u{n}", "v" * 80}},
        "decimal": [Decimal(n), "x" * 70],
        "odd keys": {n: "x" * 80, (n, "a"): None},
        "mark": {"$tuple": ["x" * 70, n]},
        "surrogate": "\ud800" * 40 + str(n),
        "list": [[n] * 3, ["x" * 70]],
        "nothing": None,
        "true": True,
        "empty": {},
    }
    return made[kind]


KINDS = ["message", "nested", "text", "short", "number", "float", "bytes", "with bytes", "tuple", "time", "set", "decimal",
         "odd keys", "mark", "surrogate", "list", "nothing", "true", "empty"]  # fmt: skip
kinds = st.sampled_from(KINDS)


def twin(value: Any, which: int) -> Any:
    """Something else that is equal, if there is; or the same content in other objects."""
    if which % 3 == 0:
        if type(value) is dict:
            return dict(reversed(value.items()))
        return tuple(value) if type(value) is list else copy.deepcopy(value)
    if value is True or value == 0:
        return [1, 1.0, 0, -0.0, 0.0, False][which % 6]
    if type(value) is int:
        return float(value)
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is bytes:
        return value.decode("latin-1")
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if type(value) is dict and value:
        key = list(value)[which % len(value)]
        return {**value, key: twin(value[key], which // 2)}
    if type(value) in (list, tuple) and value:
        return type(value)([twin(value[0], which // 2), *value[1:]])
    return copy.deepcopy(value)


processes = st.integers(0, 3)
paths = st.sampled_from([*PATHS, ("messages",), ("messages",)])
numbers = st.integers(0, 40)
edits = st.one_of(
    st.tuples(st.just("append"), paths, kinds, st.integers(1, 4)),
    st.tuples(st.just("append"), paths, kinds, st.integers(1, 4)),
    st.tuples(st.just("append what was there before"), paths, kinds, st.integers(0, 5)),
    st.tuples(st.just("insert"), paths, kinds, numbers),
    st.tuples(st.just("replace"), paths, kinds, numbers),
    st.tuples(st.just("twin"), paths, numbers, numbers),
    st.tuples(st.just("change in place"), paths, st.sampled_from(["content", "text", "meta", "calls"]), numbers),
    st.tuples(st.just("cut"), paths, numbers, st.integers(1, 30)),
    st.tuples(st.just("keep the last"), paths, st.integers(1, 6), numbers),
    st.tuples(st.just("summarise"), paths, st.integers(0, 4), numbers),
    st.tuples(st.just("rearrange"), paths, st.sampled_from(["reverse", "sort", "double", "rotate"]), numbers),
    st.tuples(st.just("turn into"), paths, st.sampled_from([list, tuple]), numbers),
    st.tuples(st.just("something else"), paths, st.sampled_from([None, "text", {}, 3]), numbers),
    st.tuples(st.just("rest"), paths, st.sampled_from([0, 10, 5000]), st.integers(0, 2)),
    st.tuples(st.just("make anew"), paths, numbers, numbers),
)
"""One change of a document: what, in which list, and two things more."""


class Log(RuleBasedStateMachine):
    """Histories of one thread and its copies, by several processes over one store.

    ``expected`` is what the store must hold: documents by checkpoint id, oldest first.
    """

    driver_class = MemoryDriver
    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.codec = self.options.get("codec")
        self.driver = self.driver_class(codec=self.codec)
        self.processes = [
            Backend(self.driver, **self.options),
            Backend(self.driver, **self.options),
            Backend(self.driver, hint_bytes=0, **self.options),
            Backend(self.driver, hint_bytes=6000, **self.options),
        ]
        self.expected: dict[str, dict[Any, Any]] = {}
        self.working: list[dict[Any, Any]] = [{} for _ in self.processes]
        self.number = 0
        self.snapshots: list[tuple[Any, Any]] = []

    # --- changing the documents that processes hold, in place

    def edit(self, process: int, what: str, path: tuple[str, ...], one: Any, other: int) -> None:
        document = self.working[process]
        if what == "rest":
            document["rest"] = {"text": "x" * one, "n": other, "at": datetime(2026, 1, 1 + other, tzinfo=UTC)}
            return
        if what == "make anew":
            self.working[process] = copy.deepcopy(document)
            return
        holder = document
        for key in path[:-1]:
            if type(holder.get(key)) is not dict:
                holder[key] = {}
            holder = holder[key]
        found = holder.get(path[-1])
        if type(found) is not list:
            found = holder[path[-1]] = list(found) if type(found) is tuple else []
        at = other % len(found) if found else 0
        self.number += 1
        match what:
            case "append":
                found += [element(one, self.number + i * 1000) for i in range(other)]
            case "append what was there before":
                found += [element(one, other)] * (1 + other % 3)
            case "insert":
                found.insert(at, element(one, self.number))
            case "replace" if found:
                found[at] = element(one, self.number)
            case "twin" if found:
                found[at] = twin(found[at], one)
            case "change in place" if found and type(found[at]) is dict:
                if type(found[at].get(one)) is list:
                    found[at][one].append(self.number)
                elif type(found[at].get(one)) is dict:
                    found[at][one]["n"] = self.number
                else:
                    found[at][one] = {"n": self.number}
            case "cut":
                del found[one : one + other]
            case "keep the last":
                del found[: max(0, len(found) - one)]
            case "summarise":
                summary = {"role": "system", "content": f"summary {self.number} " * 20}
                found[: max(0, len(found) - one)] = [summary]
            case "rearrange":
                self.rearrange(found, one)
            case "turn into":
                holder[path[-1]] = one(found)
            case "something else":
                holder[path[-1]] = copy.copy(one)

    @staticmethod
    def rearrange(found: list[Any], how: str) -> None:
        if how == "reverse":
            found.reverse()
        elif how == "sort":
            found.sort(key=repr)
        elif how == "rotate":
            found[:] = found[1:] + found[:1]
        elif len(found) < 30:
            found += found

    # --- saving and loading

    def _save(self, process: int, checkpoint_id: str | None = None, **options: Any) -> str:
        document = self.working[process]
        wanted = copy.deepcopy(document)
        saved = run(self.processes[process].save(THREAD, document, checkpoint_id, **options))
        assert_exact(document, wanted)  # saving changes nothing
        if options.get("if_exists") != "in_place":
            self.expected.pop(saved, None)
        self.expected[saved] = wanted
        keep = self.options.get("keep_checkpoints")
        if keep is not None:
            newest = list(self.expected)[-keep:]
            self.expected = {k: v for k, v in self.expected.items() if k in newest or k == saved}
        return saved

    @rule(process=processes, changes=st.lists(edits, min_size=1, max_size=4))
    def save(self, process: int, changes: list[tuple[Any, ...]]) -> None:
        for change in changes:
            self.edit(process, *change)
        self._save(process)

    @rule(changes=st.lists(st.tuples(processes, edits), min_size=5, max_size=15))
    def save_many(self, changes: list[tuple[int, tuple[Any, ...]]]) -> None:
        for process, change in changes:
            self.edit(process, *change)
            self._save(process)

    @rule(process=processes, change=edits, which=numbers, how=st.sampled_from(["newest", "in_place"]))
    def save_again(self, process: int, change: tuple[Any, ...], which: int, how: str) -> None:
        self.edit(process, *change)
        if self.expected:
            self._save(process, self.pick(which), if_exists=how)

    @rule(one=processes, other=processes)
    def hand_over(self, one: int, other: int) -> None:
        """Two processes share the very objects."""
        self.working[other] = self.working[one]

    def pick(self, which: int) -> str:
        """The id of a checkpoint that is there; small numbers are new ones."""
        known = list(reversed(self.expected))
        return known[which % len(known)]

    def _load(self, process: int, checkpoint_id: str | None) -> dict[Any, Any] | None:
        found = run(self.processes[process].load(THREAD, checkpoint_id))
        wanted = self.expected.get(next(reversed(self.expected), "") if checkpoint_id is None else checkpoint_id)
        if wanted is None:
            assert found is None
        else:
            assert_exact(found, wanted)
        return found

    @rule(process=processes)
    def load_the_newest(self, process: int) -> None:
        found = self._load(process, None)
        if found is not None:
            self.working[process] = found

    @rule(process=processes, which=numbers)
    def go_back(self, process: int, which: int) -> None:
        if self.expected:
            self.working[process] = self._load(process, self.pick(which)) or {}

    @rule(process=processes, which=numbers)
    def look_at(self, process: int, which: int) -> None:
        found = self._load(process, self.pick(which) if self.expected else "nothing")
        for holder, key in list(lists_of(found or {})):  # whatever the caller does with it
            if type(holder[key]) is list:
                holder[key].append("changed by the caller")

    # --- removing

    @rule(process=processes, which=numbers)
    def delete_one(self, process: int, which: int) -> None:
        if self.expected:
            checkpoint_id = self.pick(which)
            del self.expected[checkpoint_id]
            assert run(self.processes[process].delete(THREAD, checkpoint_id))

    @rule(process=processes, which=st.sets(numbers, max_size=6))
    def delete_several(self, process: int, which: set[int]) -> None:
        if self.expected:
            gone = {self.pick(n) for n in which}
            self.expected = {k: v for k, v in self.expected.items() if k not in gone}
            run(self.processes[process].delete(THREAD, gone))

    @rule(process=processes, sure=st.sampled_from([True, False, False, False]))
    def delete_all(self, process: int, sure: bool) -> None:
        if sure:
            run(self.processes[process].delete(THREAD))
            self.expected.clear()

    @rule(process=processes, keep=st.integers(1, 12))
    def vacuum(self, process: int, keep: int) -> None:
        run(self.processes[process].vacuum(0, keep))
        self.expected = dict(list(self.expected.items())[-keep:])

    # --- copies, and stores that are put back

    @rule(process=processes, which=numbers)
    def copy_up_to(self, process: int, which: int) -> None:
        if not self.expected:
            return
        checkpoint_id, store = self.pick(which), self.processes[process]
        assert run(store.copy_thread(THREAD, "copy", upto=checkpoint_id, overwrite=True))
        known = list(self.expected)
        for one in known[: known.index(checkpoint_id) + 1]:
            assert_exact(run(store.load("copy", one)), self.expected[one])
        assert run(store.list_checkpoints("copy", None)) == known[known.index(checkpoint_id) :: -1]
        self.nothing_is_left_over("copy")

    @rule(process=processes)
    def exchange_for_a_copy(self, process: int) -> None:
        """The thread is replaced by a copy of itself, with other numbers to come."""
        store = self.processes[process]
        if run(store.copy_thread(THREAD, "other", overwrite=True)):
            assert run(store.copy_thread("other", THREAD, overwrite=True))

    @rule()
    def take_a_snapshot(self) -> None:
        self.snapshots.append(copy.deepcopy((self.driver._tenants, self.expected)))

    @rule(which=st.integers(0, 3))
    def put_the_store_back(self, which: int) -> None:
        """A failover or a restored backup; the processes run on and know nothing of it."""
        if self.snapshots:
            state, expected = copy.deepcopy(self.snapshots[which % len(self.snapshots)])
            self.driver._tenants = state
            self.expected = expected

    # --- what holds at any time

    @invariant()
    def the_list_is_right(self) -> None:
        assert run(self.processes[2].list_checkpoints(THREAD, None)) == list(reversed(self.expected))

    @invariant()
    def nothing_is_left_over(self, thread_id: str = THREAD) -> None:
        thread = self.driver._tenants.get("default", {}).get(thread_id)
        if thread is not None:
            stored = stored_entries(thread, ThreadName("default", thread_id), self.codec)
            assert referred_to(thread, stored) == stored

    def teardown(self) -> None:
        for process in (0, 2):
            for checkpoint_id in self.expected:
                self._load(process, checkpoint_id)

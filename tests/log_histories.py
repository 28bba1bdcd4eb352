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

from exactness import assert_exact, differs, run
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from locus_store.backends.memory import MemoryDriver
from locus_store.core import frames
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
        for frame in frames.read(payload, codec, name):
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
        "nested": {"role": "assistant", "content": [{"type": "text", "text": "x" * 150, "n": n}], "calls": [], "meta": {}},
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


def twin(value: Any) -> Any:
    """Something else that is equal, if there is; or the same content in other objects."""
    if value is True:
        return 1
    if type(value) is int:
        return float(value)
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is dict:
        return dict(reversed([(k, twin(v)) for k, v in value.items()]))
    if type(value) is list:
        return [twin(v) for v in value]
    return copy.deepcopy(value)


class Log(RuleBasedStateMachine):
    """Histories of one thread and its copies, by several processes over one store.

    ``expected`` is what the store must hold: documents by checkpoint id, oldest first.
    """

    driver_class = MemoryDriver
    options: dict[str, Any] = {}  # noqa: RUF012

    checkpoints = Bundle("checkpoints")

    @initialize()
    def start(self) -> None:
        self.driver = self.driver_class()
        self.processes = [
            Backend(self.driver, **self.options),
            Backend(self.driver, **self.options),
            Backend(self.driver, hint_bytes=0, **self.options),
            Backend(self.driver, hint_bytes=3000, **self.options),
        ]
        self.expected: dict[str, dict[Any, Any]] = {}
        self.working: list[dict[Any, Any]] = [{} for _ in self.processes]
        self.number = 0
        self.snapshots: list[tuple[Any, Any]] = []

    # --- changing the documents that processes hold, in place

    def _list(self, process: int, path: tuple[str, ...]) -> tuple[dict[Any, Any], str, list[Any]]:
        holder = self.working[process]
        for key in path[:-1]:
            if type(holder.get(key)) is not dict:
                holder[key] = {}
            holder = holder[key]
        found = holder.get(path[-1])
        if type(found) is not list:
            found = holder[path[-1]] = list(found) if type(found) is tuple else []
        return holder, path[-1], found

    processes_ = st.integers(0, 3)
    paths = st.sampled_from(PATHS)

    @rule(process=processes_, path=paths, kind=kinds, count=st.integers(1, 4))
    def append(self, process: int, path: tuple[str, ...], kind: str, count: int) -> None:
        _, _, found = self._list(process, path)
        for _ in range(count):
            self.number += 1
            found.append(element(kind, self.number))

    @rule(process=processes_, path=paths, kind=kinds, n=st.integers(0, 5), count=st.integers(1, 3))
    def append_what_was_there_before(self, process: int, path: tuple[str, ...], kind: str, n: int, count: int) -> None:
        _, _, found = self._list(process, path)
        found += [element(kind, n)] * count

    @rule(process=processes_, path=paths, at=st.integers(0, 40), kind=kinds)
    def replace_one(self, process: int, path: tuple[str, ...], at: int, kind: str) -> None:
        _, _, found = self._list(process, path)
        if found:
            self.number += 1
            found[at % len(found)] = element(kind, self.number)

    @rule(process=processes_, path=paths, at=st.integers(0, 40))
    def replace_one_by_its_twin(self, process: int, path: tuple[str, ...], at: int) -> None:
        _, _, found = self._list(process, path)
        if found:
            found[at % len(found)] = twin(found[at % len(found)])

    @rule(process=processes_, path=paths, at=st.integers(0, 40), key=st.sampled_from(["content", "text", "meta", "calls"]))
    def change_one_in_place(self, process: int, path: tuple[str, ...], at: int, key: str) -> None:
        _, _, found = self._list(process, path)
        if found and type(found[at % len(found)]) is dict:
            self.number += 1
            one = found[at % len(found)]
            if type(one.get(key)) is list:
                one[key].append(self.number)
            else:
                one[key] = {"n": self.number}

    @rule(process=processes_, path=paths, start=st.integers(0, 30), length=st.integers(1, 30))
    def cut_out(self, process: int, path: tuple[str, ...], start: int, length: int) -> None:
        _, _, found = self._list(process, path)
        del found[start : start + length]

    @rule(process=processes_, path=paths, keep=st.integers(0, 5))
    def keep_the_last(self, process: int, path: tuple[str, ...], keep: int) -> None:
        _, _, found = self._list(process, path)
        del found[: max(0, len(found) - keep)]

    @rule(process=processes_, path=paths, keep=st.integers(0, 4))
    def summarise(self, process: int, path: tuple[str, ...], keep: int) -> None:
        _, _, found = self._list(process, path)
        self.number += 1
        found[: max(0, len(found) - keep)] = [{"role": "system", "content": f"summary {self.number} " * 20}]

    @rule(process=processes_, path=paths, turn=st.sampled_from(["reverse", "sort", "double", "rotate"]))
    def rearrange(self, process: int, path: tuple[str, ...], turn: str) -> None:
        _, _, found = self._list(process, path)
        if turn == "reverse":
            found.reverse()
        elif turn == "sort":
            found.sort(key=repr)
        elif turn == "rotate":
            found[:] = found[1:] + found[:1]
        elif len(found) < 30:
            found += found

    @rule(process=processes_, path=paths, kind=st.sampled_from([list, tuple]))
    def turn_into(self, process: int, path: tuple[str, ...], kind: type) -> None:
        holder, key, found = self._list(process, path)
        holder[key] = kind(found)

    @rule(process=processes_, path=paths, to=st.sampled_from([None, "text", {}, 3]))
    def replace_a_list(self, process: int, path: tuple[str, ...], to: Any) -> None:
        holder, key, _ = self._list(process, path)
        holder[key] = copy.copy(to)

    @rule(process=processes_, size=st.sampled_from([0, 10, 5000]), n=st.integers(0, 2))
    def change_the_rest(self, process: int, size: int, n: int) -> None:
        self.working[process]["rest"] = {"text": "x" * size, "n": n, "at": datetime(2026, 1, 1 + n, tzinfo=UTC)}

    @rule(process=processes_)
    def make_anew(self, process: int) -> None:
        """The same document in other objects."""
        self.working[process] = copy.deepcopy(self.working[process])

    @rule(one=processes_, other=processes_)
    def hand_over(self, one: int, other: int) -> None:
        """Two processes share the very objects."""
        self.working[other] = self.working[one]

    # --- saving and loading

    def _save(self, process: int, checkpoint_id: str | None = None, **options: Any) -> str:
        document = self.working[process]
        wanted = copy.deepcopy(document)
        saved = run(self.processes[process].save(THREAD, document, checkpoint_id, **options))
        assert_exact(document, wanted)  # saving changes nothing
        if options.get("if_exists") != "in_place":
            self.expected.pop(saved, None)
        self.expected[saved] = wanted
        return saved

    @rule(target=checkpoints, process=processes_)
    def save(self, process: int) -> str:
        return self._save(process)

    @rule(process=processes_, checkpoint_id=checkpoints, how=st.sampled_from(["newest", "in_place"]))
    def save_again(self, process: int, checkpoint_id: str, how: str) -> None:
        self._save(process, checkpoint_id, if_exists=how)

    def _load(self, process: int, checkpoint_id: str | None) -> dict[Any, Any] | None:
        found = run(self.processes[process].load(THREAD, checkpoint_id))
        wanted = self.expected.get(next(reversed(self.expected), "") if checkpoint_id is None else checkpoint_id)
        if wanted is None:
            assert found is None
        else:
            assert_exact(found, wanted)
        return found

    @rule(process=processes_)
    def load_the_newest(self, process: int) -> None:
        found = self._load(process, None)
        if found is not None:
            self.working[process] = found

    @rule(process=processes_, checkpoint_id=checkpoints)
    def go_back(self, process: int, checkpoint_id: str) -> None:
        found = self._load(process, checkpoint_id)
        if found is not None:
            self.working[process] = found

    @rule(process=processes_, checkpoint_id=checkpoints)
    def look_at(self, process: int, checkpoint_id: str) -> None:
        found = self._load(process, checkpoint_id)
        for holder, key in list(lists_of(found or {})):  # whatever the caller does with it
            if type(holder[key]) is list:
                holder[key].append("changed by the caller")

    # --- removing

    @rule(process=processes_, checkpoint_id=consumes(checkpoints))
    def delete_one(self, process: int, checkpoint_id: str) -> None:
        there = self.expected.pop(checkpoint_id, None) is not None
        assert run(self.processes[process].delete(THREAD, checkpoint_id)) is there

    @rule(process=processes_, gone=st.lists(consumes(checkpoints), max_size=4))
    def delete_several(self, process: int, gone: list[str]) -> None:
        for checkpoint_id in gone:
            self.expected.pop(checkpoint_id, None)
        run(self.processes[process].delete(THREAD, gone))

    @rule(process=processes_)
    def delete_all(self, process: int) -> None:
        run(self.processes[process].delete(THREAD))
        self.expected.clear()

    @rule(process=processes_, keep=st.integers(1, 3))
    def vacuum(self, process: int, keep: int) -> None:
        run(self.processes[process].vacuum(0, keep))
        self.expected = dict(list(self.expected.items())[-keep:])

    # --- copies, and stores that are put back

    @rule(process=processes_, checkpoint_id=checkpoints)
    def copy_up_to(self, process: int, checkpoint_id: str) -> None:
        if checkpoint_id not in self.expected:
            return
        store = self.processes[process]
        assert run(store.copy_thread(THREAD, "copy", upto=checkpoint_id, overwrite=True))
        known = list(self.expected)
        for one in known[: known.index(checkpoint_id) + 1]:
            assert_exact(run(store.load("copy", one)), self.expected[one])
        assert run(store.list_checkpoints("copy", None)) == known[known.index(checkpoint_id) :: -1]
        self.nothing_is_left_over("copy")

    @rule(process=processes_)
    def exchange_for_a_copy(self, process: int) -> None:
        """The thread is deleted, and made again out of a copy."""
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
        if hasattr(self, "driver"):
            assert run(self.processes[2].list_checkpoints(THREAD, None)) == list(reversed(self.expected))

    @invariant()
    def nothing_is_left_over(self, thread_id: str = THREAD) -> None:
        thread = self.driver._tenants.get("default", {}).get(thread_id) if hasattr(self, "driver") else None
        if thread is not None:
            stored = stored_entries(thread, ThreadName("default", thread_id))
            assert referred_to(thread, stored) == stored

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for process in (0, 2):
            for checkpoint_id in self.expected:
                self._load(process, checkpoint_id)


__all__ = ["JoiningDriver", "Log", "differs", "multiple", "referred_to", "stored_entries"]

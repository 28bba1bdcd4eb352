"""Any sequence of calls, drawn at random, against a plain dict that says what each must return."""

from __future__ import annotations

import asyncio
import copy
import itertools
from typing import Any

from cases import assert_same
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from locus_store.core.errors import CheckpointExistsError, ConflictError, ThreadExistsError

THREADS = st.sampled_from(["t", "T", "u"])
IDS = st.sampled_from(["a", "b", "c", "d", "e"])
ENTRY = st.sampled_from([{"n": n, "text": str(n) * size} for n in range(5) for size in (10, 90)] + [True, 1, 1.0, "x"])
CHANGE = st.tuples(
    st.sampled_from(["append", "cut the end", "cut the beginning", "edit", "replace", "nothing", "other list"]),
    st.lists(ENTRY, min_size=1, max_size=4),
    st.integers(0, 9),
)
METADATA = st.none() | st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from([1, True, "1", None]), max_size=2)


class Checkpoint:
    def __init__(self, document: dict[str, Any], metadata: dict[str, Any] | None, version: int, parent: int | None):
        self.document = document
        self.metadata = metadata
        self.version = version
        self.parent = parent


class Thread:
    def __init__(self) -> None:
        self.version = 0
        self.written = 0
        self.checkpoints: dict[str, Checkpoint] = {}

    def newest_first(self) -> list[tuple[str, Checkpoint]]:
        return sorted(self.checkpoints.items(), key=lambda item: -item[1].version)

    def head(self) -> Checkpoint | None:
        return self.newest_first()[0][1] if self.checkpoints else None


def changed(document: dict[str, Any], how: str, entries: list[Any], at: int) -> dict[str, Any]:
    document = copy.deepcopy(document)
    found = document.setdefault("items", [])
    at = at % (len(found) + 1)
    match how:
        case "append":
            found.extend(entries)
        case "cut the end":
            del found[at:]
        case "cut the beginning":
            del found[:at]
        case "edit":
            found[at : at + 1] = entries[:1]
        case "replace":
            found[:at] = entries
        case "other list":
            document[f"list {at % 3}"] = entries * at
    return document


class Machine(RuleBasedStateMachine):
    """Two backends of one place, each with a memory of its own, take turns."""

    tenants = itertools.count()
    place: Any
    runner: asyncio.Runner
    stores: list[Any]

    def __init__(self) -> None:
        super().__init__()
        tenant = f"tenant {next(self.tenants)}"
        self.faces = [store.tenant(tenant) for store in self.stores]
        self.threads: dict[str, Thread] = {}
        self.writes = itertools.count(1)

    documents = Bundle("documents")

    def call(self, who: int, method: str, *arguments: Any, **options: Any) -> Any:
        return self.runner.run(getattr(self.faces[who], method)(*arguments, **options))

    @initialize(target=documents)
    def first_document(self) -> dict[str, Any]:
        return {"items": [], "rest": {"deep": [1]}}

    @rule(target=documents, document=documents, change=CHANGE)
    def change_a_document(self, document: dict[str, Any], change: Any) -> dict[str, Any]:
        return changed(document, *change)

    @rule(
        who=st.integers(0, 1),
        thread=THREADS,
        document=documents,
        name=IDS,
        metadata=METADATA,
        how=st.sampled_from(["newest", "in_place", "error"]),
        expected=st.none() | st.integers(0, 3),
    )
    def save(self, who: int, thread: str, document: Any, name: str, metadata: Any, how: str, expected: Any) -> None:
        model = self.threads.get(thread, Thread())
        head = model.head()
        old = model.checkpoints.get(name)
        options = {"if_exists": how, "expected_version": expected, "metadata": metadata}
        if expected is not None and expected != (head.version if head else 0):
            try:
                self.call(who, "save", thread, document, name, **options)
            except ConflictError as e:
                assert (e.expected, e.actual) == (expected, head.version if head else 0)
                return
            raise AssertionError("a conflict was not seen")
        if old is not None and how == "error":
            try:
                self.call(who, "save", thread, document, name, **options)
            except CheckpointExistsError:
                return
            raise AssertionError("an id in use was not seen")
        assert self.call(who, "save", thread, document, name, **options) == name
        model.written = next(self.writes)
        self.threads[thread] = model
        if old is not None and how == "in_place":
            old.document, old.metadata = document, metadata
            return
        model.version += 1
        parent = head.version if head else None
        if old is not None and head is old:
            parent = old.parent
        model.checkpoints[name] = Checkpoint(document, metadata, model.version, parent)

    @rule(who=st.integers(0, 1), thread=THREADS, document=documents, metadata=METADATA, expects=st.booleans())
    def save_under_a_fresh_id(self, who: int, thread: str, document: Any, metadata: Any, expects: bool) -> None:
        model = self.threads.setdefault(thread, Thread())
        head = model.head()
        version = head.version if head else 0
        name = self.call(
            who, "save", thread, document, metadata=metadata, expected_version=version if expects else None
        )
        model.written = next(self.writes)
        model.version += 1
        model.checkpoints[name] = Checkpoint(document, metadata, model.version, version or None)

    @rule(who=st.integers(0, 1), thread=THREADS, name=st.none() | IDS, change=CHANGE)
    def load_change_and_save(self, who: int, thread: str, name: str | None, change: Any) -> None:
        model = self.threads.get(thread)
        found = self.call(who, "load", thread)
        assert (found is None) == (model is None)
        if found is not None and name is None:
            self.save_under_a_fresh_id(who, thread, changed(found, *change), None, True)
        elif found is not None:
            self.save(who, thread, changed(found, *change), name, None, "newest", model.head().version)

    @rule(who=st.integers(0, 1), thread=THREADS, nth=st.integers(0, 9))
    def delete_one_that_is_there(self, who: int, thread: str, nth: int) -> None:
        model = self.threads.get(thread)
        if model is not None:
            self.delete(who, thread, sorted(model.checkpoints)[nth % len(model.checkpoints)])

    @rule(who=st.integers(0, 1), thread=THREADS, names=st.none() | IDS | st.lists(IDS, max_size=3))
    def delete(self, who: int, thread: str, names: Any) -> None:
        model = self.threads.get(thread, Thread())
        gone = list(model.checkpoints) if names is None else [names] if isinstance(names, str) else names
        there = set(gone) & set(model.checkpoints)
        assert self.call(who, "delete", thread, names) is bool(there)
        for name in there:
            del model.checkpoints[name]
        if not model.checkpoints:
            self.threads.pop(thread, None)

    @rule(who=st.integers(0, 1), source=THREADS, dest=THREADS, upto=st.none() | IDS, overwrite=st.booleans())
    def copy(self, who: int, source: str, dest: str, upto: Any, overwrite: bool) -> None:
        model = self.threads.get(source)
        if source == dest or (model is not None and upto is not None and upto not in model.checkpoints):
            return
        options = {"upto": upto, "overwrite": overwrite}
        if model is not None and dest in self.threads and not overwrite:
            try:
                self.call(who, "copy_thread", source, dest, **options)
            except ThreadExistsError:
                return
            raise AssertionError("an existing thread was not seen")
        assert self.call(who, "copy_thread", source, dest, **options) is (model is not None)
        if model is None:
            return
        last = model.checkpoints[upto].version if upto is not None else model.version
        made = Thread()
        made.checkpoints = {n: copy.copy(c) for n, c in model.checkpoints.items() if c.version <= last}
        made.version = max(c.version for c in made.checkpoints.values())
        made.written = next(self.writes)
        self.threads[dest] = made

    @rule(who=st.integers(0, 1), keep=st.integers(0, 3))
    def vacuum(self, who: int, keep: int) -> None:
        gone = 0
        for name, model in list(self.threads.items()):
            for old, _ in model.newest_first()[keep:]:
                del model.checkpoints[old]
                gone += 1
            if not model.checkpoints:
                del self.threads[name]
        assert self.call(who, "vacuum", older_than_days=0, keep_last=keep) == gone

    @rule(who=st.integers(0, 1))
    def close(self, who: int) -> None:
        self.call(who, "close")

    @rule(who=st.integers(0, 1), key=st.sampled_from(["k", "l"]), value=st.sampled_from([1, True, "1", None]))
    def query(self, who: int, key: str, value: Any) -> None:
        expected = [
            (name, checkpoint_id)
            for name, model in sorted(self.threads.items(), key=lambda item: -item[1].written)
            for checkpoint_id, c in model.newest_first()
            if c.metadata and key in c.metadata and (type(c.metadata[key]), c.metadata[key]) == (type(value), value)
        ]
        found = self.call(who, "query_by_metadata", key, value, versions="all")
        assert [(r["thread_id"], r["checkpoint_id"]) for r in found] == expected

    @precondition(lambda self: self.threads)
    @rule(who=st.integers(0, 1))
    def everything_is_as_it_should_be(self, who: int) -> None:
        newest_first = sorted(self.threads, key=lambda name: -self.threads[name].written)
        assert self.call(who, "list_threads") == newest_first
        for name, model in self.threads.items():
            history = self.call(who, "history", name, None)
            by_version = {c.version: i for i, c in model.checkpoints.items()}
            assert [(i.checkpoint_id, i.version, i.parent, i.metadata) for i in history] == [
                (i, c.version, by_version.get(c.parent), c.metadata) for i, c in model.newest_first()
            ]
            for checkpoint_id, c in model.checkpoints.items():
                assert_same(self.call(who, "load", name, checkpoint_id), c.document)

    def teardown(self) -> None:
        if self.threads:
            self.everything_is_as_it_should_be(0)
            self.everything_is_as_it_should_be(1)
        for name in self.threads:
            assert self.call(0, "delete", name) is True
        assert self.place.count() == 0


def test_a_random_life(place):
    with asyncio.Runner() as runner:
        stores = [place.open(), place.open()]

        class Here(Machine):
            pass

        Here.place, Here.runner, Here.stores = place, runner, stores
        try:
            run_state_machine_as_test(
                Here,
                settings=settings(
                    max_examples=25,
                    stateful_step_count=25,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            for store in stores:
                runner.run(store.close())

"""The entry log: every checkpoint of any history loads equal, and what is stored grows with what is new."""

from __future__ import annotations

import asyncio
import copy
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from exactness import assert_exact, documents, run
from hypothesis import given, settings
from hypothesis import strategies as st
from log_histories import KINDS, THREAD, JoiningDriver, Log, element, referred_to, stored_entries
from pydantic import BaseModel, ConfigDict

from locus_store.backends.memory import MemoryDriver
from locus_store.core import entries, payloads
from locus_store.core.backend import Backend
from locus_store.core.driver import Key, Plan, PutResult, Stale
from locus_store.core.errors import CorruptCheckpointError, RetryableError, SerializationError
from locus_store.core.frames import ThreadName
from locus_store.core.placing import MAX_RANGES
from locus_store.core.references import References
from locus_store.core.unchanged import Snapshot

NAME = ThreadName("default", THREAD)

# --- any history ------------------------------------------------------------------------------------------------------


class Sealed:
    """Bytes that are compressed and that only their own thread can read."""

    name = "sealed"
    bound = True

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return thread.thread_id.encode() + b"\n" + zlib.compress(data, 1)

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        head, _, body = data.partition(b"\n")
        if head != thread.thread_id.encode():
            raise ValueError("of another thread")
        return zlib.decompress(body)


class JoinedLog(Log):
    driver_class = JoiningDriver


class KeepingLog(Log):
    options = {"keep_checkpoints": 3}  # noqa: RUF012


class SealedLog(Log):
    options = {"codec": Sealed()}  # noqa: RUF012


def machine(base: type[Log], examples: int, steps: int) -> type:
    made = type(f"Test{base.__name__}", (base.TestCase,), {})
    made.settings = settings(max_examples=examples, stateful_step_count=steps)
    return made


TestHistories = machine(Log, 40, 30)
TestJoinedHistories = machine(JoinedLog, 10, 30)
TestKeepingHistories = machine(KeepingLog, 10, 30)
TestSealedHistories = machine(SealedLog, 10, 30)
TestLongHistories = pytest.mark.endurance(machine(Log, 120, 60))
TestLongJoinedHistories = pytest.mark.endurance(machine(JoinedLog, 50, 60))
TestLongKeepingHistories = pytest.mark.endurance(machine(KeepingLog, 50, 60))
TestLongSealedHistories = pytest.mark.endurance(machine(SealedLog, 50, 60))


@settings(max_examples=80)
@given(st.lists(documents, min_size=1, max_size=4), st.booleans())
def test_any_documents_in_any_order(history, another_process):
    driver = MemoryDriver()
    store = Backend(driver)
    saved = {}
    for document in [*history, *history[::-1]]:
        saved[run(store.save(THREAD, document))] = document
        if another_process:
            store = Backend(driver)
    for checkpoint_id, document in saved.items():
        assert_exact(run(store.load(THREAD, checkpoint_id)), document)


# --- what is stored ---------------------------------------------------------------------------------------------------


@pytest.fixture
def driver():
    return MemoryDriver()


@pytest.fixture
def store(driver):
    return Backend(driver)


def thread_of(driver: MemoryDriver) -> Any:
    return driver._tenants["default"][THREAD]


def stored_lines(driver: MemoryDriver) -> list[bytes]:
    """Every entry that is stored, in the order of blocks."""
    found = []
    for payload in thread_of(driver).blocks.values():
        for frame in payloads.read(payload, None, NAME):
            found += [e.data for e in frame.entries()]
    return found


def stored_bytes(driver: MemoryDriver) -> int:
    thread = thread_of(driver)
    return sum(map(len, thread.blocks.values())) + sum(
        len(c.payload) + len(c.ranges) for c in thread.checkpoints.values()
    )


def head_ranges(driver: MemoryDriver) -> dict[int, list[Any]]:
    return {n: list(r) for n, r in thread_of(driver).head.references().lists.items()}


def span_and_used(driver: MemoryDriver) -> tuple[int, int]:
    """How many blocks a load of the newest checkpoint reads, and how many of them it uses."""
    thread = thread_of(driver)
    refs: References = thread.head.references()
    low, high = refs.span() or (1, 0)
    stored = stored_entries(thread, NAME)
    one = copy.copy(thread)
    one.checkpoints = {0: thread.head}
    return high - low + 1, len({block for _, block, _ in referred_to(one, stored)})


def message(n: Any, size: int = 150) -> dict[str, Any]:
    return {"role": "user", "content": f"{n}: " + "x" * size}


class Loads:
    """What happens between saves."""

    def __init__(self, driver: MemoryDriver, store: Backend) -> None:
        self.driver, self.store = driver, store

    def nothing(self, document: Any, saved: list[str]) -> Any:
        return document

    def the_newest(self, document: Any, saved: list[str]) -> Any:
        run(self.store.load(THREAD))
        return document

    def an_old_one(self, document: Any, saved: list[str]) -> Any:
        run(self.store.load(THREAD, saved[len(saved) // 2]))
        return document

    def every_one(self, document: Any, saved: list[str]) -> Any:
        for one in saved:
            run(self.store.load(THREAD, one))
        return document

    def going_on_from_the_loaded(self, document: Any, saved: list[str]) -> Any:
        return run(self.store.load(THREAD))

    def another_process(self, document: Any, saved: list[str]) -> Any:
        self.store.__dict__.update(Backend(self.driver).__dict__)
        return run(self.store.load(THREAD))

    def another_process_that_loads_nothing(self, document: Any, saved: list[str]) -> Any:
        self.store.__dict__.update(Backend(self.driver).__dict__)
        return document

    def made_anew(self, document: Any, saved: list[str]) -> Any:
        return copy.deepcopy(document)


BETWEEN = [name for name in vars(Loads) if not name.startswith("_")]


@pytest.mark.parametrize("between", BETWEEN)
def test_lists_that_only_grow_are_stored_once_and_are_one_range_each(driver, store, between):
    """Five lists at different paces, whatever is loaded between the saves, and by whom."""
    step = getattr(Loads(driver, store), between)
    document: dict[str, Any] = {"a": [], "b": {"c": []}, "d": [], "e": (), "few": []}
    saved: list[str] = []
    for n in range(60):
        document["a"] += [message(f"a{n}"), message(f"a{n}'")]
        if n % 3 == 0:
            document["b"]["c"].append(message(f"c{n}"))
        if n % 7 == 2:
            document["d"] += [message(f"d{n}")] * 2
        document["e"] = (*document["e"], message(f"e{n}"))
        if n == 50:
            document["few"].append(message("few", 300))
        saved.append(run(store.save(THREAD, document)))
        document = step(document, saved)
    lines = stored_lines(driver)
    if between == "another_process_that_loads_nothing":
        # What is less than 64 KB is rather stored than looked up.
        assert stored_bytes(driver) < 60 * 70_000
    else:
        assert len(lines) == 60 * 2 + 20 + 2 * 9 + 60 + 1
        assert len(set(lines)) == len(lines) - 9
    for number, ranges in head_ranges(driver).items():
        # The last range is what the own block added; the next save joins it with the one before.
        assert len(ranges) <= 2, (number, ranges)
    assert_exact(run(Backend(driver).load(THREAD)), document)


def test_what_is_stored_grows_with_what_is_new(driver, store):
    """One new message a save: the hundredth costs what the first did, but for the digits of its ranges."""
    document: dict[str, Any] = {"messages": [], "step": 0}
    sizes = []
    for n in range(300):
        document["messages"].append(message(n, 1000))
        document["step"] = n
        before = stored_bytes(driver) if n else 0
        run(store.save(THREAD, document))
        sizes.append(stored_bytes(driver) - before)
    assert max(sizes) < 1000 + 250
    assert max(sizes[-50:]) - min(sizes[1:50]) < 30


EDITS: dict[str, Callable[[list[Any], int, random.Random], int]] = {}


def edit(change: Callable[[list[Any], int, random.Random], int]) -> Callable[[list[Any], int, random.Random], int]:
    """A change of a list that returns how many elements are new in it."""
    EDITS[change.__name__] = change
    return change


@edit
def replace_anywhere(found: list[Any], n: int, rng: random.Random) -> int:
    found[rng.randrange(len(found))] = message(n)
    return 1


@edit
def replace_the_first(found: list[Any], n: int, rng: random.Random) -> int:
    found[0] = message(n)
    return 1


@edit
def replace_the_last(found: list[Any], n: int, rng: random.Random) -> int:
    found[-1] = message(n)
    return 1


@edit
def insert_anywhere(found: list[Any], n: int, rng: random.Random) -> int:
    found.insert(rng.randrange(len(found)), message(n))
    return 1


@edit
def insert_in_front(found: list[Any], n: int, rng: random.Random) -> int:
    found.insert(0, message(n))
    return 1


@edit
def cut_and_append(found: list[Any], n: int, rng: random.Random) -> int:
    del found[-2:]
    found += [message(n), message(-n), message(0.5 + n)]
    return 3


@edit
def slide(found: list[Any], n: int, rng: random.Random) -> int:
    del found[0]
    found.append(message(n))
    return 1


@edit
def slide_behind_a_pinned_one(found: list[Any], n: int, rng: random.Random) -> int:
    del found[1]
    found.append(message(n))
    return 1


@edit
def remove_anywhere(found: list[Any], n: int, rng: random.Random) -> int:
    if len(found) > 10:
        del found[rng.randrange(len(found))]
    found.append(message(n))
    return 1


@edit
def move_one(found: list[Any], n: int, rng: random.Random) -> int:
    found.append(found.pop(rng.randrange(len(found))))
    return 0


@edit
def summarise_sometimes(found: list[Any], n: int, rng: random.Random) -> int:
    found.append(message(n))
    if n % 20 == 19:
        found[:-10] = [message(f"summary {n}")]
        return 2
    return 1


@pytest.mark.parametrize("name", list(EDITS))
@pytest.mark.parametrize("fresh", [False, True], ids=["same objects", "fresh objects"])
def test_every_kind_of_edit_stores_little_more_than_what_is_new(driver, store, name, fresh):
    rng = random.Random(name)
    document = {"messages": [message(f"start {i}") for i in range(40)]}
    new, total = 40, 0
    for n in range(200):
        if n:
            new += EDITS[name](document["messages"], n, rng)
        if fresh:
            document = copy.deepcopy(document)
        run(store.save(THREAD, document))
        total += len(document["messages"])
        assert all(len(r) <= MAX_RANGES + 1 for r in head_ranges(driver).values())
        if n % 20 == 0:
            assert_exact(run(Backend(driver).load(THREAD)), document)
    # Beyond what is new: what is stored again because the list lay in too many pieces, or too far apart.
    stored = len(stored_lines(driver))
    assert stored <= 3 * new + 60
    assert stored < total / 4
    span, used = span_and_used(driver)
    # What a load reads in vain is at most as much as it uses; 200 saves of one block each.
    assert span <= 3 * used + 100 or (span - used) * 500 < 2 * len(document["messages"]) * 170
    assert_exact(run(Backend(driver).load(THREAD)), document)


@pytest.mark.parametrize("every", [1, 2])
def test_a_long_list_with_many_changes_is_not_searched_through_for_each_of_them(driver, store, monkeypatch, every):
    steps = 0
    whole = Snapshot.run

    def counted(snapshot: Snapshot, values: Any, at: int, **more: Any) -> int:
        nonlocal steps
        steps += at
        return whole(snapshot, values, at, **more)

    monkeypatch.setattr(Snapshot, "run", counted)
    document = {"messages": [message(n, 40) for n in range(6000)]}
    run(store.save(THREAD, document))
    for one in document["messages"][::every]:
        one["changed"] = True
    run(store.save(THREAD, document))
    assert steps < 1000 * 6000
    assert_exact(run(Backend(driver).load(THREAD)), document)


def test_a_load_reads_a_span_of_about_three_times_what_it_uses(driver, store):
    """A pinned first message and a window behind it, for 2,000 saves."""
    document = {"messages": [message("pinned")], "other": [message("never changes", 400)]}
    worst = 0.0
    for n in range(2000):
        document["messages"].append(message(n, 40))
        del document["messages"][1:-20]
        run(store.save(THREAD, document))
        if n % 50 == 0 or n > 1950:
            span, used = span_and_used(driver)
            worst = max(worst, (span - 64 - 32) / used)
    assert worst <= 3
    # What was stored again for that: the pinned message and the other list, now and then.
    assert len(stored_lines(driver)) < 2002 + 2000 * 0.1
    assert_exact(run(Backend(driver).load(THREAD)), document)


def test_writers_that_only_add_do_not_make_a_list_cost_ever_more(driver):
    """Two processes that go on with documents of their own and never load each other's."""
    stores = [Backend(driver), Backend(driver)]
    held: list[dict[str, Any]] = [{"messages": []}, {"messages": []}]
    for n in range(300):
        held[n % 2]["messages"].append(message(n))
        run(stores[n % 2].save(THREAD, held[n % 2]))
        assert all(len(r) <= MAX_RANGES + 1 for r in head_ranges(driver).values())
    assert len(stored_lines(driver)) < 3 * 300
    assert_exact(run(Backend(driver).load(THREAD)), held[1])


def test_an_unchanged_document_stores_nothing_new(driver, store):
    document = {"messages": [message(n) for n in range(50)], "rest": "x" * 10_000}
    run(store.save(THREAD, document))
    before = len(stored_lines(driver))
    for again in (document, copy.deepcopy(document), run(store.load(THREAD)), run(Backend(driver).load(THREAD))):
        run(store.save(THREAD, again))
    assert len(stored_lines(driver)) == before
    assert thread_of(driver).block_count == 1


def test_a_large_rest_is_stored_when_it_changes(driver, store):
    document: dict[str, Any] = {"text": "x" * 20_000, "small": [1, 2, 3], "n": {"m": 1}, "messages": []}
    for n in range(20):
        document["messages"].append(message(n))
        if n in (5, 6):
            document["n"]["m"] = n
        run(store.save(THREAD, document))
    assert sum(b"xxxxx" * 1000 in line for line in stored_lines(driver)) == 4  # at 0, 1 (a list was taken out), 5 and 6
    document["text"] = "short"
    run(store.save(THREAD, document))
    assert 0 not in head_ranges(driver)
    document["small"] = list(range(2000))
    run(store.save(THREAD, document))
    assert_exact(run(Backend(driver).load(THREAD)), document)


def test_a_process_that_knows_nothing_reads_before_it_stores_much_again(driver, store):
    document = {"messages": [message(n, 1000) for n in range(100)]}
    run(store.save(THREAD, document))
    document["messages"].append(message("new"))
    run(Backend(driver).save(THREAD, document))
    assert len(stored_lines(driver)) == 101
    run(Backend(driver, hint_bytes=0).save(THREAD, document))
    assert len(stored_lines(driver)) == 101
    assert len(head_ranges(driver)[1]) == 1


def test_reading_an_old_checkpoint_does_not_cost_the_next_save(driver, store):
    document = {"messages": [message(n, 500) for n in range(10)]}
    first = run(store.save(THREAD, document))
    document["messages"] += [message(n, 500) for n in range(10, 60)]
    run(store.save(THREAD, document))
    run(store.load(THREAD, first))
    document["messages"].append(message("new"))
    run(store.save(THREAD, document))
    assert len(stored_lines(driver)) == 61


def test_going_on_from_an_old_checkpoint_stores_the_new_branch_only(driver, store):
    document = {"messages": [message(n, 500) for n in range(30)]}
    first = run(store.save(THREAD, document))
    run(store.save(THREAD, {"messages": [message("summary"), *document["messages"][-3:]]}))
    branch = run(store.load(THREAD, first))
    branch["messages"].append(message("another way"))
    run(store.save(THREAD, branch))
    assert len(stored_lines(driver)) == 30 + 1 + 1
    assert_exact(run(store.load(THREAD)), branch)


# --- which lists ------------------------------------------------------------------------------------------------------


def test_the_largest_lists_are_taken_out_and_the_others_stay(driver, store):
    document = {f"k{n}": [f"{n}" * (20 * n + 300)] for n in range(100)}
    for _ in range(3):
        run(store.save(THREAD, document))
    taken = head_ranges(driver)
    assert len(taken) == entries.MAX_LISTS + 1  # and the rest
    document["k99"].append("new")
    run(store.save(THREAD, document))
    assert_exact(run(store.load(THREAD)), document)


def test_a_list_that_was_taken_out_stays_out_when_it_shrinks(driver, store):
    document = {"a": [message(1), message(2)], "b": (message(3), message(4))}
    run(store.save(THREAD, document))
    for smaller in ({"a": [], "b": ()}, {"a": [1], "b": [2]}, {"a": (), "b": 5}, {"b": ()}, {}, document):
        run(store.save(THREAD, smaller))
        assert_exact(run(store.load(THREAD)), smaller)
        assert_exact(run(Backend(driver).load(THREAD)), smaller)


@pytest.mark.parametrize(
    "key", [float("nan"), (1, float("nan")), 1.5, None, b"k", True, 7, "é", "\ud800", "$a", frozenset({1})]
)
def test_lists_behind_any_key_come_back(driver, store, key):
    """A key that is not equal to itself cannot be looked up again."""
    document = {"a": {key: [message(n) for n in range(5)]}, key: {"b": [message(n) for n in range(5)], key: (1,) * 300}}
    for _ in range(3):
        run(store.save(THREAD, document))
        assert_exact(run(Backend(driver).load(THREAD)), document)
        document["a"][key].append(message("new"))


def test_keys_that_are_equal_and_not_the_same(driver, store):
    for key in (1, True, 1.0, "1"):
        document = {key: [message(n) for n in range(5)]}
        run(store.save(THREAD, document))
        assert_exact(run(store.load(THREAD)), document)


# --- changes while a save is under way --------------------------------------------------------------------------------


class Slow(MemoryDriver):
    """Lets others run before and after it writes, and can be told to refuse what is planned on something."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse = 0
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def put(self, key: Key, plan: Plan) -> PutResult:
        self.waiting.set()
        await self.go_on.wait()
        if self.refuse and plan.base is not None:
            self.refuse -= 1
            return Stale()
        result = await super().put(key, plan)
        await asyncio.sleep(0)
        return result


def spoil(document: dict[str, Any]) -> None:
    """Change everything that can be changed in place."""
    document["new"] = 1
    for value in list(document.values()):
        if type(value) is list:
            for item in value:
                if type(item) is dict:
                    item.clear()
                    item["spoilt"] = True
            value.append("spoilt")
        elif type(value) is dict:
            spoil(value)


async def save_and_spoil(driver: Slow, store: Backend, document: dict[str, Any], how: Callable[[Any], None]) -> str:
    driver.waiting.clear()
    driver.go_on.clear()
    under_way = asyncio.create_task(store.save(THREAD, document))
    await driver.waiting.wait()
    how(document)
    driver.go_on.set()
    return await under_way


@pytest.mark.parametrize("refused", [0, 1, 2])
@pytest.mark.parametrize("known", ["nothing", "saved", "loaded"])
async def test_what_is_saved_is_the_document_as_it_was_when_save_was_called(refused, known):
    """Also where the save has to be planned again: on what is stored by then, or on nothing."""
    driver = Slow()
    store = Backend(driver)
    document = {"messages": [message(n) for n in range(8)], "deep": {"er": [message(n) for n in range(4)]}, "n": [1]}
    document["messages"].append({"content": [{"text": "x" * 100}], "f": [1.0, -0.0], "none": None})
    if known != "nothing":
        await store.save(THREAD, document)
        await store.save(THREAD, {"messages": document["messages"][:2]})
    if known == "loaded":
        store = Backend(driver)
        document = await store.load(THREAD)
    document["messages"].append(message("new"))
    driver.refuse = refused
    for how in (lambda d: d["messages"].append(1), lambda d: d.clear(), spoil):
        held = copy.deepcopy(document)
        wanted = copy.deepcopy(document)
        saved = await save_and_spoil(driver, store, held, how)
        assert_exact(await Backend(driver).load(THREAD, saved), wanted)
        # Nor does what was remembered take the spoilt one for the saved one.
        again = await store.save(THREAD, held)
        assert_exact(await Backend(driver).load(THREAD, again), held)
        driver.refuse = refused


async def test_a_large_rest_and_raw_bytes_are_as_they_were_too():
    driver = Slow()
    store = Backend(driver)
    document = {"rest": {"text": "x" * 9000, "l": [1, [2]]}, "raw": [bytes([n]) * 200 for n in range(5)]}
    await store.save(THREAD, document)
    driver.refuse = 2
    wanted = copy.deepcopy(document)
    saved = await save_and_spoil(driver, store, document, lambda d: (d["rest"]["l"][1].append(3), d["raw"].clear()))
    assert_exact(await Backend(driver).load(THREAD, saved), wanted)


async def test_elements_that_cannot_be_taken_apart_are_as_they_were_too():
    driver = Slow()
    store = Backend(driver)
    document = {"messages": [{"tags": {"a"}, "text": "x" * 300}, {7: {"n": [1]}}, message(1)]}
    await store.save(THREAD, document)
    await Backend(driver).delete(THREAD)
    document["messages"].append(message(2))
    wanted = copy.deepcopy(document)

    def change(held: Any) -> None:
        held["messages"][0]["tags"].add("b")
        held["messages"][1][7]["n"].append(2)

    saved = await save_and_spoil(driver, store, document, change)
    assert_exact(await store.load(THREAD, saved), wanted)


class Node(BaseModel):
    model_config = ConfigDict(frozen=True)

    notes: dict[str, str] = {}
    text: str = "x" * 100
    below: Node | None = None


class Tree(BaseModel):
    nodes: list[Node]


async def test_what_cannot_be_told_as_it_was_is_an_error_and_nothing_is_written():
    """Objects that were recognised, nested so deeply that their content was not kept, and changed meanwhile."""
    driver = Slow()
    store = Backend(driver).checkpointer(Tree)
    node = Node(notes={"a": "b"})
    for _ in range(20):
        node = Node(below=node)
    tree = Tree(nodes=[node])
    await store.save(tree, THREAD)
    await Backend(driver).delete(THREAD)

    def change(held: Any) -> None:
        one = held.nodes[0]
        while one.below is not None:
            one = one.below
        one.notes["a"] = "c"

    driver.waiting.clear()
    driver.go_on.clear()
    under_way = asyncio.create_task(store.save(tree, THREAD))
    await driver.waiting.wait()
    change(tree)
    driver.go_on.set()
    with pytest.raises(RetryableError):
        await under_way
    assert await store.load(THREAD) is None
    await store.save(tree, THREAD)
    assert await store.load(THREAD) == tree


async def test_a_loaded_document_is_the_callers_own(driver, store):
    document = {"messages": [message(n) for n in range(5)], "n": {"m": [1, 2]}}
    await store.save(THREAD, document)
    for _ in range(2):
        found = await store.load(THREAD)
        assert_exact(found, {"messages": [message(n) for n in range(5)], "n": {"m": [1, 2]}})
        spoil(found)
    spoil(document)
    assert_exact(await store.load(THREAD), {"messages": [message(n) for n in range(5)], "n": {"m": [1, 2]}})


async def test_saves_of_one_thread_at_once_are_all_as_they_were():
    driver = Slow()
    store = Backend(driver)
    document: dict[str, Any] = {"messages": []}
    saved: list[tuple[Any, dict[str, Any]]] = []
    for n in range(30):
        document["messages"].append(message(n))
        if n % 7 == 3:
            document["messages"][n // 2]["content"] = f"edited {n}" * 20
        saved.append((asyncio.create_task(store.save(THREAD, document)), copy.deepcopy(document)))
        if n % 3 == 0:
            await asyncio.sleep(0)
    for task, _ in saved:
        await task
    # A task begins when it first runs, so it may have seen a later document, but none in between.
    wanted = [d for _, d in saved]
    for task, _ in saved:
        found = await Backend(driver).load(THREAD, task.result())
        assert any(found == d for d in wanted)
    thread = thread_of(driver)
    stored = stored_entries(thread, NAME)
    assert referred_to(thread, stored) == stored


class Gated(MemoryDriver):
    """Writes what is put when the gate that was given for it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[asyncio.Event] = []

    async def put(self, key: Key, plan: Plan) -> PutResult:
        if self.gates:
            await self.gates.pop(0).wait()
        return await super().put(key, plan)


async def test_numbers_that_a_store_gives_out_twice_are_never_mixed_up():
    """Two saves are under way. The first is written and lost in a failover, and another process gets its number; then the
    second is written. What was known of the first one's block must not be taken for what is in the other's.
    """
    driver = Gated()
    store = Backend(driver)
    document = {"a": [message(n) for n in range(4)], "b": [message(n) for n in range(4)]}
    await store.save(THREAD, document)
    snapshot = copy.deepcopy(driver._tenants)
    driver.gates = [asyncio.Event(), asyncio.Event()]
    gates = list(driver.gates)
    mine, late = copy.deepcopy(document), copy.deepcopy(document)
    mine["a"].append(message("mine"))
    late["b"].append(message("late"))
    first = asyncio.create_task(store.save(THREAD, mine))
    second = asyncio.create_task(store.save(THREAD, late))
    await asyncio.sleep(0)
    gates[0].set()
    await first
    driver._tenants = snapshot
    other = await Backend(driver).load(THREAD)
    other["b"] += [message("other's"), message("other's too")]
    await Backend(driver).save(THREAD, other)
    gates[1].set()
    await second
    for n in range(3):
        late["b"].append(message(f"late {n}"))
        saved = await store.save(THREAD, late)
        assert_exact(await Backend(driver).load(THREAD, saved), late)


# --- errors and damage ------------------------------------------------------------------------------------------------


def test_a_refused_save_leaves_everything_as_it_was(driver, store):
    document: dict[str, Any] = {"messages": [message(n) for n in range(5)]}
    run(store.save(THREAD, document))
    before = copy.deepcopy(driver._tenants)
    for path, bad in (
        ("$.messages[5]", {"messages": [*document["messages"], len]}),
        ("$.messages[2].content", {"messages": [*document["messages"][:2], {"content": len}]}),
        ("$.a.b", {**document, "a": {"b": len}}),
        ("$.a[0]", {**document, "a": [len]}),
        ("$.t[1][0]", {"t": (1, (len, "x" * 500))}),
        ("$", type("Own", (dict,), {})(document)),
    ):
        with pytest.raises(SerializationError) as caught:
            run(store._save_document(THREAD, bad, None, None, None, "newest", None))
        assert caught.value.path == path
        assert driver._tenants == before
    document["messages"].append(message("new"))
    run(store.save(THREAD, document))
    assert_exact(run(store.load(THREAD)), document)


def test_an_old_element_that_now_contains_itself_is_refused_at_once(store):
    document: dict[str, Any] = {"messages": [{"role": "user", "of": None, "text": "x" * 300} for _ in range(20)]}
    run(store.save(THREAD, document))
    for m in document["messages"]:
        m["of"] = document
    with pytest.raises(SerializationError):
        run(store.save(THREAD, document))


def test_deep_documents_are_refused_with_a_path(store):
    deep: Any = {"x": 1}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(SerializationError, match=r"\$\.a\.a"):
        run(store.save(THREAD, deep))
    with pytest.raises(SerializationError, match=r"\$\.l"):
        run(store.save(THREAD, {"l": [deep]}))
    with pytest.raises(SerializationError):
        run(store.save(THREAD, {("k",): deep}))


def damaged(payload: bytes, at: int) -> bytes:
    return payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]


def test_no_single_changed_byte_ever_gives_another_document(driver, store):
    """Payload, ranges and blocks: either the document is what was saved, or it is an error with both ids."""
    document: dict[str, Any] = {"a": [], "b": []}
    for n in range(12):
        document["a" if n % 2 else "b"].append({"n": n, "text": "x" * 60})
        checkpoint_id = run(store.save(THREAD, document))
        if n == 5:
            run(store.save(THREAD, {"c": [message(1), message(2)]}))  # a block that lies between and is not used
    good = copy.deepcopy(driver._tenants)
    fields: list[tuple[str, int | None]] = [("payload", None), ("ranges", None)]
    fields += [("block", n) for n in thread_of(driver).blocks]
    wrong = 0
    for field, number in fields:
        size = len(thread_of(driver).blocks[number] if number else getattr(thread_of(driver).head, field))
        for at in range(size):
            driver._tenants = copy.copy(good)
            thread = thread_of(driver).copy()
            driver._tenants = {"default": {THREAD: thread}}
            if number:
                thread.blocks[number] = damaged(thread.blocks[number], at)
            else:
                head = thread.head
                changed = {field: damaged(getattr(head, field), at)}
                thread.checkpoints[head.version] = type(head)(
                    **{name: changed.get(name, getattr(head, name)) for name in head.__slots__}
                )
            try:
                found = run(Backend(driver).load(THREAD))
            except CorruptCheckpointError as e:
                assert (e.thread_id, e.checkpoint_id) == (THREAD, checkpoint_id)
                wrong += 1
            except Exception as e:
                assert "UnsupportedFormat" in type(e).__name__, (field, at)
                wrong += 1
            else:
                assert_exact(found, document)
    assert wrong > 300


def test_a_missing_block_is_an_error(driver, store):
    document: dict[str, Any] = {"a": []}
    for n in range(6):
        document["a"].append(message(n))
        run(store.save(THREAD, document))
    for number in list(thread_of(driver).blocks):
        payload = thread_of(driver).blocks.pop(number)
        with pytest.raises(CorruptCheckpointError):
            run(Backend(driver).load(THREAD))
        thread_of(driver).blocks[number] = payload


def test_a_save_builds_on_nothing_that_is_damaged(driver, store):
    document = {"a": [message(n, 1000) for n in range(100)]}
    run(store.save(THREAD, document))
    thread_of(driver).blocks[1] = damaged(thread_of(driver).blocks[1], 5000)
    document["a"].append(message("new"))
    run(Backend(driver).save(THREAD, document))
    assert_exact(run(Backend(driver).load(THREAD)), document)


def test_elements_of_every_kind_are_found_again(driver, store):
    found = [element(kind, n) for n in range(3) for kind in KINDS]
    run(store.save(THREAD, {"l": found}))
    turned = [*found[10:], *found[:10]]
    run(store.save(THREAD, {"l": copy.deepcopy(turned)}))
    assert_exact(run(store.load(THREAD)), {"l": turned})
    large = [line for line in stored_lines(driver) if len(line) > 64]
    assert len(large) == len(set(large))

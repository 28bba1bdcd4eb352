"""States as documents: any pydantic model comes back equal, or is refused by the path of what would not."""

from __future__ import annotations

import copy
import enum
import functools
import itertools
import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import pytest
from exactness import assert_exact, run
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    HttpUrl,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SecretBytes,
    SecretStr,
    SerializeAsAny,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from locus_store.backends.memory import MemoryDriver
from locus_store.core import payloads
from locus_store.core.backend import Backend
from locus_store.core.dumping import Dumper
from locus_store.core.errors import SerializationError
from locus_store.core.frames import ThreadName
from locus_store.core.messages import Message, Role, ToolCall
from locus_store.core.state import AgentState, ReasoningStep, ToolExecution

THREAD = "t"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclass
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list)


@pydantic_dataclass
class Checked:
    colour: Colour
    at: datetime


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    colour: Colour
    anything: Any


class Inner(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = "inner"
    data: dict[str, Any] = {}


class Further(Inner):
    more: int = 1


class Everything(BaseModel):
    """Fields of every type whose values are not plain data."""

    colour: Colour = Colour.RED
    level: Level = Level.LOW
    flags: Flags = Flags.A | Flags.B
    maybe: Colour | None = None
    path: Path = Path("/tmp/x")
    pure: PurePosixPath = PurePosixPath("a/b")
    pures: dict[str, list[PurePosixPath]] = {"a": [PurePosixPath("c")]}
    pattern: re.Pattern[str] = re.compile("a+")
    fraction: Fraction = Fraction(1, 3)
    url: HttpUrl = HttpUrl("https://example.org/x?y=1")
    address: IPv4Address = IPv4Address("127.0.0.1")
    size: ByteSize = ByteSize(5)
    point: Point = field(default_factory=lambda: Point(1, 2.5, ["a"]))
    checked: Checked = field(default_factory=lambda: Checked(Colour.BLUE, datetime(2026, 1, 1, tzinfo=UTC)))
    pair: Pair = Pair(1, "x")
    options: Options = {"colour": Colour.BLUE}
    inner: Inner = Inner()
    inners: list[Inner] = [Inner(name="a"), Inner(name="b", data={"c": [1]})]
    tuple_of: tuple[Inner, ...] = (Inner(),)
    pair_of: tuple[Inner, Colour] = (Inner(), Colour.RED)
    by_name: dict[str, Inner] = {"a": Inner(), "b": Inner(name="b")}
    lists_by_name: dict[str, list[Inner]] = {"a": [Inner()], "b": []}
    by_colour: dict[Colour, int] = {Colour.RED: 1}
    colours: set[Colour] = {Colour.RED, Colour.BLUE}
    frozen_colours: frozenset[Colour] = frozenset({Colour.RED})
    queue: deque[int] = deque([1, 2])
    ordered: OrderedDict[str, int] = OrderedDict(a=1)
    counts: defaultdict[str, int] = defaultdict(int, a=1)
    sequence: Sequence[Inner] = (Inner(),)
    plain: Any = None
    when: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    money: Decimal = Decimal("1.10")
    uuid: UUID = UUID(int=1)
    length: timedelta = timedelta(1)
    raw: bytes = b"\x00\xff"
    share: float = 0  # a default that is not validated
    literal: Literal["a", 1] = "a"


def saved_and_loaded(state: BaseModel, kind: type[BaseModel] | None = None) -> Any:
    driver = MemoryDriver()
    run(Backend(driver).checkpointer(kind or type(state)).save(state, THREAD))
    return run(Backend(driver).checkpointer(kind or type(state)).load(THREAD))


def refused(state: BaseModel, path: str) -> SerializationError:
    driver = MemoryDriver()
    store = Backend(driver)
    with pytest.raises(SerializationError) as caught:
        run(store.checkpointer(type(state)).save(state, THREAD))
    assert caught.value.path == path
    assert run(store.load(THREAD)) is None
    return caught.value


# --- what comes back --------------------------------------------------------------------------------------------------


def test_every_declared_type_comes_back():
    state = Everything()
    assert saved_and_loaded(state) == state
    again = Everything(plain={"a": [1, (2,), {3}]}, maybe=Colour.BLUE, inners=[], queue=deque(), by_name={})
    found = saved_and_loaded(again)
    assert found == again
    assert_exact(found.plain, again.plain)
    for name, value in again:
        assert type(getattr(found, name)) is type(value) or name == "share"


def test_a_document_of_a_state_is_plain_data_under_the_names_of_fields():
    document = Dumper(Everything).document(Everything())
    assert document["colour"] == "red"
    assert document["path"] == "/tmp/x"
    assert document["point"] == {"x": 1, "y": 2.5, "tags": ["a"]}
    assert document["checked"] == {"colour": "blue", "at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert document["by_colour"] == {"red": 1}
    assert list(document) == list(Everything.model_fields)


class Aliased(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    one: int = Field(alias="eins")
    two: Inner = Field(validation_alias=AliasChoices("zwei", "deux"), serialization_alias="due")
    three: list[Inner] = Field(alias="drei")


def test_aliases():
    state = Aliased.model_validate({"eins": 1, "zwei": {}, "drei": [{}]})
    assert saved_and_loaded(state) == state
    assert list(Dumper(Aliased).document(state)) == ["one", "two", "three"]
    # A document that was stored under aliases, by whatever else, is read as well.
    assert Dumper(Aliased).state({"eins": 1, "deux": {}, "drei": []}).one == 1


class Excluding(BaseModel):
    kept: int
    client: Any = Field(default=None, exclude=True)
    _private: int = PrivateAttr(default=1)

    @computed_field
    def double(self) -> int:
        return 2 * self.kept

    @functools.cached_property
    def triple(self) -> int:
        return 3 * self.kept


def test_excluded_private_and_computed_values_are_not_stored():
    state = Excluding(kept=1, client=object())
    state._private = 5
    assert state.triple == 3
    assert Dumper(Excluding).document(state) == {"kept": 1}
    found = saved_and_loaded(state)
    assert (found.kept, found.client, found._private) == (1, None, 1)


class Serializing(BaseModel):
    secret: SecretStr
    rounded: float
    path: Annotated[Path, PlainSerializer(lambda p: ["path", *p.parts])]
    for_json_only: frozenset[str] = frozenset({"b", "a"})

    @field_serializer("secret")
    def tell(self, value: SecretStr) -> str:
        return value.get_secret_value()

    @field_serializer("rounded")
    def cut(self, value: float) -> float:
        return round(value, 1)

    @field_serializer("for_json_only", when_used="json")
    def sort(self, value: frozenset[str]) -> list[str]:
        return sorted(value)

    @field_validator("path", mode="before")
    @classmethod
    def join(cls, value: Any) -> Any:
        return Path(*value[1:]) if isinstance(value, list) else value


def test_a_models_own_serializers_are_obeyed():
    state = Serializing(secret=SecretStr("s3cret"), rounded=1.26, path=Path("a/b"))
    found = saved_and_loaded(state)
    assert found == state.model_copy(update={"rounded": 1.3})
    assert Dumper(Serializing).document(state)["path"] == ["path", "a", "b"]


class Wrapped(BaseModel):
    a: int
    b: Colour

    @model_serializer
    def pack(self) -> dict[str, Any]:
        return {"packed": [self.a, self.b]}

    @model_validator(mode="before")
    @classmethod
    def unpack(cls, value: Any) -> Any:
        return dict(zip("ab", value["packed"], strict=True)) if "packed" in value else value


def test_a_serializer_of_the_whole_model_is_obeyed():
    state = Wrapped(a=1, b=Colour.BLUE)
    assert Dumper(Wrapped).document(state) == {"packed": [1, "blue"]}
    assert saved_and_loaded(state) == state


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int = 1
    deep: Inner = Inner()


def test_keys_that_a_newer_release_added_are_kept():
    state = Extra.model_validate({"a": 2, "new": {"b": [1, (2,)]}, "newer": None})
    found = saved_and_loaded(state)
    assert found == state
    assert_exact(found.model_extra, {"new": {"b": [1, (2,)]}, "newer": None})
    refused(Extra.model_validate({"new": Colour.RED}), "$.new")
    refused(Extra.model_validate({"new": Inner()}), "$.new")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    colour: Colour = Colour.RED
    pair: tuple[Inner, ...] = (Inner(),)
    sets: set[Colour] = {Colour.RED}


class Mixed(BaseModel):
    by_key: dict[Colour | str, int] = {}
    by_colour: dict[Colour, int] = {}
    members: set[Colour] = set()


def test_what_would_become_one_is_refused():
    refused(Mixed(by_key={Colour.RED: 1}), "$.by_key.<key>")
    refused(Mixed.model_construct(by_colour={Colour.RED: 1, "red": 2}), "$.by_colour.<key>")
    refused(Mixed.model_construct(members={Colour.RED, "red"}), "$.members.<member>")


def test_a_strict_model_comes_back_too():
    assert saved_and_loaded(Strict()) == Strict()


Item = TypeVar("Item")


class Box(BaseModel, Generic[Item]):
    items: list[Item]
    one: Item | None = None


def test_generic_models():
    for state in (Box[Inner](items=[Inner()]), Box[Colour](items=[Colour.RED], one=Colour.BLUE), Box[int](items=[1])):
        assert saved_and_loaded(state) == state
    refused(Box[Any](items=[Colour.RED]), "$.items[0]")


class Numbers(RootModel[list[int]]):
    pass


class WithRoot(BaseModel):
    numbers: Numbers = Numbers([1, 2])


def test_a_root_model_within_a_state():
    assert saved_and_loaded(WithRoot()) == WithRoot()
    with pytest.raises(TypeError, match="RootModel"):
        Dumper(Numbers)
    with pytest.raises(TypeError, match="pydantic model"):
        Dumper(dict)  # type: ignore[type-var]


class Tag(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str


class Tagged(BaseModel):
    tags: set[Tag]
    frozen: frozenset[Tag] = frozenset()


def test_sets_of_models_are_stored_in_an_order_of_their_own():
    tags = {Tag(name=n) for n in "abcdefgh"}
    assert saved_and_loaded(Tagged(tags=tags, frozen=frozenset(tags))) == Tagged(tags=tags, frozen=frozenset(tags))
    assert Dumper(Tagged).document(Tagged(tags=tags))["tags"] == [{"name": n} for n in "abcdefgh"]


class Share(BaseModel):
    share: float = 0
    ratio: float = 1
    flag: bool = False
    colour: Colour = Colour.RED


def test_a_default_that_is_not_validated_is_no_reason_to_refuse():
    """``share: float = 0`` comes back as 0.0, which is equal."""
    assert saved_and_loaded(Share()) == Share()


def test_a_state_of_another_type_is_stored_as_it_is_and_read_as_the_checkpointers():
    class TheirRole(enum.StrEnum):
        USER = "user"

    class TheirMessage(BaseModel):
        role: TheirRole
        content: str

    class TheirState(BaseModel):
        run_id: str
        messages: tuple[TheirMessage, ...]

    theirs = TheirState(run_id="r", messages=(TheirMessage(role=TheirRole.USER, content="x"),))
    found = saved_and_loaded(theirs, AgentState)
    assert type(found) is AgentState
    assert found.messages == (Message.user("x"),)
    assert saved_and_loaded(AgentState(run_id="r").with_message(Message.user("x")), TheirState) == theirs


# --- what is refused --------------------------------------------------------------------------------------------------


class Open(BaseModel):
    value: Any = None
    values: list[Any] = []
    data: dict[str, Any] = {}
    union: int | str | Colour | None = None
    objects: list[Inner | Tag] = []
    text: str = ""
    secret: SecretStr | None = None
    secrets: list[SecretBytes] = []


REFUSED: dict[str, Callable[[], Open]] = {
    "$.value": lambda: Open(value=Colour.RED),
    "$.values[1]": lambda: Open(values=[1, Colour.RED]),
    "$.values[0].a[2]": lambda: Open(values=[{"a": [1, 2, Inner()]}]),
    "$.data.b": lambda: Open(data={"a": 1, "b": Path("x")}),
    "$.data['a b'].c": lambda: Open(data={"a b": {"c": Level.LOW}}),
    "$.secret": lambda: Open(secret=SecretStr("s3cret")),
    "$.secrets[1]": lambda: Open(secrets=[SecretBytes(b""), SecretBytes(b"s3cret")]),
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_would_come_back_as_something_else_is_refused(path):
    error = refused(REFUSED[path](), path)
    assert "s3cret" not in str(error)


@pytest.mark.parametrize(
    "value",
    [
        Inner(),
        Point(1),
        Pair(1, "x"),
        HttpUrl("https://example.org"),
        IPv4Address("127.0.0.1"),
        OrderedDict(a=1),
        deque([1]),
        Flags.A,
        SecretStr("s3cret"),
        SecretStr(""),
        len,
        object(),
        Point,
        Inner,
        (i for i in ()),
        bytearray(b"x"),
        1j,
        {Colour.RED},
        {Colour.RED: 1},
        {Point: 1},
        frozenset({Tag(name="a")}),
        {Tag(name="a"): 1},
        [[Inner()]],
        (Inner(),),
    ],
    ids=itertools.count(),  # what some of them are called differs from process to process
)
def test_nothing_that_is_not_plain_passes_where_anything_may_be(value):
    for state in (Open(value=value), Open(data={"a": value}), Open(values=[value])):
        driver = MemoryDriver()
        with pytest.raises(SerializationError) as caught:
            run(Backend(driver).checkpointer(Open).save(state, THREAD))
        assert caught.value.path.startswith(("$.value", "$.data.a"))
        assert run(Backend(driver).load(THREAD)) is None


def test_a_generator_is_not_used_up():
    state = Open(value=iter([1, 2]))
    refused(state, "$.value")
    assert list(state.value) == [1, 2]


class One(BaseModel):
    model_config = ConfigDict(frozen=True)

    x: int


class Two(BaseModel):
    model_config = ConfigDict(frozen=True)

    x: int | str


class Choice(enum.Enum):
    A = "a"
    B = "b"


class Ambiguous(BaseModel):
    one: One | Two | None = None
    many: list[One | Two] = []
    nested: dict[str, list[One | Two]] = {}
    choice: Literal["a"] | Choice | None = None
    options: Options = {}


def test_one_value_may_come_back_and_another_one_not():
    """Where a type leaves open what comes back, each value is looked at, not only the first."""
    good = Ambiguous(one=Two(x="s"), many=[Two(x="s"), One(x=1)], nested={"a": [Two(x="s")]}, choice=Choice.B)
    driver = MemoryDriver()
    store = Backend(driver).checkpointer(Ambiguous)
    run(store.save(good, THREAD))
    assert run(store.load(THREAD)) == good
    for path, changes in (
        ("$.one", {"one": Two(x=1)}),
        ("$.many[2]", {"many": [*good.many, Two(x=1)]}),
        ("$.nested.a[1]", {"nested": {"a": [*good.nested["a"], Two(x=1)]}}),
        ("$.choice", {"choice": Choice.A}),
        ("$.options.anything", {"options": {"anything": Colour.RED}}),
    ):
        with pytest.raises(SerializationError) as caught:
            run(store.save(good.model_copy(update=changes), THREAD))
        assert caught.value.path == path
        assert run(store.load(THREAD)) == good
    fine = good.model_copy(update={"many": [*good.many, Two(x="t")], "options": {"colour": Colour.RED}})
    run(store.save(fine, THREAD))
    assert run(store.load(THREAD)) == fine


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Pets(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    favourite: Cat | Dog | None = Field(default=None, discriminator="kind")


def test_a_union_with_a_discriminator():
    state = Pets(pets=[Dog(name="a"), Cat(name="a")], favourite=Dog(name="b"))
    assert saved_and_loaded(state) == state


class Parent(BaseModel):
    inner: Inner = Inner()
    inners: list[Inner] = []
    any_inner: SerializeAsAny[Inner] = Inner()


def test_an_object_of_a_subclass_would_lose_what_it_adds():
    refused(Parent(inner=Further()), "$.inner")
    refused(Parent(inners=[Inner(), Further()]), "$.inners[1]")
    refused(Parent(any_inner=Further()), "$.any_inner")
    assert saved_and_loaded(Parent()) == Parent()


class Cleaning(BaseModel):
    text: str
    colour: Colour = Colour.RED

    @field_validator("text")
    @classmethod
    def strip(cls, value: str) -> str:
        return value.strip()


def test_what_validation_would_change_is_refused_when_it_is_met_first():
    state = Cleaning(text="x")
    state.text = "  y"
    refused(state, "$.text")


class Narrow(BaseModel):
    number: int = Field(default=1, ge=0)
    colour: Colour = Colour.RED


def test_what_validation_would_refuse_is_refused():
    state = Narrow.model_construct(number=-5, colour=Colour.RED)
    error = refused(state, "$.number")
    assert "greater_than_equal" in error.reason
    lacking = Narrow.model_construct(number=1)
    del lacking.__dict__["colour"]
    refused(lacking, "$.colour")


def test_a_model_that_is_no_dict_or_that_holds_itself():
    class Flat(BaseModel):
        a: int = 1

        @model_serializer
        def flat(self) -> int:
            return self.a

    with pytest.raises(SerializationError):
        saved_and_loaded(Flat())
    state = Open()
    state.data["self"] = state.data
    with pytest.raises(SerializationError) as caught:
        saved_and_loaded(state)
    assert caught.value.path.startswith("$.data.self.self")
    many: list[Any] = []
    many += [many, many]
    with pytest.raises(SerializationError):
        saved_and_loaded(Open(values=[]).model_copy(update={"values": many}))
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(SerializationError):
        saved_and_loaded(Open().model_copy(update={"data": deep}))


@pytest.mark.parametrize("key", [float("nan"), 1.5, (1, 2), None, 7, True, b"x"])
def test_lists_of_models_behind_any_key(key):
    class Keyed(BaseModel):
        found: dict[Any, list[Inner]]

    state = Keyed(found={key: [Inner(data={"text": "x" * 400}), Inner()]})
    found = saved_and_loaded(state)
    assert list(found.found.values()) == list(state.found.values())
    assert type(next(iter(found.found))) is type(key)


# --- what an agent does -----------------------------------------------------------------------------------------------


@pytest.fixture
def driver():
    return MemoryDriver()


@pytest.fixture
def store(driver):
    return Backend(driver).checkpointer(AgentState)


def stored_entries(driver: MemoryDriver) -> list[bytes]:
    found = []
    for payload in driver._tenants["default"][THREAD].blocks.values():
        for frame in payloads.read(payload, None, ThreadName("default", THREAD)):
            found += [e.data for e in frame.entries()]
    return found


def said(n: int) -> Message:
    if n % 3 == 0:
        call = ToolCall(id=f"c{n}", name="search", arguments={"q": f"{n}", "limit": n})
        return Message.assistant(f"{n} " * 30, [call])
    return Message(role=Role.USER, content=f"{n} " * 30, metadata={"n": n} if n % 2 else {})


def agent(n: int) -> AgentState:
    state = AgentState(run_id="r")
    for i in range(n):
        state = step(state, i)
    return state


def step(state: AgentState, i: int) -> AgentState:
    state = state.with_messages([said(2 * i), said(2 * i + 1)]).next_iteration()
    state = state.with_tool_execution(ToolExecution(tool_name="search", tool_call_id=f"c{i}", arguments={"q": i}))
    return state.with_reasoning_step(ReasoningStep(iteration=i, thought="t" * 80)).with_confidence(i / 100)


@pytest.mark.parametrize("between", ["nothing", "load", "load and go on", "another process", "equal objects"])
def test_an_agents_state_is_stored_once_however_it_is_handled(driver, store, between):
    state = AgentState(run_id="r")
    for i in range(25):
        state = step(state, i)
        run(store.save(state, THREAD))
        if between == "load":
            run(store.load(THREAD))
        elif between == "load and go on":
            state = run(store.load(THREAD))
        elif between == "another process":
            store = Backend(driver).checkpointer(AgentState)
            state = run(store.load(THREAD))
        elif between == "equal objects":
            state = state.model_copy(deep=True)
        assert run(Backend(driver).checkpointer(AgentState).load(THREAD)) == state
    found = stored_entries(driver)
    assert sum(b'"role"' in e for e in found) == 50
    assert sum(b'"tool_call_id"' in e and b'"timestamp"' in e for e in found) == 25
    assert sum(b'"thought"' in e for e in found) == 25


IN_PLACE: dict[str, Callable[[AgentState], Any]] = {
    "tool calls filled": lambda s: s.messages[1].tool_calls.append(ToolCall(id="x", name="new")),
    "metadata filled": lambda s: s.messages[2].metadata.update(new=1),
    "metadata changed": lambda s: s.messages[1].metadata.update(n=1.0),
    "metadata emptied": lambda s: s.messages[1].metadata.clear(),
    "tool calls emptied": lambda s: s.messages[0].tool_calls.clear(),
    "tool call replaced": lambda s: s.messages[0].tool_calls.__setitem__(0, ToolCall(id="x", name="other")),
    "tool call replaced by an equal one": lambda s: s.messages[0].tool_calls.__setitem__(
        0, s.messages[0].tool_calls[0].model_copy(update={"arguments": {"q": "0", "limit": False}})
    ),
    "arguments of a tool call": lambda s: s.messages[0].tool_calls[0].arguments.update(q="other"),
    "arguments of an execution": lambda s: s.tool_executions[0].arguments.update(q="other"),
    "an unknown key": lambda s: s.messages[3].model_extra.update(new=[1]),
    "the state's metadata": lambda s: s.metadata.update(new={"a": [1]}),
    "a set in metadata": lambda s: s.messages[2].metadata.update(tags={"a"}),
    "bytes in metadata": lambda s: s.messages[2].metadata.update(image=b"x"),
}


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_changed_in_place_in_a_frozen_message_is_noticed(driver, store, name, loaded):
    state = agent(6)
    run(store.save(state, THREAD))
    if loaded:
        state = run(store.load(THREAD))
        run(store.save(state, THREAD))
    before = state.model_copy(deep=True)
    saved = run(store.save(before, THREAD))
    IN_PLACE[name](state)
    run(store.save(state, THREAD))
    found = run(Backend(driver).checkpointer(AgentState).load(THREAD))
    assert found == state
    assert_exact(found.model_dump(), state.model_dump())
    assert run(store.load(THREAD, saved)) == before
    IN_PLACE[name](state)
    run(store.save(state, THREAD))
    assert run(store.load(THREAD)) == state


def test_what_is_changed_in_place_so_that_it_cannot_be_stored_is_refused(driver, store):
    state = agent(3)
    run(store.save(state, THREAD))
    before = state.model_copy(deep=True)
    for change, undo, path in (
        (lambda m: m.update(bad=len), lambda m: m.pop("bad"), "$.messages[2].metadata.bad"),
        (lambda m: m.update(bad=Role.USER), lambda m: m.pop("bad"), "$.messages[2].metadata.bad"),
        (lambda m: m.update(bad=Message.user("x")), lambda m: m.pop("bad"), "$.messages[2].metadata.bad"),
    ):
        change(state.messages[2].metadata)
        with pytest.raises(SerializationError) as caught:
            run(store.save(state, THREAD))
        assert caught.value.path == path
        undo(state.messages[2].metadata)
    assert run(store.load(THREAD)) == before
    run(store.save(state, THREAD))
    assert run(store.load(THREAD)) == before


class Note(BaseModel):
    text: str
    tags: list[str] = []
    colour: Colour = Colour.RED


class Notebook(BaseModel):
    notes: list[Note] = []
    by_page: dict[str, list[Note]] = {}


def test_models_that_are_not_frozen(driver):
    store = Backend(driver).checkpointer(Notebook)
    state = Notebook(notes=[Note(text=f"{n} " * 60) for n in range(8)], by_page={"a": [Note(text="x" * 300)]})
    wanted = []
    for change in (
        lambda: None,
        lambda: setattr(state.notes[3], "text", "changed"),
        lambda: state.notes[2].tags.append("a"),
        lambda: setattr(state.notes[2], "colour", Colour.BLUE),
        lambda: state.notes.append(Note(text="new")),
        lambda: state.notes.pop(0),
        lambda: state.by_page["a"][0].tags.extend(["b", "c"]),
        lambda: state.by_page.update(b=list(state.notes)),
        lambda: state.notes.reverse(),
        lambda: None,
    ):
        change()
        wanted.append((run(store.save(state, THREAD)), copy.deepcopy(state)))
        assert run(Backend(driver).checkpointer(Notebook).load(THREAD)) == state
    for checkpoint_id, notebook in wanted:
        assert run(store.load(THREAD, checkpoint_id)) == notebook


notes = st.builds(Note, text=st.text(max_size=5).map(lambda t: t * 40), tags=st.lists(st.text(max_size=3), max_size=2))
notebooks = st.builds(
    Notebook,
    notes=st.lists(notes, max_size=5),
    by_page=st.dictionaries(st.text(max_size=2), st.lists(notes, max_size=3), max_size=2),
)


@settings(max_examples=100)
@given(st.lists(notebooks, min_size=1, max_size=5), st.data())
def test_any_history_of_states(history, data):
    driver = MemoryDriver()
    store = Backend(driver).checkpointer(Notebook)
    saved: list[tuple[str, Notebook]] = []
    state = history[0]
    for following in history:
        if data.draw(st.booleans()):
            state = following
        else:  # some of the objects stay
            state.notes = state.notes[data.draw(st.integers(0, 2)) :] + following.notes
        if state.notes and data.draw(st.booleans()):
            state.notes[data.draw(st.integers(0, len(state.notes) - 1))].tags.append("new")
        saved.append((run(store.save(state, THREAD)), copy.deepcopy(state)))
        if data.draw(st.booleans()):
            state = run(store.load(THREAD, data.draw(st.sampled_from(saved))[0]))
    for checkpoint_id, wanted in saved:
        assert run(Backend(driver).checkpointer(Notebook).load(THREAD, checkpoint_id)) == wanted


def test_messages_that_are_known_are_not_turned_into_data_again(driver):
    """However long the conversation, a save looks into what is new only."""
    looked: list[str] = []

    class Watched(BaseModel):
        model_config = ConfigDict(frozen=True)

        text: str

        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                looked.append(object.__getattribute__(self, "text"))
            return super().__getattribute__(name)

    class Talk(BaseModel):
        messages: tuple[Watched, ...] = ()

    store = Backend(driver).checkpointer(Talk)
    state = Talk(messages=tuple(Watched(text=f"{n} " * 50) for n in range(50)))
    run(store.save(state, THREAD))
    run(store.save(state, THREAD))
    looked.clear()
    state = Talk.model_construct(messages=(*state.messages, Watched(text="new")))
    run(store.save(state, THREAD))
    assert set(looked) == {"new"}

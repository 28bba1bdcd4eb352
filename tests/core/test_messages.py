"""Roles, tool calls, tool results and messages: fields, constructors, and that unknown keys survive."""

import math
import re

import pytest
from pydantic import ValidationError

from locus_store.core.messages import Message, Role, ToolCall, ToolResult


def test_roles_are_their_texts() -> None:
    assert [str(role) for role in Role] == ["system", "user", "assistant", "tool"]
    assert Role("tool") is Role.TOOL
    assert Role.USER == "user"


def test_fields_and_defaults() -> None:
    call = ToolCall(id="c", name="search")
    assert call.model_dump() == {"id": "c", "name": "search", "arguments": {}, "malformed_arguments": None}
    result = ToolResult(tool_call_id="c", name="search", content="found")
    assert result.model_dump() == {
        "tool_call_id": "c",
        "name": "search",
        "content": "found",
        "error": None,
        "duration_ms": None,
        "structured_content": None,
        "content_blocks": None,
    }
    message = Message(role="user")
    assert message.model_dump() == {
        "role": Role.USER,
        "content": None,
        "tool_calls": [],
        "tool_call_id": None,
        "name": None,
        "metadata": {},
    }
    assert message.role is Role.USER


def test_defaults_are_not_shared() -> None:
    assert Message.user("a").metadata is not Message.user("b").metadata
    assert ToolCall(name="a").arguments is not ToolCall(name="a").arguments


def test_call_ids_are_made() -> None:
    ids = {ToolCall(name="t").id for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"call_[0-9a-f]{12}", made) for made in ids)


def test_arguments_may_be_called_args() -> None:
    given = {"name": "t", "args": {"q": 1}, "newer": True}
    call = ToolCall.model_validate(given)
    assert call.arguments == {"q": 1}
    assert call.model_extra == {"newer": True}
    assert given == {"name": "t", "args": {"q": 1}, "newer": True}
    assert ToolCall(name="t", args={"q": 2}).arguments == {"q": 2}
    assert Message(role="assistant", tool_calls=[{"name": "t", "args": {"q": 3}}]).tool_calls[0].arguments == {"q": 3}


def test_arguments_win_over_args_and_both_survive() -> None:
    call = ToolCall.model_validate({"name": "t", "arguments": {"q": 1}, "args": {"q": 2}})
    assert call.arguments == {"q": 1}
    assert ToolCall.model_validate(call.model_dump()) == call


def test_message_constructors() -> None:
    call = ToolCall(name="t")
    assert Message.system("s") == Message(role=Role.SYSTEM, content="s")
    assert Message.user("u") == Message(role=Role.USER, content="u")
    assert Message.assistant("a") == Message(role=Role.ASSISTANT, content="a")
    assert Message.assistant() == Message(role=Role.ASSISTANT)
    asking = Message.assistant(tool_calls=[call])
    assert asking.content is None
    assert asking.tool_calls[0] is call


@pytest.mark.parametrize(
    ("content", "error", "shown"),
    [
        ("fine", None, "fine"),
        ("", None, ""),
        ("", "no such file", "Error: no such file"),
        ("half", "then it broke", "half"),
        ("", "", ""),
    ],
)
def test_tool_message_shows_the_error(content: str, error: str | None, shown: str) -> None:
    result = ToolResult(tool_call_id="c", name="t", content=content, error=error)
    assert Message.tool(result) == Message(role="tool", content=shown, tool_call_id="c", name="t")


def test_success_is_the_absence_of_an_error() -> None:
    assert ToolResult(tool_call_id="c", name="t", content="").success
    assert not ToolResult(tool_call_id="c", name="t", content="", error="").success


@pytest.mark.parametrize(
    "record", [ToolCall(name="t"), ToolResult(tool_call_id="c", name="t", content=""), Message.user("u")]
)
def test_records_are_frozen(record: ToolCall | ToolResult | Message) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        record.name = "other"
    with pytest.raises(ValidationError, match="frozen"):
        record.newer = 1


def test_what_is_required() -> None:
    for model in (ToolCall, ToolResult, Message):
        with pytest.raises(ValidationError):
            model()
    with pytest.raises(ValidationError):
        Message(role="narrator", content="x")


@pytest.mark.parametrize("mode", ["python", "json"])
def test_unknown_keys_survive_at_every_level(mode: str) -> None:
    stored = {
        "role": "assistant",
        "content": "c",
        "tool_calls": [
            {"id": "c1", "name": "t", "arguments": {}, "malformed_arguments": None, "priority": {"level": [1, None]}}
        ],
        "tool_call_id": None,
        "name": None,
        "metadata": {"k": "v"},
        "thinking": [{"signature": "abc"}],
    }
    message = Message.model_validate(stored)
    assert message.model_dump(mode=mode) == stored
    again = Message.model_validate(message.model_dump(mode=mode))
    assert again == message
    assert again.thinking == [{"signature": "abc"}]
    assert again.tool_calls[0].priority == {"level": [1, None]}
    changed = message.model_copy(update={"content": "other"})
    assert changed.model_dump(mode=mode) == {**stored, "content": "other"}

    result = {**ToolResult(tool_call_id="c", name="t", content="").model_dump(), "cached_until": "noon"}
    assert ToolResult.model_validate(result).model_dump(mode=mode) == result


def test_unknown_keys_named_like_attributes_survive_without_hiding_them() -> None:
    awkward = ("success", "model_config", "model_dump", "copy", "__class__", "__dict__", "self", "", "a b", "é")
    stored = {"tool_call_id": "c", "name": "t", "content": "", **dict.fromkeys(awkward, "kept")}
    result = ToolResult.model_validate(stored)
    assert result.success is True
    assert type(result) is ToolResult
    assert result.model_extra == dict.fromkeys(awkward, "kept")
    assert ToolResult.model_validate(result.model_dump()) == result


def test_fields_of_subclasses_are_dumped_and_survive_as_unknown_keys() -> None:
    class PrioritisedCall(ToolCall):
        priority: int = 0

    message = Message.assistant(tool_calls=[PrioritisedCall(name="t", priority=7)])
    again = Message.model_validate(message.model_dump(mode="json"))
    assert again.tool_calls[0].priority == 7


def test_numbers_that_json_lacks_are_not_turned_into_null() -> None:
    message = Message(
        role="user", metadata={"loss": float("nan"), "limits": [float("inf"), -float("inf")]}, newer=math.nan
    )
    dumped = message.model_dump(mode="json")
    assert math.isnan(dumped["metadata"]["loss"])
    assert math.isnan(dumped["newer"])
    assert dumped["metadata"]["limits"] == [float("inf"), -float("inf")]


def test_awkward_text_is_kept() -> None:
    message = Message.user("a\x00b \\u0000 \ud800 é")
    assert Message.model_validate(message.model_dump(mode="json")) == message

"""What a conversation is made of: roles, tool calls, tool results and messages.

Every model is frozen and keeps the keys that it does not know, at every level. So a state written by a newer release
can be loaded, changed and saved again without losing what that release added.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator


class Record(BaseModel):
    """Base of the stored models: frozen, keeps unknown keys, and dumps NaN and infinities as such.

    Unknown keys are part of equality and of every dump; they are listed in ``model_extra``.
    """

    model_config = ConfigDict(extra="allow", frozen=True, ser_json_inf_nan="constants")


class Role(StrEnum):
    """Who a message is from."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


def _new_call_id() -> str:
    return f"call_{uuid4().hex[:12]}"


class ToolCall(Record):
    """A model's request to run one tool.

    Attributes:
        id: Names the call; `ToolResult.tool_call_id` refers to it. ``call_`` and 12 hexadecimal digits when not given.
        name: The tool's name.
        arguments: What to call the tool with. Also accepted under the name ``args``.
        malformed_arguments: The argument text as the model wrote it, where it could not be parsed.
    """

    id: str = Field(default_factory=_new_call_id)
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    malformed_arguments: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _rename_args(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "args" not in data or "arguments" in data:
            return data
        return {("arguments" if key == "args" else key): value for key, value in data.items()}


class ToolResult(Record):
    """What running a tool gave.

    Attributes:
        tool_call_id: The `ToolCall.id` that this answers.
        name: The tool's name.
        content: The result as text, for the model to read.
        error: Why the tool failed; None when it did not.
        duration_ms: How long the tool ran, in milliseconds.
        structured_content: The result as data, for programs rather than for the model.
        content_blocks: Parts of the result that are not text, such as images, each as a dict.
    """

    tool_call_id: str
    name: str
    content: str
    error: str | None = None
    duration_ms: float | None = None
    structured_content: dict[str, Any] | None = None
    content_blocks: list[dict[str, Any]] | None = None

    @property
    def success(self) -> bool:
        """True when there is no error."""
        return self.error is None


class Message(Record):
    """One message of a conversation.

    Attributes:
        role: Who it is from.
        content: Its text; None where it has none, such as an assistant's message that only calls tools.
        tool_calls: The tools that an assistant's message asks for, in order.
        tool_call_id: For a tool's message, the `ToolCall.id` that it answers.
        name: For a tool's message, the tool's name.
        metadata: Notes about the message that are not part of the conversation.
    """

    role: Role
    content: str | None = None
    tool_calls: list[SerializeAsAny[ToolCall]] = Field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def system(cls, content: str) -> Self:
        """Make a message that instructs the model.

        Args:
            content: Its text.
        """
        return cls(role=Role.SYSTEM, content=content)

    @classmethod
    def user(cls, content: str) -> Self:
        """Make a message from the person who talks to the agent.

        Args:
            content: Its text.
        """
        return cls(role=Role.USER, content=content)

    @classmethod
    def assistant(cls, content: str | None = None, tool_calls: list[ToolCall] | None = None) -> Self:
        """Make a message from the model.

        Args:
            content: Its text, if it has any.
            tool_calls: The tools it asks for.
        """
        return cls(role=Role.ASSISTANT, content=content, tool_calls=tool_calls or [])

    @classmethod
    def tool(cls, result: ToolResult) -> Self:
        """Make the message that shows a tool's result to the model.

        A message has no field for an error. So where a failed result has no text, the error becomes the content,
        after the word ``Error:``.

        Args:
            result: What the tool gave.
        """
        content = result.content
        if not content and result.error:
            content = f"Error: {result.error}"
        return cls(role=Role.TOOL, content=content, tool_call_id=result.tool_call_id, name=result.name)

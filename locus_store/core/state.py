"""The state of an agent: the conversation and what the agent recorded on the way.

A state never changes. Each ``with_…`` method returns a new state that shares everything else with the old one: no
message is copied or validated again, and the new state holds the very same message objects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Self
from uuid import uuid4

from pydantic import Field, SerializeAsAny, field_serializer

from locus_store.core.messages import Message, Record, Role, ToolCall

_LISTING_TOOLS = {"glob", "list_dir", "list_directory", "list_files", "ls"}
_READING_TOOLS = {"cat", "read", "read_file", "todo_read", "view"}
_SEARCHING_TOOLS = {"find_files", "grep", "search_files"}

DEFAULT_READ_ONLY_TOOLS = frozenset(_LISTING_TOOLS | _READING_TOOLS | _SEARCHING_TOOLS)
"""Tools that change nothing, so that calling one repeatedly is normal work."""

DEFAULT_TERMINAL_TOOLS = frozenset({"submit", "done", "finish", "complete"})
"""Tools by which a model says that it is done."""

_CHARACTERS_PER_TOKEN = 4
_CACHE_CREATION_FACTOR = 1.25
_CACHE_READ_FACTOR = 0.1


def _now() -> datetime:
    return datetime.now(UTC)


class ToolExecution(Record):
    """One run of a tool.

    Attributes:
        tool_name: The tool's name.
        tool_call_id: The `ToolCall.id` that asked for it.
        arguments: What the tool was called with.
        result: What it returned, as text.
        error: Why it failed; None when it did not.
        duration_ms: How long it ran, in milliseconds.
        timestamp: When it was recorded, in UTC.
        idempotent_cache_hit: True when an earlier call's result was used and the tool did not run.
    """

    tool_name: str
    tool_call_id: str
    arguments: dict[str, Any]
    result: str | None = None
    error: str | None = None
    duration_ms: float | None = None
    timestamp: datetime = Field(default_factory=_now)
    idempotent_cache_hit: bool = False

    @property
    def success(self) -> bool:
        """True when there is no error."""
        return self.error is None


class ReasoningStep(Record):
    """One step of an agent's reasoning.

    Attributes:
        iteration: The iteration that it belongs to.
        thought: What the model thought.
        tool_calls: The tools it asked for.
        tool_results: What came of them.
        reflection: What the model concluded afterwards.
        confidence_delta: By how much the step changed the state's confidence.
        timestamp: When it was recorded, in UTC.
    """

    iteration: int
    thought: str | None = None
    tool_calls: list[SerializeAsAny[ToolCall]] = Field(default_factory=list)
    tool_results: list[SerializeAsAny[ToolExecution]] = Field(default_factory=list)
    reflection: str | None = None
    confidence_delta: float = 0.0
    timestamp: datetime = Field(default_factory=_now)


class AgentState(Record):
    """Everything an agent needs to go on with a conversation.

    Attributes:
        run_id: Names the run; 32 hexadecimal digits when not given.
        agent_id: Names the agent.
        messages: The conversation, oldest first.
        iteration: How many iterations the run has made.
        max_iterations: How many it may make.
        tool_executions: Every run of a tool, oldest first.
        reasoning_steps: Every step of reasoning, oldest first.
        confidence: How sure the agent is, from 0 to 1.
        confidence_threshold: The confidence that is enough, from 0 to 1.
        confidence_history: Every confidence that was set, oldest first.
        tool_history: The names of the tools that ran, oldest first.
        tool_loop_threshold: How many equal steps in a row count as a loop.
        tool_loop_read_only_threshold: The same for steps of read-only tools; None is one more than the other.
        tool_loop_read_only_tools: The tools that count as read-only.
        tool_loop_warnings: The loops that the model was warned of: signature, and number of steps at that time.
        terminal_tools: Tools by which a model says that it is done.
        total_tokens_used: Prompt and completion tokens together.
        prompt_tokens_used: Tokens that were sent.
        completion_tokens_used: Tokens that came back.
        cache_creation_tokens_used: Tokens written to a prompt cache, where they are counted beside the prompt's.
        cache_read_tokens_used: Tokens read from a prompt cache, where they are counted beside the prompt's.
        cached_tokens_used: Tokens read from a prompt cache, where they are counted among the prompt's.
        cache_write_tokens_used: Tokens written to a prompt cache, where they are counted among the prompt's.
        reported_cost_usd: What the provider says its calls cost, in US dollars.
        reported_cost_calls: How many calls the provider named a cost for.
        token_budget: How many tokens may be used; None is no limit.
        input_price_per_mtok: Price of a million prompt tokens in US dollars; None when unknown.
        output_price_per_mtok: Price of a million completion tokens in US dollars; None when unknown.
        cost_usd_used: What the counted tokens cost by these prices, in US dollars.
        cost_budget_usd: How much may be spent, in US dollars; None is no limit.
        completion_mode: ``"auto"`` or ``"explicit"``: whether the run may end before the model says that it is done.
        errors: What went wrong, oldest first.
        provider_state: What the model's provider needs to go on with a conversation that it keeps itself.
        metadata: Values of the caller's own.
        started_at: When the state was made, in UTC.
        updated_at: When it was last changed, in UTC.
    """

    run_id: str = Field(default_factory=lambda: uuid4().hex)
    agent_id: str | None = None

    messages: tuple[SerializeAsAny[Message], ...] = ()

    iteration: int = 0
    max_iterations: int = 20
    tool_executions: tuple[SerializeAsAny[ToolExecution], ...] = ()
    reasoning_steps: tuple[SerializeAsAny[ReasoningStep], ...] = ()

    confidence: float = 0.0
    confidence_threshold: float = 0.85
    confidence_history: tuple[float, ...] = ()

    tool_history: tuple[str, ...] = ()
    tool_loop_threshold: int = 3
    tool_loop_read_only_threshold: int | None = None
    tool_loop_read_only_tools: frozenset[str] = DEFAULT_READ_ONLY_TOOLS
    tool_loop_warnings: tuple[tuple[str, int], ...] = ()
    terminal_tools: frozenset[str] = DEFAULT_TERMINAL_TOOLS

    total_tokens_used: int = 0
    prompt_tokens_used: int = 0
    completion_tokens_used: int = 0
    cache_creation_tokens_used: int = 0
    cache_read_tokens_used: int = 0
    cached_tokens_used: int = 0
    cache_write_tokens_used: int = 0
    reported_cost_usd: float = 0.0
    reported_cost_calls: int = 0
    token_budget: int | None = None
    input_price_per_mtok: float | None = None
    output_price_per_mtok: float | None = None
    cost_usd_used: float = 0.0
    cost_budget_usd: float | None = None

    completion_mode: str = "auto"
    errors: tuple[str, ...] = ()
    provider_state: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    started_at: datetime = Field(default_factory=_now)
    updated_at: datetime = Field(default_factory=_now)

    @field_serializer("tool_loop_read_only_tools", "terminal_tools", when_used="json")
    def _sorted_names(self, names: frozenset[str]) -> list[str]:
        # The order of a set differs from process to process; equal states must give equal documents.
        return sorted(names)

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        return self.model_copy(update={**changes, "updated_at": _now()})

    def with_message(self, message: Message) -> Self:
        """Add a message at the end of the conversation.

        Args:
            message: The message; the new state holds this very object.
        """
        return self._changed({"messages": (*self.messages, message)})

    def with_messages(self, messages: Iterable[Message]) -> Self:
        """Add messages at the end of the conversation.

        Args:
            messages: The messages, oldest first; the new state holds these very objects.
        """
        return self._changed({"messages": (*self.messages, *messages)})

    def with_iteration(self, iteration: int) -> Self:
        """Set the number of iterations made.

        Args:
            iteration: The number, from 0.
        """
        return self._changed({"iteration": iteration})

    def next_iteration(self) -> Self:
        """Count one more iteration."""
        return self.with_iteration(self.iteration + 1)

    def with_tool_execution(self, execution: ToolExecution) -> Self:
        """Record a run of a tool, and the tool's name in the history.

        Args:
            execution: The run.
        """
        return self._changed(
            {
                "tool_executions": (*self.tool_executions, execution),
                "tool_history": (*self.tool_history, execution.tool_name),
            }
        )

    def with_reasoning_step(self, step: ReasoningStep) -> Self:
        """Record a step of reasoning.

        Args:
            step: The step.
        """
        return self._changed({"reasoning_steps": (*self.reasoning_steps, step)})

    def with_confidence(self, confidence: float) -> Self:
        """Set the confidence, and record it in the history.

        Args:
            confidence: The new confidence; below 0 it counts as 0, above 1 as 1.

        Raises:
            ValueError: The confidence is not a number (NaN).
        """
        if math.isnan(confidence):
            raise ValueError("confidence must be a number, got NaN")
        clamped = max(0.0, min(1.0, float(confidence)))
        return self._changed({"confidence": clamped, "confidence_history": (*self.confidence_history, clamped)})

    def adjust_confidence(self, delta: float, diminishing: bool = True) -> Self:
        """Raise or lower the confidence.

        Args:
            delta: What to add, from -1 to 1.
            diminishing: Multiply an increase by what is still missing to 1, so that each one gains less.

        Raises:
            ValueError: The delta is not a number (NaN).
        """
        if diminishing and delta > 0:
            delta *= 1.0 - self.confidence
        return self.with_confidence(self.confidence + delta)

    def with_error(self, error: str) -> Self:
        """Record an error.

        Args:
            error: What went wrong.
        """
        return self._changed({"errors": (*self.errors, error)})

    def with_metadata(self, key: str, value: Any) -> Self:
        """Set one value of the metadata; the old state keeps its own.

        Args:
            key: The value's name.
            value: The value. It is not copied.
        """
        return self._changed({"metadata": {**self.metadata, key: value}})

    def with_provider_state(self, provider_state: dict[str, Any] | None) -> Self:
        """Replace what the provider needs to go on.

        Args:
            provider_state: The new value, or None for nothing.
        """
        return self._changed({"provider_state": provider_state})

    def with_token_usage(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        cache_creation_tokens: int = 0,
        cache_read_tokens: int = 0,
        *,
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        reported_cost_usd: float | None = None,
    ) -> Self:
        """Count the tokens of one call to a model, and add what they cost where the prices are known.

        Args:
            prompt_tokens: Tokens that were sent.
            completion_tokens: Tokens that came back.
            cache_creation_tokens: Tokens written to a prompt cache, not among the prompt's.
            cache_read_tokens: Tokens read from a prompt cache, not among the prompt's.
            cached_tokens: Tokens read from a prompt cache, already among the prompt's.
            cache_write_tokens: Tokens written to a prompt cache, already among the prompt's.
            reported_cost_usd: What the provider says the call cost, in US dollars; None when it says nothing.
        """
        cost = self.cost_of(
            prompt_tokens,
            completion_tokens,
            cache_creation_tokens=cache_creation_tokens,
            cache_read_tokens=cache_read_tokens,
        )
        changes: dict[str, Any] = {
            "total_tokens_used": self.total_tokens_used + prompt_tokens + completion_tokens,
            "prompt_tokens_used": self.prompt_tokens_used + prompt_tokens,
            "completion_tokens_used": self.completion_tokens_used + completion_tokens,
            "cache_creation_tokens_used": self.cache_creation_tokens_used + cache_creation_tokens,
            "cache_read_tokens_used": self.cache_read_tokens_used + cache_read_tokens,
            "cached_tokens_used": self.cached_tokens_used + cached_tokens,
            "cache_write_tokens_used": self.cache_write_tokens_used + cache_write_tokens,
            "cost_usd_used": self.cost_usd_used + (cost or 0.0),
        }
        if reported_cost_usd is not None:
            changes["reported_cost_usd"] = self.reported_cost_usd + reported_cost_usd
            changes["reported_cost_calls"] = self.reported_cost_calls + 1
        return self._changed(changes)

    @property
    def priced(self) -> bool:
        """True when both prices are known, so that a call's cost can be worked out."""
        return self.input_price_per_mtok is not None and self.output_price_per_mtok is not None

    def cost_of(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        *,
        cache_creation_tokens: int = 0,
        cache_read_tokens: int = 0,
    ) -> float | None:
        """Work out what one call costs, in US dollars; None when a price is unknown.

        Args:
            prompt_tokens: Tokens that are sent.
            completion_tokens: Tokens that come back.
            cache_creation_tokens: Tokens written to a prompt cache beside the prompt's, at 1.25 times their price.
            cache_read_tokens: Tokens read from a prompt cache beside the prompt's, at a tenth of their price.
        """
        if self.input_price_per_mtok is None or self.output_price_per_mtok is None:
            return None
        sent = prompt_tokens + cache_creation_tokens * _CACHE_CREATION_FACTOR + cache_read_tokens * _CACHE_READ_FACTOR
        return (sent * self.input_price_per_mtok + completion_tokens * self.output_price_per_mtok) / 1_000_000

    @property
    def last_tool_calls(self) -> list[ToolCall]:
        """The tools that the newest calling message asks for, unless the user has spoken since: then none."""
        for message in reversed(self.messages):
            if message.role == Role.USER:
                break
            if message.role == Role.ASSISTANT and message.tool_calls:
                return list(message.tool_calls)
        return []

    @property
    def total_tokens(self) -> int:
        """The tokens counted so far; with none counted, an estimate of the conversation at 4 characters a token."""
        return self.total_tokens_used if self.total_tokens_used > 0 else sum(map(_estimated_tokens, self.messages))

    def to_checkpoint(self) -> dict[str, Any]:
        """Turn the state into a dict of plain JSON types; equal states give equal dicts, in every process."""
        return self.model_dump(mode="json")

    @classmethod
    def from_checkpoint(cls, data: dict[str, Any]) -> Self:
        """Make the state again from what `to_checkpoint` gave.

        Args:
            data: The dict. Keys that are missing take their defaults, and keys that are unknown are kept.

        Raises:
            pydantic.ValidationError: A value does not fit its field.
        """
        return cls.model_validate(data)


def _estimated_tokens(message: Message) -> int:
    arguments = sum(len(str(call.arguments)) for call in message.tool_calls)
    return len(message.content or "") // _CHARACTERS_PER_TOKEN + arguments // _CHARACTERS_PER_TOKEN

"""Where in a document, a state or metadata something is, and how errors say it."""

from __future__ import annotations

from typing import Any

_LONGEST_STEP = 80
Path = tuple[Any, ...]
"""The keys and indexes that lead to a value."""


class Label(str):
    """A step of a path that is no key or index: a member of a set, a key."""

    __slots__ = ()


MEMBER, KEY = Label("member"), Label("key")


def show_path(path: Path) -> str:
    """A path as people read it: ``$.messages[3].content``."""
    return "$" + "".join(map(_show_step, path))


def _show_step(step: Any) -> str:
    if type(step) is Label:
        return f".<{step}>"
    if type(step) is str and step.isidentifier() and len(step) <= _LONGEST_STEP:
        return f".{step}"
    try:
        text = ascii(step)
    except Exception:  # somebody's __repr__, or an integer of more digits than Python shows
        text = f"<{type(step).__name__}>"
    return f"[{text}]" if len(text) <= _LONGEST_STEP else f"[{text[:_LONGEST_STEP]}…]"

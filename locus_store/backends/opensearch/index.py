"""The index: how it is made, and how it is known again."""

from __future__ import annotations

from typing import Any

from locus_store.backends.opensearch.names import Source
from locus_store.backends.opensearch.wire import Wire
from locus_store.core.errors import BackendError, SchemaAheadError, SchemaNotReadyError

FORMAT = 1
"""The format of the documents."""

_KEYWORD = {"type": "keyword"}
_LONG = {"type": "long"}
_UNINDEXED = {"type": "object", "enabled": False}

MAPPING: Source = {
    "dynamic": "strict",
    "_meta": {"locus_store": {"format": FORMAT}},
    "properties": {
        "kind": _KEYWORD,
        "tenant": _KEYWORD,
        "thread_id": _KEYWORD,
        "life": _KEYWORD,
        "terms": _KEYWORD,
        "scopes": _KEYWORD,
        "name": _KEYWORD,
        "slot": _LONG,
        "updated_at": _LONG,
        "expires_at": _LONG,
        "oldest_at": _LONG,
        "checkpoints": _LONG,
        "at": _LONG,
        "unfinished": {"type": "boolean"},
        "searchable": {"type": "boolean"},
        "words": {"type": "text", "analyzer": "whitespace"},
        "data": _UNINDEXED,
        "body": _UNINDEXED,
    },
}
"""All fields that there ever are: metadata is found by digests, so its keys are no fields."""


async def prepare(wire: Wire, *, create: bool) -> None:
    """Make the index if it is missing, and look whether it is one of ours.

    Raises:
        SchemaNotReadyError: It is missing and not to be made, or it is somebody else's.
        SchemaAheadError: A newer release made it.
    """
    known = await wire.call("GET", "/")
    version = known.get("version", {}) if isinstance(known, dict) else {}
    wire.opened.elastic = version.get("distribution") != "opensearch"
    found = await _format(wire)
    if found is None and create:
        # The template makes sure that an index of this name which comes up by itself has the mapping, too.
        template = {"index_patterns": [wire.index], "priority": 500, "template": {"mappings": MAPPING}}
        try:
            await wire.call("PUT", f"/_index_template/{wire.index}", template)
        except BackendError as e:
            if getattr(e.__cause__, "status_code", None) != 403:
                raise
            # Who may make an index may not always make templates; the index has the mapping without it.
        await wire.call("PUT", f"/{wire.index}", {"mappings": MAPPING}, ignore=(400,))
        found = await _format(wire)
    if found is None:
        remedy = f"make the index {wire.index!r} by setup(), or let create_schema be True"
        raise SchemaNotReadyError(None, str(FORMAT), remedy)
    if found == 0:
        remedy = f"the index {wire.index!r} was not made by this package: name another one"
        raise SchemaNotReadyError(None, str(FORMAT), remedy)
    if found > FORMAT:
        raise SchemaAheadError(str(found), str(FORMAT), "upgrade the package")


async def _format(wire: Wire) -> int | None:
    """The format of the index; 0 if it is none of ours, None if there is none."""
    answer: Any = await wire.call("GET", f"/{wire.index}/_mapping", ignore=(404,))
    if "error" in answer or not answer:
        return None
    mappings = [one.get("mappings", {}) for one in answer.values()]
    return min(int(one.get("_meta", {}).get("locus_store", {}).get("format", 0)) for one in mappings)

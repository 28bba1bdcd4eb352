"""Checkpoints' payloads made shorter: what all agent states have in common is not stored again with each of them.

A payload that an `AgentState` leaves has 1,250 bytes and says little that the one before did not say: in memory, over
500 steps, more than half of what the messages take. So it is deflated with a text that both sides know, which makes 60
to 300 bytes of it in a few microseconds. What the text lacks is only stored less shortly.
"""

from __future__ import annotations

import zlib

from locus_store.core.frames import DamagedError

_SHORTEST = 128
_LONGEST = 64 * 1024
"""Payloads beyond these sizes stay as they are; a codec is for those that are longer."""

# A part of the stored format: it is never changed. Another text gets another mark.
_MARK = b"z"  # a frame begins with the number of its format
_TEXT = (
    b'1 j - - 1 m - - \n[1364419325,[1,"t",["messages","tool_executions","reasoning_steps"]]]\n'
    b'{"id":"","name":"","status":"","created_at":{"$datetime":["","state":null,"config":{"step":"metadata":{"step":'
    b'{"run_id":"","agent_id":"","messages":null,"iteration":0,"max_iterations":20,"tool_executions":{"$tuple":[]},'
    b'"reasoning_steps":{"$tuple":[]},"confidence":0.0,"confidence_threshold":0.85,"confidence_history":{"$tuple":[]},'
    b'"tool_history":{"$tuple":[]},"tool_loop_threshold":3,"tool_loop_read_only_threshold":null,'
    b'"tool_loop_read_only_tools":{"$frozenset":["cat","find_files","glob","grep","list_dir","list_directory",'
    b'"list_files","ls","read","read_file","search_files","todo_read","view"]},"tool_loop_warnings":{"$tuple":[]},'
    b'"terminal_tools":{"$frozenset":["complete","done","finish","submit"]},"total_tokens_used":0,'
    b'"prompt_tokens_used":0,"completion_tokens_used":0,"cache_creation_tokens_used":0,"cache_read_tokens_used":0,'
    b'"cached_tokens_used":0,"cache_write_tokens_used":0,"reported_cost_usd":0.0,"reported_cost_calls":0,'
    b'"token_budget":null,"input_price_per_mtok":null,"output_price_per_mtok":null,"cost_usd_used":0.0,'
    b'"cost_budget_usd":null,"completion_mode":"auto","errors":{"$tuple":[]},"provider_state":null,"metadata":{},'
    b'"started_at":{"$datetime":["2026-01-01T00:00:00.000000",0,["offset",0,0,0]]},'
    b'"updated_at":{"$datetime":["2026-01-01T00:00:00.000000",0,["offset",0,0,0]]}}\n'
)


def pack(payload: bytes) -> bytes:
    """What is stored in place of a payload."""
    if not _SHORTEST <= len(payload) <= _LONGEST:
        return payload
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=_TEXT)
    packed = _MARK + deflate.compress(payload) + deflate.flush()
    return packed if len(packed) < len(payload) else payload


def unpack(stored: bytes) -> bytes:
    """The payload.

    Raises:
        DamagedError: It was changed.
    """
    if not stored.startswith(_MARK):
        return stored
    inflate = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_TEXT)
    try:
        payload = inflate.decompress(stored[len(_MARK) :], _LONGEST)
    except zlib.error as e:
        raise DamagedError(f"a checkpoint's payload cannot be inflated: {e}") from e
    if not inflate.eof or inflate.unused_data:
        raise DamagedError("a checkpoint's payload is not whole")
    return payload

"""What a backend can do, as declared flags."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Flags of a backend and its checkpointer. The first eight are the ones of the locus SDK.

    Attributes:
        search: ``search`` finds words in stored text.
        metadata_query: ``query_by_metadata`` and ``get_metadata`` work.
        vacuum: ``vacuum`` works.
        branching: ``copy_thread`` works.
        ttl: ``ttl_seconds`` makes threads expire.
        list_threads: ``list_threads`` works.
        list_with_metadata: ``list_with_metadata`` works.
        persistent_checkpoint_ids: A checkpoint can be loaded by the id that its save returned.
        persistent: What is saved outlives the process.
        shared: Several processes may use the same storage at once.
        incremental: A save stores only what is new; where not, it stores the whole document, compressed.
        records: Keyed values of a thread.
        reclaim: ``vacuum(reclaim=True)`` gives space back.
        transactions: ``bind`` gives a store that joins a transaction of the caller's.
        own_connections: The backend opens connections of its own (False for one bound to a caller's transaction).
    """

    search: bool = False
    metadata_query: bool = False
    vacuum: bool = False
    branching: bool = False
    ttl: bool = False
    list_threads: bool = False
    list_with_metadata: bool = False
    persistent_checkpoint_ids: bool = False
    persistent: bool = False
    shared: bool = False
    incremental: bool = False
    records: bool = False
    reclaim: bool = False
    transactions: bool = False
    own_connections: bool = True


EVERYTHING_SHARED = Capabilities(
    metadata_query=True,
    vacuum=True,
    branching=True,
    ttl=True,
    list_threads=True,
    list_with_metadata=True,
    persistent_checkpoint_ids=True,
    persistent=True,
    shared=True,
    incremental=True,
    records=True,
)
"""What a backend can do that keeps the whole interface, over storage that outlives the process and may be shared."""

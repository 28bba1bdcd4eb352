"""What redis-py's errors mean, in words that say what to do. None of them is ever taken for "no such thread"."""

from __future__ import annotations

from typing import NamedTuple

from redis import exceptions

from locus_store.backends.redis.keys import thread_ids
from locus_store.core.errors import BackendError, BackendUnavailableError, CorruptCheckpointError

# A cluster's client stumbles over None where it is sent (ASK) to a node that it has not heard of, and where another
# call, told that a part of the cluster is down, has closed all connections meanwhile.
Failure = (exceptions.RedisError, exceptions.RedisClusterException, OSError, AttributeError)
"""What a call of redis-py's raises."""

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, AttributeError)
_CLUSTER = (exceptions.ClusterDownError, exceptions.SlotNotCoveredError)
_DENIED = (exceptions.AuthenticationError, exceptions.AuthorizationError)


class _Meaning(NamedTuple):
    """What an error means: one of some classes, one whose text begins in one of some ways, or has something in it."""

    kinds: tuple[type[BaseException], ...]
    beginnings: tuple[str, ...]
    unavailable: bool
    text: str
    inside: tuple[str, ...] = ()


_MEANINGS = [
    # A client's own error about several sentinels, in which each of them is quoted.
    _Meaning(
        (),
        (),
        False,
        "the sentinels refuse this user or password (sentinel_username, sentinel_password)",
        ("AuthenticationError: ",),
    ),
    _Meaning(
        (),
        (),
        True,
        "the server's certificate is not trusted, or is for another host (see ssl_ca_certs and ssl_check_hostname)",
        ("CERTIFICATE_VERIFY_FAILED",),
    ),
    _Meaning((), ("No master found",), True, "the sentinels name no primary that is up"),
    _Meaning(
        (),
        (),
        False,
        "the server is no sentinel; connect with redis://",
        ("unknown command 'SENTINEL'", "unknown command `SENTINEL`"),
    ),
    _Meaning(
        (),
        (),
        False,
        "the server knows no scripts; if it is a sentinel, connect with redis+sentinel://",
        ("unknown command 'EVALSHA'", "unknown command `EVALSHA`"),
    ),
    _Meaning(
        (*_DENIED, exceptions.AuthenticationWrongNumberOfArgsError),
        ("WRONGPASS", "Protocol error: unauthenticated"),
        False,
        "the server refuses this user or password",
    ),
    _Meaning(
        (exceptions.NoPermissionError,),
        ("ACL failure", "The user executing the script can't"),
        False,
        "this user may not do that (see the server's ACL)",
    ),
    _Meaning(
        (exceptions.OutOfMemoryError,),
        ("OOM",),
        False,
        "the server has no memory left (maxmemory) and wrote nothing; remove threads, or give it more",
    ),
    _Meaning(
        (exceptions.ReadOnlyError,),
        ("READONLY",),
        False,
        "the server is a read-only replica and wrote nothing; connect to its primary, or through redis+sentinel://",
    ),
    _Meaning((), ("MISCONF",), False, "the server cannot write to its disk, so it wrote nothing"),
    _Meaning((), ("NOREPLICAS",), False, "the server has too few replicas (min-replicas-to-write) and wrote nothing"),
    _Meaning(
        (),
        ("WRONGTYPE",),
        False,
        "a key of the store's holds something else; does another program use keys with the same prefix?",
    ),
    _Meaning(
        (exceptions.MovedError, exceptions.ClusterCrossSlotError),
        ("MOVED", "CROSSSLOT"),
        False,
        "the server is one of a cluster; connect with redis+cluster://",
    ),
    _Meaning((exceptions.BusyLoadingError,), ("LOADING",), True, "the server is still loading its data; try again"),
    _Meaning((), ("BUSY",), True, "the server is busy with a script that takes long; try again"),
    _Meaning(
        (), ("DENIED",), False, "the server is in protected mode: without a password it takes no one from outside"
    ),
    _Meaning((exceptions.MasterDownError,), ("MASTERDOWN",), True, "the replica has lost its primary"),
    _Meaning((exceptions.MaxConnectionsError,), (), True, "the client that was handed in has no connection free"),
    _Meaning((), ("max number of clients",), True, "the server takes no more connections (maxclients)"),
    _Meaning((exceptions.TimeoutError, TimeoutError), (), True, "the server did not answer in time"),
    _Meaning(_CLUSTER, ("CLUSTERDOWN",), True, "a part of the cluster is down"),
    _Meaning(
        (exceptions.TryAgainError, exceptions.ClusterError),
        ("TRYAGAIN",),
        True,
        "these keys are being moved to another node of the cluster; try again",
    ),
    _Meaning(
        (AttributeError,), (), True, "the client has lost its way in the cluster, which is changing or partly down"
    ),
    _Meaning(
        (exceptions.ConnectionError, OSError), (), True, "the server cannot be reached, or the connection was lost"
    ),
    _Meaning((exceptions.RedisClusterException,), (), True, "the cluster cannot be reached"),
]


def was_lost(error: BaseException) -> bool:
    """Whether there was no answer, or "not now", so that the same call may be answered when it is made again."""
    return isinstance(error, (*_LOST, *_CLUSTER)) and not isinstance(error, _DENIED)


def is_moving(error: BaseException) -> bool:
    """Whether nothing was done, because the keys are on their way to another node of the cluster."""
    # A client that is sent to and fro all the time gives up with a plain ClusterError.
    return isinstance(error, exceptions.TryAgainError) or type(error) is exceptions.ClusterError


def is_astray(error: BaseException) -> bool:
    """Whether the client of a cluster did not find its way, as it does again when the cluster is at rest."""
    return isinstance(error, AttributeError)


def is_confused(error: BaseException) -> bool:
    """Whether the client of a cluster knows no node, or not the right ones, and so sent nothing."""
    return isinstance(error, exceptions.RedisClusterException)


def was_slow(error: BaseException) -> bool:
    """Whether an answer was waited for as long as it may take."""
    return isinstance(error, (exceptions.TimeoutError, TimeoutError))


_TORN = "TORN "
"""How a script says that keys of a thread are gone; the name of one of its keys follows."""


def translated(error: BaseException, shown: str) -> BackendError | CorruptCheckpointError:
    """The error that a caller gets.

    Args:
        error: What redis-py raised.
        shown: What the server is called; no password.
    """
    said = str(error) or type(error).__name__
    if said.startswith(_TORN):
        return CorruptCheckpointError(
            thread_ids([said.removeprefix(_TORN)])[0],
            None,
            f"{shown} has lost a part of this thread (is its maxmemory-policy noeviction?);"
            " put it back from a backup, or delete the thread",
        )
    for kinds, beginnings, unavailable, text, inside in _MEANINGS:
        # Old servers wrap what goes wrong in a script into an error of their own: "ERR Error running script … -OOM …".
        looked_for = [*inside, *[f": -{beginning}" for beginning in beginnings]]
        if isinstance(error, kinds) or said.startswith(beginnings) or any([part in said for part in looked_for]):
            message = f"{shown}: {text}: {said}"
            return BackendUnavailableError(message) if unavailable else BackendError(message)
    return BackendError(f"{shown}: the server refused: {said}")

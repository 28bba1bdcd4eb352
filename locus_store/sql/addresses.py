"""Where the server of a database is."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError


def read_url(url: str | URL, refusal: str) -> URL:
    """A URL taken apart.

    Args:
        url: As text, or taken apart already.
        refusal: The message if it is none.

    Raises:
        ValueError: It is none, or has a second '@', behind which the rest of a password would be taken for the server.
            The message does not repeat the URL, for the password's sake.
    """
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        raise ValueError(refusal) from None
    # A file's path may hold as many as it likes.
    if isinstance(url, str) and found.host and url.partition("?")[0].count("@") > 1:
        raise ValueError("more than one '@' before the '?' of a URL; an '@' in a user or a password is written %40")
    return found


def server_url(backend: str, host: str, port: int, database: str, user: str, password: str) -> URL:
    """The parts of an address as one URL.

    Raises:
        ValueError: The host is a URL. The message does not repeat it, for it may hold a password.
    """
    if "://" in host:
        raise ValueError("host is the name of a server, but this is a URL: pass it as dsn=…")
    return URL.create(backend, user, password or None, host, port, database)

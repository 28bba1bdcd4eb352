"""Where the server of a database is."""

from __future__ import annotations

from sqlalchemy import URL


def server_url(backend: str, host: str, port: int, database: str, user: str, password: str) -> URL:
    """The parts of an address as one URL.

    Raises:
        ValueError: The host is a URL. The message does not repeat it, for it may hold a password.
    """
    if "://" in host:
        raise ValueError("host is the name of a server, but this is a URL: pass it as dsn=…")
    return URL.create(backend, user, password or None, host, port, database)

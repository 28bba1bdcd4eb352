"""A PgBouncer in transaction mode before a PostgreSQL server of the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from urllib.parse import urlsplit

import servers


class PgBouncer:
    """A running pooler: a few sessions of the server for any number of clients, another one for each transaction.

    Args:
        server: The server behind it.
        pool_size: How many sessions of the server each database has.

    Raises:
        servers.ServerUnavailableError: It cannot be had here; the message says what to install.
    """

    def __init__(self, server: servers.PostgreSQLServer, pool_size: int = 3) -> None:
        self.server = server
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
        program = shutil.which("pgbouncer", path=path)
        if program is None:
            raise servers.ServerUnavailableError("no PgBouncer: install pgbouncer (the operating system's package)")
        self._program = program
        self._pool_size = pool_size
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = servers.Folder("locus-pb-")
        self._log = self._folder.path / "log"
        problems = []
        for runner in servers.runners():
            try:
                self._start(runner)
            except (servers.ServerUnavailableError, OSError) as error:
                problems.append(str(error))
            else:
                return
        self.close()
        raise servers.ServerUnavailableError(f"{program}: {'; '.join(problems)}")

    def url(self, url: str) -> str:
        """The URL of a database of the server, by way of the pooler."""
        parts = urlsplit(url)
        return parts._replace(netloc=f"postgres@127.0.0.1:{self.port}").geturl()

    def _start(self, runner: servers.Runner) -> None:
        if runner.user is not None:
            os.chown(self._folder.path, runner.user.pw_uid, runner.user.pw_gid)
        for _ in range(5):
            self.port = servers.free_port()
            configuration = self._folder.path / "pgbouncer.ini"
            configuration.write_text(
                f"[databases]\n* = host={self.server.host} port={self.server.port} user=postgres\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
                f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {self._pool_size}\n"
                "max_client_conn = 200\nserver_round_robin = 1\n"
            )
            self._log.write_bytes(b"")
            self._process = runner.popen([self._program, str(configuration)], self._log, tied=True)
            if self._answers():
                return
            self.close(keep=True)
        raise servers.ServerUnavailableError(" | ".join(self._log.read_text(errors="replace").splitlines()[-4:]))

    def _answers(self) -> bool:
        deadline = time.monotonic() + 60
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            try:
                self.server.execute("SELECT 1", url=self.url(self.server.admin_url))
            except Exception:  # whatever a client says before it is up
                time.sleep(0.02)
            else:
                return True
        return False

    def close(self, *, keep: bool = False) -> None:
        """Ends it, and removes its folder unless it is to be kept."""
        process, self._process = self._process, None
        if process is not None:
            servers.end(process, signal.SIGINT)
        if not keep:
            self._folder.remove()

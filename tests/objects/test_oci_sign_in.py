"""The four ways to sign in to OCI, each through the SDK's own signer, to the double; and what is said where one fails."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import backends
import oci
import pytest
from oci_double.identity import REGION, make_token
from oci_double.process import NAMESPACE, Process, User

from locus_store.backends.objects.oci_port import OCIPort
from locus_store.backends.objects.oci_sign_in import SignIn
from locus_store.core.errors import BackendError, BackendUnavailableError, MissingDependencyError


@pytest.fixture
def bucket(oci_double: Process) -> Iterator[str]:
    name = oci_double.make_bucket()
    yield name
    oci_double.tell("no faults")
    oci_double.tell("drop bucket", name)


async def used(double: Process, bucket: str, **how: Any) -> str:
    """Uses the bucket, signed in like this; returns the key id that the service saw. Nothing is left open."""
    left = backends.Left()
    before = double.tell("users")
    port = OCIPort(bucket, sign_in=SignIn(service_endpoint=double.url, **how), retry_timeout=1.0)
    await port.put("a", b"1", new=True)
    found = await port.get("a")
    assert found is not None
    await port.delete(["a"])
    await port.aclose()
    await left.assert_nothing()
    (user,) = [key_id for key_id, count in double.tell("users").items() if count > before.get(key_id, 0)]
    return str(user)


async def refused(double: Process, bucket: str, **how: Any) -> BackendError:
    """The error of a call that is signed in like this."""
    port = OCIPort(bucket, sign_in=SignIn(service_endpoint=double.url, **how), retry_timeout=0.3)
    with pytest.raises(BackendError) as error:
        await port.get("a")
    await port.aclose()
    assert isinstance(error.value.__cause__, Exception)
    return error.value


# ------------------------------------------------------------------------------------------------------------- API key


async def test_an_api_key(oci_double: Process, oci_user: User, bucket: str) -> None:
    assert await used(oci_double, bucket, config_file=str(oci_user.config_file)) == oci_user.key_id


async def test_another_profile(oci_double: Process, tmp_path: Path, bucket: str) -> None:
    user = User(tmp_path).known_to(oci_double)
    file = user.write_profile("agents", name="others")
    how = {"config_file": str(file), "profile_name": "agents"}
    assert await used(oci_double, bucket, **how) == user.key_id


async def test_the_region_of_the_call_comes_before_that_of_the_profile(oci_user: User) -> None:
    def endpoint(**how: Any) -> str:
        signed_in = SignIn(config_file=str(oci_user.config_file), **how).open()
        found = str(signed_in.client().base_client.endpoint)
        signed_in.close()
        return found

    assert f".{REGION}." in endpoint()
    assert ".eu-frankfurt-1." in endpoint(region="eu-frankfurt-1")
    assert endpoint(service_endpoint="https://private.example") == "https://private.example"


async def test_each_thread_has_a_client_of_its_own(oci_user: User) -> None:
    signed_in = SignIn(config_file=str(oci_user.config_file), service_endpoint="http://127.0.0.1:1").open()
    with ThreadPoolExecutor(1) as pool:
        clients = {id(signed_in.client()), id(signed_in.client()), id(pool.submit(signed_in.client).result())}
    assert len(clients) == 2
    signed_in.close()


# ------------------------------------------------------------------------------------------------------ security token


def with_token(user: User, double: Process, token: str | None = None) -> dict[str, str]:
    token = token or make_token()
    file = user.folder / "token"
    file.write_text(token + "\n")
    user.with_token(double, token)
    config = user.write_profile("session", name="session", security_token_file=str(file))
    return {"auth_type": "security_token", "profile_name": "session", "config_file": str(config)}


async def test_a_security_token(oci_double: Process, tmp_path: Path, bucket: str) -> None:
    token = make_token()
    how = with_token(User(tmp_path), oci_double, token)
    assert await used(oci_double, bucket, **how) == f"ST${token}"


async def test_a_security_token_that_was_renewed_in_its_file(oci_double: Process, tmp_path: Path, bucket: str) -> None:
    user = User(tmp_path)
    first, second = make_token(), make_token()
    how = with_token(user, oci_double, first)
    port = OCIPort(bucket, sign_in=SignIn(service_endpoint=oci_double.url, **how), retry_timeout=1.0)
    await port.put("a", b"1")
    oci_double.tell("forget", f"ST${first}")
    with pytest.raises(BackendError, match="401"):
        await port.get("a")
    with_token(user, oci_double, second)
    assert await port.get("a") is not None
    await port.aclose()


async def test_a_profile_without_a_token(oci_double: Process, oci_user: User, bucket: str) -> None:
    how = {"auth_type": "security_token", "config_file": str(oci_user.config_file)}
    error = await refused(oci_double, bucket, **how)
    assert "security_token" in str(error)
    assert "security_token_file" in str(error.__cause__)


# -------------------------------------------------------------------------------------------------- resource principal


@pytest.mark.parametrize("in_files", [False, True])
async def test_a_resource_principal(
    oci_double: Process, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, in_files: bool
) -> None:
    user = User(tmp_path)
    token = make_token(res_tenant="t", res_compartment="c")
    user.with_token(oci_double, token)
    (tmp_path / "rpst").write_text(token)
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_VERSION", "2.2")
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_RPST", str(tmp_path / "rpst") if in_files else token)
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM", str(user.key_file) if in_files else user.private_pem)
    monkeypatch.setenv("OCI_RESOURCE_PRINCIPAL_REGION", REGION)
    assert await used(oci_double, bucket, auth_type="resource_principal") == f"ST${token}"
    if in_files:
        # The platform renews the token in its file, and the SDK reads it again.
        port = OCIPort(
            bucket, sign_in=SignIn(auth_type="resource_principal", service_endpoint=oci_double.url), retry_timeout=1.0
        )
        await port.put("a", b"1")
        oci_double.tell("forget", f"ST${token}")
        renewed = make_token()
        user.with_token(oci_double, renewed)
        (tmp_path / "rpst").write_text(renewed)
        assert await port.get("a") is not None
        await port.aclose()


async def test_where_there_is_no_resource_principal(oci_double: Process, bucket: str) -> None:
    error = await refused(oci_double, bucket, auth_type="resource_principal")
    assert "cannot sign in by auth_type='resource_principal'" in str(error)
    assert "OCI_RESOURCE_PRINCIPAL_VERSION" in str(error.__cause__)


# -------------------------------------------------------------------------------------------------- instance principal


@pytest.fixture
def instance(oci_double: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is an instance: the metadata service and the one that gives tokens are the double.

    The SDK takes the address of the first from the environment; that of the second it makes of the region.
    """
    monkeypatch.setenv("OCI_METADATA_BASE_URL", f"{oci_double.url}/opc/v2")
    real = oci.regions.endpoint_for

    def endpoint_for(service: str, *args: Any, **kwargs: Any) -> str:
        return oci_double.url if service == "auth" else str(real(service, *args, **kwargs))

    monkeypatch.setattr(oci.regions, "endpoint_for", endpoint_for)


@pytest.mark.usefixtures("instance")
async def test_an_instance_principal(oci_double: Process, bucket: str) -> None:
    before = oci_double.tell("tokens")
    user = await used(oci_double, bucket, auth_type="instance_principal")
    assert user.startswith("ST$")
    assert oci_double.tell("tokens") == before + 1, "one for all threads"


@pytest.mark.usefixtures("instance")
async def test_an_instance_principal_whose_token_is_not_taken_any_more(oci_double: Process, bucket: str) -> None:
    how = SignIn(auth_type="instance_principal", service_endpoint=oci_double.url)
    port = OCIPort(bucket, sign_in=how, retry_timeout=1.0)
    await port.put("a", b"1")
    for key_id in oci_double.tell("users"):
        if key_id.startswith("ST$"):
            oci_double.tell("forget", key_id)
    assert await port.get("a") is not None
    await port.aclose()


async def test_where_there_is_no_metadata_service(
    oci_double: Process, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCI_METADATA_BASE_URL", "http://127.0.0.1:1/opc/v2")
    error = await refused(oci_double, bucket, auth_type="instance_principal")
    assert isinstance(error, BackendUnavailableError)
    assert "credentials for auth_type='instance_principal' cannot be reached" in str(error)


# ------------------------------------------------------------------------------------------------------- what is wrong


async def test_a_key_that_the_service_does_not_know(oci_double: Process, tmp_path: Path, bucket: str) -> None:
    user = User(tmp_path, user="stranger")
    error = await refused(oci_double, bucket, config_file=str(user.config_file))
    assert type(error) is BackendError
    assert "401 NotAuthenticated" in str(error)
    assert f"auth_type='api_key', profile 'DEFAULT' of {user.config_file}" in str(error)
    assert "clock" in str(error)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"key_file": "/nowhere/key.pem"}, "InvalidKeyFilePath"),
        ({"fingerprint": "12:34"}, "InvalidConfig"),
        ({"user": ""}, "InvalidConfig"),
    ],
)
async def test_a_profile_that_is_wrong(
    oci_double: Process, tmp_path: Path, bucket: str, changes: dict[str, str], expected: str
) -> None:
    file = User(tmp_path).write_profile("DEFAULT", name="wrong", **changes)
    error = await refused(oci_double, bucket, config_file=str(file))
    assert type(error) is BackendError
    assert f"cannot sign in by auth_type='api_key', profile 'DEFAULT' of {file} ({expected})" in str(error)


async def test_no_file_and_no_profile(oci_double: Process, oci_user: User, tmp_path: Path, bucket: str) -> None:
    error = await refused(oci_double, bucket, config_file=str(tmp_path / "nobody"))
    assert "ConfigFileNotFound" in str(error)
    error = await refused(oci_double, bucket, config_file=str(oci_user.config_file), profile_name="other")
    assert "ProfileNotFound" in str(error)


async def test_a_key_that_is_none(oci_double: Process, tmp_path: Path, bucket: str) -> None:
    user = User(tmp_path)
    user.key_file.write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0IQ==\n-----END PRIVATE KEY-----\n")
    error = await refused(oci_double, bucket, config_file=str(user.config_file))
    assert "InvalidPrivateKey" in str(error)
    assert "c2VjcmV0IQ" not in "".join(traceback.format_exception(error))


async def test_no_message_holds_a_key_a_token_or_a_fingerprint(
    oci_double: Process, tmp_path: Path, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    user, token = User(tmp_path), make_token()
    how = with_token(user, oci_double, token)
    oci_double.tell("forget", f"ST${token}")
    errors = [
        await refused(oci_double, bucket, **how),
        await refused(oci_double, bucket, config_file=str(user.config_file)),
    ]
    port = OCIPort(bucket, sign_in=SignIn(service_endpoint=oci_double.url, **how))
    texts = [*["".join(traceback.format_exception(e)) for e in errors], repr(port), repr(port._sign_in), caplog.text]
    key = re.sub(r"-----.*-----|\s", "", user.private_pem)
    for text in texts:
        for secret in (user.fingerprint, token, key[40:80], user.name):
            assert secret not in text


def test_arguments_that_mean_nothing() -> None:
    with pytest.raises(ValueError, match=r"auth_type must be one of 'api_key', .*, got 'password'"):
        SignIn(auth_type="password")
    with pytest.raises(ValueError, match="profile_name and config_file have no meaning with auth_type='instance_prin"):
        SignIn(auth_type="instance_principal", profile_name="a")


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oci", None)
    with pytest.raises(MissingDependencyError, match=r"locus-store\[oci\]"):
        OCIPort("a-bucket")


# ------------------------------------------------------------------------------------------- namespace and compartment

PLACE = "ocid1.compartment.oc1..agents"


async def test_the_namespace_is_looked_up_once_and_only_if_it_is_not_given(
    oci_double: Process, oci_user: User, bucket: str
) -> None:
    how = SignIn(config_file=str(oci_user.config_file), service_endpoint=oci_double.url)
    for given, expected in ((None, 1), (NAMESPACE, 0)):
        before = oci_double.requests()
        port = OCIPort(bucket, given, sign_in=how)
        await port.put("a", b"1")
        await port.list("a")
        after = oci_double.requests()
        assert after["namespace"] - before.get("namespace", 0) == expected
        assert after.get("head bucket", 0) == before.get("head bucket", 0)
        await port.aclose()


async def test_a_missing_bucket_is_made_where_a_compartment_is_given(oci_double: Process, oci_user: User) -> None:
    how = SignIn(config_file=str(oci_user.config_file), service_endpoint=oci_double.url)
    ports = [OCIPort("made-at-first-use", sign_in=how, compartment_id=PLACE) for _ in range(3)]
    before = oci_double.requests().get("create bucket", 0)
    for port in ports:
        await port.put("a", b"1")
        assert await port.get("a") is not None
    assert oci_double.requests()["create bucket"] == before + 1
    assert oci_double.tell("compartment", "made-at-first-use") == PLACE
    # Another one makes it between the question and the answer.
    await ports[0].aclose()
    oci_double.fault("error", status=409, code="BucketAlreadyExists", method="POST")
    oci_double.fault("error", status=404, code="", method="HEAD")
    assert await ports[0].get("a") is not None
    for port in ports:
        await port.aclose()
    oci_double.tell("drop bucket", "made-at-first-use")


async def test_a_bucket_that_cannot_be_made(oci_double: Process, oci_user: User) -> None:
    how = SignIn(config_file=str(oci_user.config_file), service_endpoint=oci_double.url)
    port = OCIPort("never-made", sign_in=how, compartment_id="not.a.compartment")
    with pytest.raises(BackendError, match="404 NotAuthorizedOrNotFound: you may not do that"):
        await port.list("")
    await port.aclose()

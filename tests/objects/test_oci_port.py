"""The port to OCI Object Storage over the double: threads, event loops, repeated requests, errors. (Signing in has a file
of its own.)"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elsewhere
import oci
import pytest
from oci_double.certificates import self_signed
from oci_double.process import NAMESPACE, Process, User

from locus_store.backends.objects.oci_port import OCIPort
from locus_store.backends.objects.oci_sign_in import SignIn
from locus_store.backends.objects.port import ObjectConflictError, ObjectExistsError
from locus_store.core.errors import BackendError, BackendUnavailableError


@pytest.fixture
def bucket(oci_double: Process) -> Iterator[str]:
    name = oci_double.make_bucket()
    yield name
    oci_double.tell("no faults")
    oci_double.tell("drop bucket", name)


@pytest.fixture
def sign_in(oci_double: Process, oci_user: User) -> SignIn:
    return SignIn(config_file=str(oci_user.config_file), service_endpoint=oci_double.url)


@pytest.fixture
async def port(bucket: str, sign_in: SignIn) -> Any:
    made = OCIPort(bucket, NAMESPACE, sign_in=sign_in, retry_timeout=5.0)
    yield made
    await made.aclose()


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("locus-store-oci")]


# ------------------------------------------------------------------------------------------------ threads and the loop


async def test_the_loop_runs_on_while_the_service_is_slow(oci_double: Process, bucket: str, port: OCIPort) -> None:
    oci_double.fault("delay", contains=bucket, seconds=1.0)
    call = asyncio.create_task(port.put("a", b"1"))
    turns = 0
    while not call.done():
        await asyncio.sleep(0.01)
        turns += 1
    await call
    assert turns > 10


async def test_no_more_requests_at_once_than_allowed(bucket: str, sign_in: SignIn) -> None:
    port = OCIPort(bucket, sign_in=sign_in, max_requests=3)
    seen: set[int] = set()

    async def watch() -> None:
        while True:
            seen.add(len(workers()))
            await asyncio.sleep(0.001)

    watcher = asyncio.create_task(watch())
    await asyncio.gather(*[port.put(f"a{i}", b"1") for i in range(40)])
    await port.delete([f"a{i}" for i in range(40)])
    watcher.cancel()
    assert max(seen) == 3
    await port.aclose()
    assert workers() == []


async def test_a_cancelled_call_returns_at_once_and_leaves_the_port_usable(
    oci_double: Process, bucket: str, port: OCIPort
) -> None:
    await port.put("warm", b"1")
    oci_double.fault("delay", contains="/o/slow", seconds=2.0)
    call = asyncio.create_task(port.get("slow"))
    await asyncio.sleep(0.2)
    call.cancel()
    start = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.monotonic() - start < 1.5
    assert (await port.get("warm")) is not None
    await port.aclose()  # waits for what is still under way
    assert workers() == []


async def test_two_hundred_cancelled_calls_leave_nothing(bucket: str, port: OCIPort) -> None:
    for i in range(200):
        call = asyncio.create_task(port.put(f"a{i % 10}", b"1"))
        await asyncio.sleep(0.001 * (i % 5))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await port.put("last", b"2")
    found = await port.get("last")
    assert found is not None
    assert found.data == b"2"
    assert len(workers()) <= 16
    await port.aclose()
    assert workers() == []


def test_one_port_in_three_event_loops(bucket: str, sign_in: SignIn) -> None:
    port = OCIPort(bucket, sign_in=sign_in)

    async def once(i: int, *, close: bool) -> None:
        await port.put(f"a{i}", b"1")
        assert [o.key for o in (await port.list("a")).objects] == [f"a{j}" for j in range(i + 1)]
        if close:
            await port.aclose()

    for i, close in enumerate([False, True, False]):
        asyncio.run(once(i, close=close))
    asyncio.run(port.aclose())
    assert workers() == []


def test_case_62_a_program_that_closes_nothing_ends(oci_double: Process, bucket: str, sign_in: SignIn) -> None:
    oci_double.fault("delay", contains="/o/slow", seconds=1.0)
    done = elsewhere.run(
        """
        import asyncio, sys
        from locus_store.backends.objects.oci_port import OCIPort
        from locus_store.backends.objects.oci_sign_in import SignIn

        async def main():
            # The debug mode tells which steps took long, as any may on a busy machine.
            asyncio.get_running_loop().slow_callback_duration = 60
            port = OCIPort(sys.argv[1], sign_in=SignIn(config_file=sys.argv[2], service_endpoint=sys.argv[3]))
            await port.put("a", b"1")
            task = asyncio.create_task(port.put("slow", b"1"))
            await asyncio.sleep(0.3)

        asyncio.run(main())
        print("done")
        """,
        bucket,
        sign_in.config_file,
        oci_double.url,
        options=("-W", "error", "-X", "dev"),
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "done", "")


async def test_a_failed_condition_disturbs_no_other_request(bucket: str, port: OCIPort) -> None:
    # The SDK gives up all connections of a client when a conditional write fails.
    await port.put("there", b"1")

    async def fail() -> None:
        for _ in range(20):
            with pytest.raises(ObjectExistsError):
                await port.put("there", b"2", new=True)

    async def read() -> None:
        for _ in range(40):
            found = await port.get("there")
            assert found is not None
            assert found.data == b"1"

    port._retry_timeout = 0.0  # nothing is repeated
    await asyncio.gather(*[fail() for _ in range(4)], *[read() for _ in range(4)])


# ---------------------------------------------------------------------------------------------------- repeated requests


async def test_throttled_calls_are_repeated(oci_double: Process, bucket: str, port: OCIPort) -> None:
    oci_double.fault("error", status=429, code="TooManyRequests", contains=bucket, times=3)
    await port.put("a", b"1", new=True)
    assert list(oci_double.objects(bucket)) == ["a"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "TooManyRequests"), (500, "InternalServerError"), (503, "ServiceUnavailable"), (504, "GatewayTimeout")],
)
async def test_a_service_that_stays_busy_is_unavailable(
    oci_double: Process, bucket: str, sign_in: SignIn, status: int, code: str
) -> None:
    port = OCIPort(bucket, NAMESPACE, sign_in=sign_in, retry_timeout=0.5)
    await port.put("a", b"1")
    oci_double.fault("error", status=status, code=code, contains=bucket, times=-1)
    calls = (port.get("a"), port.list(""), port.put("b", b""), port.delete(["a"]))
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, BackendUnavailableError), result
        assert f"bucket '{bucket}'" in str(result)
        assert f"{status} {code}" in str(result)
        assert isinstance(result.__cause__, oci.exceptions.ServiceError)
    oci_double.tell("no faults")
    assert await port.get("a") is not None
    await port.aclose()


async def test_lost_connections_are_repeated(oci_double: Process, bucket: str, port: OCIPort) -> None:
    oci_double.fault("drop", contains=bucket)
    await port.put("a", b"0123456789")
    oci_double.fault("cut", method="GET", contains=bucket)
    found = await port.get("a")
    assert found is not None
    assert found.data == b"0123456789"
    oci_double.fault("drop_after", method="DELETE", contains=bucket)
    await port.delete(["a"])
    assert oci_double.objects(bucket) == {}


async def test_case_54_an_own_attempt_whose_answer_was_lost_is_found_in_the_way(
    oci_double: Process, bucket: str, port: OCIPort
) -> None:
    oci_double.fault("drop_after", method="PUT", contains=bucket)
    with pytest.raises(ObjectExistsError):
        await port.put("a", b"mine", new=True)
    found = await port.get("a")
    assert found is not None
    assert found.data == b"mine"


async def test_a_write_that_met_another_is_told_or_repeated(oci_double: Process, bucket: str, port: OCIPort) -> None:
    oci_double.fault("error", status=409, code="ConcurrentObjectUpdate", contains=bucket)
    with pytest.raises(ObjectConflictError):
        await port.put("a", b"1", new=True)
    oci_double.fault("error", status=409, code="ConcurrentObjectUpdate", contains=bucket)
    await port.put("a", b"1")


async def test_the_sdks_own_strategy_is_used_in_place_of_ours(
    oci_double: Process, bucket: str, sign_in: SignIn
) -> None:
    strategy = oci.retry.RetryStrategyBuilder().add_max_attempts(3).get_retry_strategy()
    strategy.base_sleep_time_seconds = 0
    how = SignIn(config_file=sign_in.config_file, service_endpoint=sign_in.service_endpoint, retry_strategy=strategy)
    port = OCIPort(bucket, NAMESPACE, sign_in=how)
    oci_double.fault("error", status=503, code="ServiceUnavailable", contains=bucket, times=2)
    await port.put("a", b"1")
    oci_double.fault("error", status=503, code="ServiceUnavailable", contains=bucket, times=3)
    with pytest.raises(BackendUnavailableError):
        await port.put("a", b"2")
    await port.put("a", b"3")
    await port.aclose()


async def test_down_and_up_again(oci_user: User) -> None:
    with Process() as double:
        oci_user.known_to(double)
        bucket = double.make_bucket()
        how = SignIn(config_file=str(oci_user.config_file), service_endpoint=double.url)
        port = OCIPort(bucket, sign_in=how, retry_timeout=1.0)
        await port.put("a", b"1")
        double.stop()
        for call in (port.get("a"), port.list("a"), port.put("a", b"2"), port.delete(["a"])):
            with pytest.raises(
                BackendUnavailableError, match=f"bucket '{bucket}' in namespace '{NAMESPACE}' cannot be"
            ):
                await call
        double.start()
        oci_user.known_to(double)
        double.tell("make bucket", bucket)
        await port.put("a", b"3")
        await port.aclose()


async def test_it_comes_up_while_a_call_waits(oci_user: User) -> None:
    with Process() as double:
        oci_user.known_to(double)
        double.stop()
        how = SignIn(config_file=str(oci_user.config_file), service_endpoint=double.url)
        port = OCIPort("a-bucket", NAMESPACE, sign_in=how, retry_timeout=60.0)
        call = asyncio.create_task(port.put("a", b"1"))
        await asyncio.sleep(0.5)
        assert not call.done()
        await asyncio.to_thread(double.start, busy=True)
        oci_user.known_to(double)
        double.tell("make bucket", "a-bucket")
        double.tell("no faults")
        await call
        assert list(double.objects("a-bucket")) == ["a"]
        await port.aclose()


# --------------------------------------------------------------------------------------------------------------- errors


async def calls_of(port: OCIPort) -> list[Any]:
    made = (port.get("a"), port.get("a", start=3, end=9), port.list("a"), port.put("a", b""), port.delete(["a"]))
    return await asyncio.gather(*made, port.put("a", b"", new=True), return_exceptions=True)


async def test_a_missing_bucket_is_no_missing_object(sign_in: SignIn) -> None:
    port = OCIPort("nobodys", sign_in=sign_in)
    for error in await calls_of(port):
        assert type(error) is BackendError, error
        assert "bucket 'nobodys'" in str(error)
        assert "404 BucketNotFound" in str(error)
        assert "compartment_id" in str(error)
        assert isinstance(error.__cause__, oci.exceptions.ServiceError)
    await port.aclose()


async def test_no_permission(oci_double: Process, bucket: str, port: OCIPort) -> None:
    await port.put("a", b"1")
    oci_double.tell("forbid", bucket)
    for error in await calls_of(port):
        assert type(error) is BackendError, error
        assert "you may not use it" in str(error)
    oci_double.tell("allow", bucket)
    oci_double.fault("error", status=404, code="NotAuthorizedOrNotFound", contains=bucket, times=-1)
    for error in await calls_of(port):
        assert type(error) is BackendError, error
        assert "policies" in str(error)


async def test_another_namespace(sign_in: SignIn, bucket: str) -> None:
    port = OCIPort(bucket, "elsewhere", sign_in=sign_in)
    for error in await calls_of(port):
        assert type(error) is BackendError, error
        assert "NamespaceNotFound" in str(error)
    await port.aclose()


async def test_an_answer_that_is_no_services(oci_double: Process, bucket: str, port: OCIPort) -> None:
    oci_double.fault("error", status=418, code="IAmATeapot", contains=bucket, times=-1)
    for error in await calls_of(port):
        assert type(error) is BackendError, error
        assert "418 IAmATeapot" in str(error)


# ------------------------------------------------------------------------------------------------------ a handed-in one


async def test_a_client_that_is_handed_in_is_used_and_never_closed(oci_double: Process, oci_user: User) -> None:
    bucket = oci_double.make_bucket()
    config = oci.config.from_file(str(oci_user.config_file))
    client = oci.object_storage.ObjectStorageClient(config, service_endpoint=oci_double.url)
    closed: list[bool] = []
    client.base_client.session.close = lambda: closed.append(True)
    port = OCIPort(bucket, client=client, retry_timeout=0.5)
    await asyncio.gather(*[port.put(f"a{i}", b"1") for i in range(20)])
    assert len(workers()) == 1, "one call at a time"
    oci_double.fault("error", status=503, code="ServiceUnavailable", contains=bucket, times=-1)
    start = time.monotonic()
    with pytest.raises(BackendUnavailableError):  # not after the SDK's ten minutes
        await port.get("a1")
    assert time.monotonic() - start < 60
    oci_double.tell("no faults")
    await port.aclose()
    assert (closed, workers()) == ([], [])
    assert client.get_object(NAMESPACE, bucket, "a1").data.content == b"1"
    oci_double.tell("forget", oci_user.key_id)
    with pytest.raises(BackendError, match="the client that was handed in"):
        await port.get("a1")
    await port.aclose()
    oci_user.known_to(oci_double)
    oci_double.tell("drop bucket", bucket)
    del client.base_client.session.close
    client.base_client.session.close()


# ----------------------------------------------------------------------------------------------------------------- TLS


async def test_over_tls(oci_user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = self_signed(tmp_path)
    with Process(certificate, key) as double:
        oci_user.known_to(double)
        how = SignIn(config_file=str(oci_user.config_file), service_endpoint=double.url)
        port = OCIPort(double.make_bucket(), sign_in=how, retry_timeout=0.3)
        with pytest.raises(BackendUnavailableError) as error:  # nobody vouches for the certificate
            await port.get("a")
        assert "CERTIFICATE_VERIFY_FAILED" in str(error.value.__cause__)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        data = bytes(range(256)) * 10_000
        await port.put("a", data, new=True)
        for _ in range(3):
            with pytest.raises(ObjectExistsError):
                await port.put("a", b"2", new=True)
        found = await port.get("a")
        assert found is not None
        assert found.data == data
        await port.delete(["a"])
        assert await port.get("a") is None
        await port.aclose()

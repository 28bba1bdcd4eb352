"""A process that is forked from one that has used a bucket: obstore's threads are not in it."""

from __future__ import annotations

import os

import pytest
import s3_servers
from elsewhere import run
from objects.s3_ports import shared_bucket

PROGRAM = """
    import asyncio, os, sys, warnings
    from locus_store import S3Backend
    warnings.simplefilter("ignore")  # threads and forks

    def open_store():
        return S3Backend(sys.argv[1], sys.argv[2], endpoint_url=sys.argv[3], region_name="us-east-1",
                         aws_access_key_id=sys.argv[4], aws_secret_access_key=sys.argv[5])

    def in_child(call):
        pid = os.fork()
        if pid == 0:
            try:
                print("child:", asyncio.run(call), flush=True)
            except Exception as e:
                print("child:", type(e).__name__, e, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)

    store = open_store()
    in_child(store.save("t", {"by": "child"}))
    print("parent:", asyncio.run(store.load("t")), flush=True)
    for one in (store, open_store()):
        for call in (one.load("t"), one.save("t", {}), one.delete("t"), one.list_threads()):
            in_child(call)
            call.close()
    asyncio.run(store.save("t", {"by": "parent"}))
    print("parent:", asyncio.run(store.load("t")))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_it_is_told_so_and_does_not_wait_for_ever(moto):
    bucket = shared_bucket(moto)
    done = run(
        PROGRAM, bucket.name, f"forks-{os.getpid()}", moto.endpoint, s3_servers.ACCESS_KEY, s3_servers.SECRET_KEY
    )
    assert done.returncode == 0, done.stderr
    first, loaded, *told, last = done.stdout.splitlines()
    assert first.startswith("child: ")
    assert loaded == "parent: {'by': 'child'}"
    assert len(told) == 8
    for line in told:
        assert line.startswith("child: BackendError the S3 bucket")
        assert "start it by 'spawn' or 'forkserver'" in line
    assert last == "parent: {'by': 'parent'}"

"""A process that forks while one of its threads saves: the child saves too, and waits for nobody that it does not have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, os, threading
from locus_store import MemoryBackend
from locus_store.core import known

store = MemoryBackend()
held, done = threading.Event(), threading.Event()

def hold():
    with {lock}:
        held.set()
        done.wait()

async def save():
    for n in range(3):
        await store.save("t", {{"messages": [{{"text": "x" * 500}}] * n}})
        assert await store.load("t") is not None

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    asyncio.run(save())
    print("saved", flush=True)
    os._exit(0)
os.waitpid(child, 0)
done.set()
"""


@pytest.mark.parametrize("lock", ["known._growing", "store._ledger._lock"])
def test_a_child_does_not_wait_for_a_thread_that_was_saving_when_it_was_forked(lock):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT.format(lock=lock)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.communicate(timeout=30)[0] == "saved\n"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise

"""Processes that begin at once: forks of one in which everything is imported."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Self

from elsewhere import ROOT, start

_ZYGOTE = """
import importlib, json, os, sys, traceback
sys.path.insert(0, sys.argv[1])
import workers
importlib.import_module(sys.argv[2])
print("ready", flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if isinstance(command, int):
        print(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]), flush=True)
        continue
    name, arguments, output = command
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
            os.dup2(1, 2)
            getattr(workers, name)(*arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    print(pid, flush=True)
"""


class Child:
    """One process; its output goes into a file."""

    def __init__(self, nursery: Nursery, pid: int, output: Path) -> None:
        self._nursery = nursery
        self.pid = pid
        self.output = output
        self.code: int | None = None

    def lines(self) -> list[str]:
        """The whole lines that it has said so far."""
        return self.output.read_text().split("\n")[:-1]

    def wait_for_lines(self, count: int, timeout: float = 60) -> None:
        """Waits until it has said something so many times."""
        deadline = time.monotonic() + timeout
        while len(self.lines()) < count:
            assert time.monotonic() < deadline, self.output.read_text()
            os.kill(self.pid, 0)
            time.sleep(0.001)

    def kill(self) -> None:
        """Ends it, as the kernel does when memory runs out."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL, self.output.read_text()

    def wait(self) -> int:
        """How it ended."""
        if self.code is None:
            self.code = int(self._nursery._ask(self.pid))
        return self.code


class Nursery:
    """Starts processes that run functions of `workers`.

    Args:
        folder: Where their output goes.
        address: The address of the place that they use, for the module to be imported.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._children: list[Child] = []
        here = str(ROOT / "tests" / "processes")
        self._process = start(_ZYGOTE, here, json.loads(address)[0])
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", self._process.communicate()[1]

    def begin(self, function: str, *arguments: Any) -> Child:
        """Starts one."""
        output = self._folder / f"output-{len(self._children)}"
        output.touch()
        child = Child(self, int(self._ask([function, arguments, str(output)])), output)
        self._children.append(child)
        return child

    def _ask(self, command: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            if child.code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
        self._process.communicate()

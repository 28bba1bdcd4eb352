"""What programs in other processes import: it loads no more than the one backend that they use."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from locus_store.core.backend import Backend

ROOT = Path(__file__).parents[1]


def connect(address: str, **options: Any) -> Backend:
    """A backend on the place that has this address."""
    module, name, arguments = json.loads(address)
    made: Backend = getattr(importlib.import_module(module), name)(**arguments, **options)
    return made


def start(program: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Starts a program in a process of its own; ``sys.argv[1:]`` are the arguments."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, *options, "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(program: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    with start(program, *arguments, options=options) as process:
        try:
            out, err = process.communicate(timeout=90)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)

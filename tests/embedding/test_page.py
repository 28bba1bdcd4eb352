"""The examples of docs/embedding.md, word for word, on each database."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from elsewhere import ROOT
from embedding.hosts import Host

PAGE = (ROOT / "docs" / "embedding.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_the_page_has_examples():
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("block", BLOCKS, ids=["engine", "transaction", "synchronous"])
def test_an_example_of_the_page_runs(host: Host, block: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "APP_URL": host.async_url,
            "APP_SYNC_URL": host.sync_url,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello" in done.stdout or "a table, please" in done.stdout

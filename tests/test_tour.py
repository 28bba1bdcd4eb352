"""The tour (examples/tour.py), as `make demo URL=…` runs it: a process of its own that knows a URL and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import backends
import pytest
from store_fixtures import mariadb_database, only, oracle_standin_database, place, postgresql_database

__all__ = ["mariadb_database", "oracle_standin_database", "place", "postgresql_database"]

ROOT = Path(__file__).resolve().parents[1]
# The stand-in for Oracle is no database that a URL leads to.
WITH_URL = [name for name in backends.TABLE if name != backends.OracleStandInPlace.name]
# A title of the tour, and what must be on the line that begins with these words.
EXPECTED = {
    "newest ": "2 messages, budget (250, 1000)",
    "the first one": "1 message",
    "version 2, ": "'tags': ['draft', 'travel']",
    "page 1 ": "['user_carol_2', 'user_carol_1', 'user_bob_2']",
    "page 2 ": "['user_bob_1', 'user_alice_2', 'user_alice_1']",
    "alice's ": "['user_alice_2', 'user_alice_1']",
    "{'user': 'bob'} ": "['user_bob_2', 'user_bob_1']",
    "{'paid': 1} ": "[]",
    "{'tags': ['travel']} ": "['trip']",
    "trip-b ": "'another way'",
    "after deleting the newest of trip": "1 message",
    "equal to what was saved": "True",
    "and any step is there": "200 messages",
}


def run(folder: Path, url: str | None) -> str:
    """What the tour prints; nothing may be left in the folder, and nothing may be said on the error stream."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | ({} if url is None else {"LOCUS_STORE_URL": url})
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "tour.py")]
    before = sorted(folder.iterdir())
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    assert url is not None or sorted(folder.iterdir()) == before
    return done.stdout


def test_the_tour_on_the_embedded_default_leaves_nothing(tmp_path: Path) -> None:
    assert "the whole database file" in run(tmp_path, None)


@only(*WITH_URL)
def test_the_tour_says_the_same_on_every_backend_that_a_url_names(place: backends.Place, tmp_path: Path) -> None:
    assert place.url is not None
    before = place.count()
    lines = run(tmp_path, place.url).splitlines()
    for beginning, expected in EXPECTED.items():
        assert [line for line in lines if line.startswith(beginning) and expected in line], beginning
    assert lines[-1] == "That was the tour."
    assert place.count() == before


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("named_by", ["make's variable", "the environment", "nobody"])
def test_make_demo_hands_the_url_to_the_tour_and_does_not_print_it(tmp_path: Path, named_by: str) -> None:
    url = "redis://:se$cret'@localhost/0"
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$LOCUS_STORE_URL" >>"$0.url"\necho "$@" >>"$0.calls"\n')
    python.chmod(0o755)
    (tmp_path / ".made").touch()
    command = ["make", "--no-print-directory", "demo", f"VENV={tmp_path}"]
    # What `make test` tells the commands under it is no business of this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["LOCUS_STORE_URL"] = url if named_by == "the environment" else ""
    if named_by == "make's variable":
        command.append(f"URL={url}")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cret" not in done.stdout
    installed, tour = python.with_name("python.calls").read_text().splitlines()
    assert tour == "examples/tour.py"
    assert installed.endswith("--editable ." if named_by == "nobody" else "--editable .[all]")
    assert python.with_name("python.url").read_text().splitlines()[-1] == ("" if named_by == "nobody" else url)

"""What the README and the examples say is run, word for word."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)


def run(arguments: list[str], cwd: Path, **env: str) -> str:
    done = subprocess.run(
        arguments,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def test_the_readme_has_examples() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_an_example_of_the_readme_runs(block: str, tmp_path: Path) -> None:
    run([sys.executable, "-W", "error", "-c", block], tmp_path)


@pytest.mark.parametrize("command", ["upgrade head", "check", "upgrade head --sql"])
def test_the_commands_of_the_readme_run_in_a_checkout(command: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    alembic = [sys.executable, "-c", "import sys; from alembic.config import main; main(sys.argv[1:])"]
    if command == "check":
        run([*alembic, "upgrade", "head"], ROOT, LOCUS_STORE_URL=url)
    run([*alembic, *command.split()], ROOT, LOCUS_STORE_URL=url)


def test_the_links_of_the_documentation_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"

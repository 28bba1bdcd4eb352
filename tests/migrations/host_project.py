"""A host's whole Alembic project, made of the files that docs/migrations.md shows, on a database of a test."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
from alembic.config import CommandLine, Config
from migrations.conftest import ROOT, Database, run

PAGE = (ROOT / "docs" / "migrations.md").read_text()
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILES = {
    text.partition("\n")[0].removeprefix("# "): text for kind, text in _BLOCK.findall(PAGE) if kind in ("python", "ini")
}
"""The examples that are files, or whole programs, by the name in their first line."""


def commands(section: str) -> list[str]:
    """The commands that a section shows."""
    (text,) = [part for part in re.split(r"^## ", PAGE, flags=re.M) if part.startswith(section + "\n")]
    blocks = [block for kind, block in _BLOCK.findall(text) if kind == "sh"]
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]


def sql(section: str) -> str:
    """The SQL that a section shows."""
    (text,) = [part for part in re.split(r"^## ", PAGE, flags=re.M) if part.startswith(section + "\n")]
    return "\n".join(block for kind, block in _BLOCK.findall(text) if kind == "sql")


class HostProject:
    """The files in `folder`, and what one does with them.

    Args:
        folder: An empty folder.
        database: The host's database.
        inside: Our revisions are part of its history; otherwise they are run beside it.
        url: What its env.py connects to, if that is not the asynchronous driver.
    """

    def __init__(self, folder: Path, database: Database, *, inside: bool, url: str | None = None) -> None:
        self.folder = folder
        self.database = database
        # An engine knows where it leads; its text hides the password, which no server of the tests has.
        self.url = url or str(database.async_engine().url)
        (folder / "shop").mkdir()
        (folder / "migrations" / "versions").mkdir(parents=True)
        (folder / "migrations" / "script.py.mako").write_text("")
        for name in ("shop/models.py", "migrations/versions/shop0001_customers.py"):
            (folder / name).write_text(FILES[name])
        env = "migrations/env.py" if url is None else "migrations/env.py (synchronous)"
        (folder / "migrations" / "env.py").write_text(FILES[env])
        self.take_in() if inside else self.take_out()

    def take_in(self) -> None:
        """Makes our revisions part of its history."""
        self._write(FILES["alembic.ini"], FILES["migrations/versions/shop0001_customers.py"])

    def take_out(self) -> None:
        """Its history is its own."""
        ini, revision = FILES["alembic.ini"], FILES["migrations/versions/shop0001_customers.py"]
        assert '\ndepends_on = "ls0001"\n' in revision
        self._write(
            ini.replace("    locus_store:migrations/versions\n", ""),
            revision.replace('\ndepends_on = "ls0001"\n', "\ndepends_on = None\n"),
        )

    def _write(self, ini: str, revision: str) -> None:
        (self.folder / "alembic.ini").write_text(ini)
        (self.folder / "migrations" / "versions" / "shop0001_customers.py").write_text(revision)

    @contextmanager
    def _here(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DATABASE_URL", self.url)
            patch.setattr(sys, "path", [str(self.folder), *sys.path])
            # Two projects in one process must not share modules of one name.
            patch.setattr(sys, "dont_write_bytecode", True)
            self._forget()
            try:
                yield
            finally:
                self._forget()

    def _forget(self) -> None:
        for name in [name for name in sys.modules if name == "shop" or name.startswith("shop.")]:
            del sys.modules[name]

    def alembic(self, *arguments: str, fails: bool = False) -> str:
        """Runs one of Alembic's commands; what it printed."""
        command_line = CommandLine()
        options = command_line.parser.parse_args(list(arguments))
        printed = io.StringIO()
        failed = False
        with self._here(), redirect_stdout(printed):
            config = Config(str(self.folder / "alembic.ini"), cmd_opts=options, stdout=printed)
            try:
                with ThreadPoolExecutor(1) as thread:  # its env.py begins an event loop
                    thread.submit(command_line.run_cmd, config, options).result()
            except SystemExit:
                failed = True
        assert failed == fails, printed.getvalue()
        return printed.getvalue()

    def shell(self, command: str) -> None:
        """Runs a command line of the documentation: the host's ``alembic``, or ours."""
        program, *words = shlex.split(command)
        if program == "alembic":
            self.alembic(*words)
        elif program == "python" and words[:2] == ["-m", "locus_store.migrations"]:
            if self.database.name == "sqlite":
                run([sys.executable, *words], cwd=self.folder, LOCUS_STORE_URL=self.database.url)
            else:
                self.database.alembic(*words[2:])
        else:
            assert program == "export", command

    def program(self, name: str) -> None:
        """Runs an example that is a whole program."""
        code = compile(FILES[name], name, "exec")
        with self._here(), ThreadPoolExecutor(1) as thread:
            thread.submit(exec, code, {"__name__": "__main__"}).result()

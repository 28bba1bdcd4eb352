"""What `import locus_store` offers, what it loads, and that all of it is described and typed."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import locus_store
from locus_store import schemes
from locus_store.core import capabilities, checkpointer, errors, protocols, store
from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = {
    "aiosqlite",
    "alembic",
    "asyncmy",
    "asyncpg",
    "greenlet",
    "mako",
    "obstore",
    "oci",
    "opensearchpy",
    "orjson",
    "redis",
    "sqlalchemy",
    "sqlite3",
}


def run(code: str, *flags: str) -> str:
    """What a program prints that finds this checkout, and whose warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def public() -> dict[str, Any]:
    return {name: getattr(locus_store, name) for name in locus_store.__all__}


# ------------------------------------------------------------------------------------------------------------ __all__


def test_the_list_is_sorted_and_has_nothing_twice() -> None:
    assert locus_store.__all__ == sorted(set(locus_store.__all__))


def test_the_list_is_complete() -> None:
    found = {
        "Backend Capabilities CheckpointInfo Checkpointer SearchHit",
        "AgentState Message ReasoningStep Role ToolCall ToolExecution ToolResult",
        "Codec ThreadName ZlibCodec",
        "SyncBackend SyncCheckpointer",
        "__version__ open_backend open_checkpointer",
    }
    found = {name for line in found for name in line.split()}
    found |= {name for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, Exception)}
    drivers = [driver.module for driver in vars(schemes).values() if isinstance(driver, schemes.Driver)]
    folders = {path.name for path in (ROOT / "locus_store" / "backends").iterdir() if (path / "__init__.py").exists()}
    assert folders <= {driver.partition(".")[0] for driver in drivers}
    for driver in drivers:
        module = import_module(f"locus_store.backends.{driver}")
        faces = {
            name
            for name, cls in vars(module).items()
            if isinstance(cls, type)
            and issubclass(cls, Backend | Checkpointer)
            and cls.__module__.startswith(module.__name__)
        }
        assert len(faces) == 2, faces
        found |= faces
    assert sorted(found) == locus_store.__all__


def test_every_name_is_what_it_is_where_it_lives() -> None:
    for name, thing in public().items():
        if name != "__version__":
            assert thing.__name__ == name
            assert getattr(sys.modules[thing.__module__], name) is thing
        assert getattr(locus_store, name) is thing


def test_the_type_checker_is_told_the_same_names() -> None:
    tree = ast.parse(Path(locus_store.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    told = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(told | {"__version__"}) == locus_store.__all__


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'locus_store' has no attribute 'HTTPBackend'"):
        _ = locus_store.HTTPBackend  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        exec("from locus_store import nothing")
    assert set(locus_store.__all__) <= set(dir(locus_store))


def test_the_version_is_that_of_the_distribution() -> None:
    try:
        installed = metadata.version("locus-store")
    except metadata.PackageNotFoundError:
        pytest.skip("this checkout is not installed")
    assert locus_store.__version__ == installed
    assert installed == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_without_a_distribution_there_is_a_version_all_the_same() -> None:
    code = """
import importlib.metadata as metadata

def version(name):
    raise metadata.PackageNotFoundError(name)

metadata.version = version
import locus_store
print(locus_store.__version__)
"""
    assert run(code).strip() == "0+unknown"


# ---------------------------------------------------------------------------------------------------- what is imported


def loaded(code: str) -> set[str]:
    """The top-level packages, and the modules of this one, that are there after some code and were not before."""
    found = run(f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))").split()
    return {name if name.startswith("locus_store") else name.partition(".")[0] for name in found}


def test_importing_the_package_loads_nothing_else() -> None:
    modules = loaded("import locus_store")
    assert {name for name in modules if name.startswith("locus_store")} == {"locus_store"}
    assert not modules & {*CLIENTS, "pydantic", "asyncio"}


_DRIVERS = "File|SQLite|PostgreSQL|MySQL|OCI|OpenSearch|Oracle|Redis|S3"
LIGHT = [name for name in locus_store.__all__ if not re.match(_DRIVERS, name)]


def test_everything_but_the_drivers_loads_no_client() -> None:
    modules = loaded(
        f"from locus_store import {', '.join(LIGHT)}\nopen_backend('memory://'), open_checkpointer('memory://')"
    )
    assert not modules & (CLIENTS - {"orjson"})
    assert not {
        name
        for name in modules
        if re.match(r"locus_store\.(sql\.(?!client_parameters)|migrations|memory|backends\.(?!memory))", name)
    }


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("from locus_store import FileBackend; FileBackend()", CLIENTS - {"orjson"}),
        ("from locus_store import SQLiteBackend; SQLiteBackend()", {"asyncmy", "asyncpg", "redis"}),
        ("from locus_store import RedisBackend; RedisBackend()", CLIENTS - {"orjson", "redis"}),
        ("from locus_store import OpenSearchBackend; OpenSearchBackend()", CLIENTS - {"orjson", "opensearchpy"}),
        ("from locus_store import S3Backend; S3Backend('b')", CLIENTS - {"orjson"}),
        ("from locus_store import OCIBucketBackend; OCIBucketBackend('b', 'n')", CLIENTS - {"orjson"}),
        ("from locus_store.memory.backends import FileCheckpointer, MemoryCheckpointer", CLIENTS - {"orjson"}),
        (
            "import locus_store.memory, locus_store.memory.backends.adapters, locus_store.memory.registry",
            CLIENTS - {"orjson"},
        ),
    ],
)
def test_a_driver_loads_its_own_client_only(code: str, absent: set[str]) -> None:
    assert not loaded(code) & absent


def blocking(*packages: str) -> str:
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"


def test_all_names_can_be_imported_with_no_extra_installed() -> None:
    assert (
        run(
            blocking("asyncmy", "asyncpg", "orjson", "aiosqlite", "obstore", "oci", "opensearchpy", "redis")
            + "from locus_store import *\nprint(len(dir()) > 40)"
        )
        == "True\n"
    )


def test_a_missing_client_is_one_clear_error() -> None:
    code = """
import locus_store
for make in (lambda: locus_store.PostgreSQLBackend(), lambda: locus_store.open_backend("postgresql://h/d")):
    try:
        make()
    except locus_store.MissingDependencyError as error:
        print(error)
"""
    lines = run(blocking("asyncpg") + code).splitlines()
    assert lines == ["PostgreSQLBackend needs the package 'asyncpg': pip install 'locus-store[postgresql]'"] * 2
    code = code.replace("PostgreSQL", "MySQL").replace("postgresql", "mysql")
    lines = run(blocking("asyncmy") + code).splitlines()
    assert lines == ["MySQLBackend needs the package 'asyncmy': pip install 'locus-store[mysql]'"] * 2
    code = code.replace("MySQL", "Redis").replace("mysql", "redis")
    lines = run(blocking("redis") + code).splitlines()
    assert lines == ["RedisBackend needs the package 'redis': pip install 'locus-store[redis]'"] * 2
    code = code.replace("Redis", "OpenSearch").replace("redis", "opensearch")
    lines = run(blocking("opensearchpy") + code).splitlines()
    assert lines == ["OpenSearchBackend needs the package 'opensearch-py': pip install 'locus-store[opensearch]'"] * 2
    code = code.replace("OpenSearchBackend()", "S3Backend('b')").replace("opensearch://h/d", "s3://b/p")
    lines = run(blocking("obstore") + code).splitlines()
    assert lines == ["S3Backend needs the package 'obstore': pip install 'locus-store[s3]'"] * 2
    code = code.replace("S3Backend", "OCIBucketBackend").replace("s3://", "oci://")
    lines = run(blocking("oci") + code).splitlines()
    assert lines == ["OCIBucketBackend needs the package 'oci': pip install 'locus-store[oci]'"] * 2


def test_memory_and_files_work_without_any_dependency_but_pydantic() -> None:
    code = """
import asyncio, tempfile
from locus_store import FileCheckpointer, MemoryCheckpointer, AgentState, Message
async def main(checkpointer):
    await checkpointer.save(AgentState().with_message(Message.user("hello")), "t")
    print((await checkpointer.load("t")).messages[0].content)
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(MemoryCheckpointer()))
    asyncio.run(main(FileCheckpointer(folder)))
"""
    assert run(blocking("sqlalchemy", "alembic", "asyncpg", "orjson") + code) == "hello\nhello\n"


# ----------------------------------------------------------------------------------------------- described and typed


def described(thing: Any) -> bool:
    return bool(inspect.getdoc(thing)) and not str(thing.__doc__).startswith(f"{thing.__name__}(")


def test_everything_has_a_description() -> None:
    missing = []
    for name, thing in public().items():
        if name == "__version__":
            continue
        if not described(thing):
            missing.append(name)
        if isinstance(thing, type):
            for member in [m for m in vars(thing) if not m.startswith("_")]:
                found = inspect.getattr_static(thing, member)
                found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
                if inspect.isfunction(found) and not inspect.getdoc(getattr(thing, member)):
                    missing.append(f"{name}.{member}")
    assert not missing


@pytest.mark.parametrize(
    "module", [locus_store, capabilities, checkpointer, errors, protocols, store], ids=lambda module: module.__name__
)
def test_modules_have_a_description(module: ModuleType) -> None:
    assert module.__doc__


def test_the_types_are_what_users_see() -> None:
    """mypy, strict, over a program that uses the interface; what `make check-types` has read is not read again."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "tests/typing/api.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "locus_store" / "py.typed").exists()


@pytest.mark.parametrize("name", ["PostgreSQLBackend", "MySQLBackend"])
def test_a_url_in_place_of_a_host_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ValueError, match="dsn=") as refused:
        getattr(locus_store, name)("postgresql://me:secret@localhost/db")
    assert "secret" not in str(refused.value)

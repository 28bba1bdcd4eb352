"""The public faces of the store in files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from locus_store.backends.file import names
from locus_store.backends.file.driver import FileDriver
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.ids import check_thread_id
from locus_store.core.state import AgentState


class FileBackend(Backend):
    """Documents in files, a folder for each thread; several processes of one machine may use it at once.

    Args:
        base_dir: The folder; it is made by the first save.
        pretty: Indent the JSON in the files.
        max_checkpoints_per_thread: Another name of ``keep_checkpoints``.
        fsync: Whether a save returns only when it is on the disk. Without it a crash of the machine, not one of the
            process, may lose or damage the last saves.
        lock_timeout: Seconds that a write waits for other writers of its thread before `StoreBusyError`.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    _driver: FileDriver

    def __init__(
        self,
        base_dir: str | os.PathLike[str] = ".locus_checkpoints",
        pretty: bool = False,
        max_checkpoints_per_thread: int | None = None,
        *,
        fsync: bool = True,
        lock_timeout: float = 10.0,
        **options: Unpack[BackendOptions],
    ) -> None:
        if max_checkpoints_per_thread is not None:
            if options.get("keep_checkpoints") is not None:
                raise TypeError("max_checkpoints_per_thread and keep_checkpoints are one option: give one of them")
            options["keep_checkpoints"] = max_checkpoints_per_thread
        self.base_dir = Path(base_dir)
        self.pretty = pretty
        codec = options.get("codec")
        driver = FileDriver(base_dir, pretty=pretty, codec=codec, fsync=fsync, lock_timeout=lock_timeout)
        super().__init__(driver, **options)

    def get_storage_path(self) -> Path:
        """The folder that holds everything, as an absolute path."""
        return Path(self._driver.base)

    def get_disk_usage(self, thread_id: str | None = None) -> int:
        """Bytes of all files, or of those of one thread of this tenant."""
        place = Path(self._driver.base)
        if thread_id is not None:
            place = place / names.folder(self._options.tenant) / names.folder(check_thread_id(thread_id))
        total = 0
        for path in place.rglob("*"):
            with suppress(FileNotFoundError):  # others may be at work
                total += path.stat().st_size if path.is_file() else 0
        return total

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_dir={str(self.base_dir)!r})"


class FileCheckpointer(Checkpointer[AgentState]):
    """Agent states in files.

    Args:
        base_dir: The folder; it is made by the first save.
        pretty: Indent the JSON in the files.
        **options: See `FileBackend`.
    """

    backend: FileBackend

    def __init__(
        self, base_dir: str | os.PathLike[str] = ".locus_checkpoints", pretty: bool = False, **options: Any
    ) -> None:
        super().__init__(FileBackend(base_dir, pretty, **options), AgentState)

    @property
    def base_dir(self) -> Path:
        """The folder, as it was given."""
        return self.backend.base_dir

    @property
    def pretty(self) -> bool:
        """Whether the JSON in the files is indented."""
        return self.backend.pretty

    def get_storage_path(self) -> Path:
        """The folder that holds everything, as an absolute path."""
        return self.backend.get_storage_path()

    def get_disk_usage(self, thread_id: str | None = None) -> int:
        """Bytes of all files, or of those of one thread of this tenant."""
        return self.backend.get_disk_usage(thread_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_dir={str(self.base_dir)!r})"

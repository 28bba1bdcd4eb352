"""A codec that compresses what is stored."""

from __future__ import annotations

import zlib

from locus_store.core.frames import ThreadName


class ZlibCodec:
    """Compresses with zlib, which every Python has.

    A store reads compressed data only when it is given this codec again; any level reads what any other wrote. Data
    that was stored without a codec stays readable.

    Args:
        level: 0 (none) to 9 (smallest); each save compresses only what is new, so 1 is mostly the best trade.

    Attributes:
        name: ``zlib``, stored with each frame.
        bound: False: what was compressed for one thread can be read for another.
    """

    name: str = "zlib"
    bound: bool = False

    def __init__(self, level: int = 1) -> None:
        if not isinstance(level, int) or isinstance(level, bool):
            raise TypeError(f"level must be an int, got {type(level).__name__}")
        if not 0 <= level <= 9:
            raise ValueError(f"level must be 0 to 9, got {level}")
        self._level = level

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        """The data, compressed."""
        return zlib.compress(data, self._level)

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        """The data again.

        Raises:
            ValueError: The bytes are damaged.
        """
        try:
            return zlib.decompress(data)
        except zlib.error as e:
            raise ValueError(str(e)) from e

    def __repr__(self) -> str:
        return f"{type(self).__name__}(level={self._level})"

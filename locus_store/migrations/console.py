"""The command line: Alembic's own commands on this package's revisions, without a checkout."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from alembic.config import CommandLine, Config


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one of Alembic's commands: ``[-x url=…] upgrade head``, ``current``, ``check``, ``upgrade head --sql``."""
    command_line = CommandLine(prog="python -m locus_store.migrations")
    options = command_line.parser.parse_args(argv)
    if not hasattr(options, "cmd"):
        command_line.parser.print_help(sys.stderr)
        sys.exit(2)
    config = Config(cmd_opts=options)
    config.set_main_option("script_location", "locus_store:migrations")
    show_progress()
    command_line.run_cmd(config, options)


def show_progress() -> None:
    """Writes to the console which database is worked on and what is run there."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    for name in ("alembic.runtime.migration", "locus_store.migrations"):
        logging.getLogger(name).setLevel(logging.INFO)

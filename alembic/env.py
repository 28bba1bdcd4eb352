"""Run by Alembic in a checkout; the work is done in the package."""

from alembic import context

from locus_store.migrations.console import show_progress
from locus_store.migrations.environment import run

if context.config.cmd_opts is not None:  # the command line, not a program
    show_progress()
run()

"""Run by Alembic, where ``script_location`` is ``locus_store:migrations``."""

from locus_store.migrations.environment import run

run()

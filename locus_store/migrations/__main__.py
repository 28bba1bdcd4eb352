"""``python -m locus_store.migrations``."""

from locus_store.migrations.console import main

if __name__ == "__main__":
    main()

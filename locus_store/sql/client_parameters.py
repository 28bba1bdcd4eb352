"""What in the query of a URL is for the database's client, and not an option of the store."""

POSTGRESQL_CLIENT = frozenset(
    """
    application_name command_timeout connect_timeout database direct_tls gsslib host krbsrvname
    max_cacheable_statement_size max_cached_statement_lifetime passfile password port prepared_statement_cache_size
    service servicefile ssl sslmode statement_cache_size target_session_attrs timeout user
    """.split()  # noqa: SIM905
)
"""Words of libpq, of asyncpg, and of its SQLAlchemy dialect."""

SCHEMA_OPTIONS = ("schema", "schema_name")
"""The store's options that name the schema of the tables."""

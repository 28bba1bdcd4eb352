"""What in the query of a URL is for the database's client, and not an option of the store."""

POSTGRESQL_CLIENT = frozenset(
    """
    application_name command_timeout connect_timeout database direct_tls gsslib host krbsrvname
    max_cacheable_statement_size max_cached_statement_lifetime passfile password port prepared_statement_cache_size
    service servicefile ssl sslmode statement_cache_size target_session_attrs timeout user
    """.split()  # noqa: SIM905
)
"""Words of libpq, of asyncpg, and of its SQLAlchemy dialect."""

MYSQL_CLIENT = frozenset(
    """
    charset connect_timeout program_name read_default_file read_default_group read_timeout server_public_key ssl_ca
    ssl_capath ssl_cert ssl_check_hostname ssl_cipher ssl_key unix_socket
    """.split()  # noqa: SIM905
)
"""Words of asyncmy and of its SQLAlchemy dialect."""
ORACLE_CLIENT = frozenset(
    """
    cclass config_dir connection_id_prefix dsn edition expire_time https_proxy instance_name machine osuser
    pool_boundary program protocol proxy_user retry_count retry_delay sdu server_type service_name sid
    ssl_server_cert_dn ssl_server_dn_match stmtcachesize tcp_connect_timeout terminal use_sni use_tcp_fast_open
    wallet_location wallet_password
    """.split()  # noqa: SIM905
)
"""Arguments of ``oracledb.connect_async`` that are written as text."""

SCHEMA_OPTIONS = ("schema", "schema_name")
"""The store's options that name the schema of the tables."""

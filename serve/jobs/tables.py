"""The tables of the job store and how a database is opened: SQLite by default, any SQLAlchemy URL besides."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection as SqliteConnection

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from rayctsl.words import one_line

METADATA = MetaData()

JOBS = Table(
    "finetune_jobs",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),  # the order of acceptance
    Column("id", String(40), unique=True, nullable=False),
    Column("status", String(16), nullable=False, index=True),
    Column("request", JSON, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("idempotency_key", String(200), unique=True),
    Column("fingerprint", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("attempt", Integer, nullable=False, default=0),
    Column("lost_attempts", Integer, nullable=False, default=0),
    Column("worker", String(80)),
    Column("step", Integer, nullable=False, default=0),
    Column("result", JSON),
    Column("error", JSON),
    Column("owner", String(64), index=True),  # since version 2
    Column("model_deleted_at", Float),
)

SLOTS = Table(
    "worker_slots",
    METADATA,
    Column("slot", Integer, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("worker", String(80)),
)

KEYS = Table(
    "api_keys",
    METADATA,
    Column("name", String(48), primary_key=True),
    Column("hash", String(64), unique=True, nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("queue_share", Integer),
    Column("jobs_per_day", Integer),
    Column("requests_per_minute", Integer),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)

# Jobs that were deleted still count against their owner's quota of the day.
SPENT = Table(
    "deleted_jobs",
    METADATA,
    Column("job", String(40), primary_key=True),
    Column("owner", String(64), index=True),
    Column("created_at", Float, nullable=False),
)

WEBHOOKS = Table(
    "webhooks",
    METADATA,
    Column("job", String(40), primary_key=True),
    Column("url", String(2000), nullable=False),
    Column("secret", String(128), nullable=False),
    Column("status", String(16), nullable=False, index=True),  # waiting, delivered, failed
    Column("attempts", Integer, nullable=False, default=0),
    Column("next_at", Float, nullable=False, default=0.0),
    Column("error", String(200)),
)

# One row that accepting transactions lock, so that counting and adding are one step on every database.
GATE = Table("queue_gate", METADATA, Column("id", Integer, primary_key=True))

# Numbers of PostgreSQL's advisory locks: any that nobody else uses in this database.
SETUP_LOCK, LEADER_LOCK = 7_261_979_274, 7_261_979_275


def open_database(url: str) -> Engine:
    """Connect, and make the tables that are missing."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = _engine(parsed)
        with engine.begin() as connection:
            if parsed.get_backend_name() == "postgresql":  # several services may start at the same moment
                connection.execute(text(f"SELECT pg_advisory_xact_lock({SETUP_LOCK})"))
            METADATA.create_all(connection)
            _add_missing_columns(connection)
            if connection.execute(GATE.select()).first() is None:
                connection.execute(insert(GATE).values(id=1))
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise ValueError(f"the database address cannot be used: {one_line(error)}") from None
    except (OperationalError, OSError) as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise ValueError(f"the database does not open: {reason}") from None
    return engine


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    # A file takes any number of connections; of a fixed number, those who wait to write would leave readers none.
    engine = create_engine(url, **({"max_overflow": -1} if url.database else {}))
    _tune_sqlite(engine)
    return engine


def _add_missing_columns(connection: Connection) -> None:
    """Bring a database that an earlier release made up to date; new columns may all be empty."""
    there = inspect(connection)
    for table in METADATA.sorted_tables:
        known = {column["name"] for column in there.get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                kind = column.type.compile(connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}"))


def _tune_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: SqliteConnection, record: object) -> None:
        connection.isolation_level = None  # transactions begin below, where we say
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=15000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A transaction that reads before it writes must hold the lock from the start, or it may fail half way.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

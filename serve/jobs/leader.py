"""Which of several services moves the jobs: the one that holds an advisory lock of the database they share.

The lock belongs to a connection that is kept for it alone. A service that dies, or loses its database, loses the lock
with the connection, and the next one to ask leads. Changes are compare-and-set, so a moment with two leaders is safe.
"""

from __future__ import annotations

import contextlib

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from serve.jobs.tables import LEADER_LOCK


class Leadership:
    """Asks for the lock until it has it. SQLite serves one process, which leads."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._shared = engine.dialect.name == "postgresql"
        self._connection: Connection | None = None
        self.leads = not self._shared  # as of the last time it was asked

    def held(self) -> bool:
        """Whether this service leads now; blocking, cheap enough for every turn."""
        if not self._shared:
            return True
        try:
            if self._connection is None:
                self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            # While we lead the query only shows that the connection, and so the lock, is still there.
            query = text("SELECT true") if self.leads else text(f"SELECT pg_try_advisory_lock({LEADER_LOCK})")
            self.leads = bool(self._connection.execute(query).scalar_one())
        except SQLAlchemyError:
            self.release()
        return self.leads

    def release(self) -> None:
        """Let the next service lead at once."""
        connection, self._connection, led = self._connection, None, self.leads
        self.leads = not self._shared
        if connection is not None:
            if led:  # a closed connection's lock would be freed too, but in the server's own time
                with contextlib.suppress(SQLAlchemyError):
                    connection.execute(text(f"SELECT pg_advisory_unlock({LEADER_LOCK})"))
            connection.invalidate()  # back in the pool it would still hold the lock
            connection.close()

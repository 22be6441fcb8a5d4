"""What the metadata store and the batch coordinator share in their use of a PostgreSQL server.

What: how a URL is shown, which errors pass, what a server must be like so that its commits last,
and what a session settles. Not here: tables, connections.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from anabranch.core.errors import StorageFault

SERVER_FACTS = (
    "SELECT pg_is_in_recovery(), current_setting('fsync'), "
    "current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), "
    "(SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')"
)
PSYCOPG = ("psycopg", "psycopg_binary")
LOST_TRACK = "the connection ended where psycopg did not expect it"
NO_RIGHT = "42501"
COMMIT_TO_DISK = "SET synchronous_commit = on"


def shown_place(url: str, setting: str) -> str:
    """The URL's server and database, without user and password. Raises StorageFault, which names
    the setting."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise StorageFault(
            f"{setting} is not a PostgreSQL URL; write postgresql://user@host:5432/database"
        ) from None
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def is_away(error: psycopg.Error) -> bool:
    """Whether there is no server, or one that begins or ends; else it refuses us, for a reason that
    does not pass (when it refuses a connection there is no code, only libpq's words)."""
    said = str(error)
    refuses = error.sqlstate is None and "FATAL" in said and "the database system is" not in said
    return isinstance(error, psycopg.OperationalError) and not refuses


def lost_track(error: BaseException) -> bool:
    """Whether psycopg failed in a check of its own, as after a connection that ended within a
    pipeline: it raises AssertionError then, which is no error of the database."""
    trace = error.__traceback__
    if not isinstance(error, AssertionError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in PSYCOPG


def one_line(error: Exception) -> str:
    """What an error says."""
    return " ".join(str(error).split()) or type(error).__name__


def with_remedy(error: psycopg.Error, setting: str) -> str:
    """What an error says, and what to do about it; the setting names the server."""
    said = one_line(error)
    if "password" in said and ("authentication failed" in said or "supplied" in said):
        helps = f"correct the user in {setting}, and PGPASSWORD or the password file"
    elif error.sqlstate is None and "does not exist" in said:
        helps = f"make it on the server, or correct {setting}"
    elif "pg_hba.conf" in said:
        helps = "allow this host, user and database there"
    elif error.sqlstate == NO_RIGHT:
        helps = f"grant it to the user of {setting}"
    elif is_away(error):
        helps = f"see that the server runs, and that {setting} names it"
    else:
        return said
    return f"{said}; {helps}"


def check_facts(facts: tuple[Any, ...], what: str) -> bool:
    """Refuse a server that would lose commits, given its SERVER_FACTS; whether the session needs
    COMMIT_TO_DISK. Raises StorageFault, which begins with `what`."""
    in_recovery, fsync, synchronous_names, synchronous_commit, standbys = facts
    if in_recovery:
        raise StorageFault(f"{what}: it is a standby; use the primary")
    if fsync == "off":
        raise StorageFault(f"{what}: it runs with fsync=off and could lose commits; set fsync=on")
    if standbys and not synchronous_names:
        raise StorageFault(
            f"{what}: its standby is asynchronous, so a failover could lose "
            "commits; set synchronous_standby_names"
        )
    return synchronous_commit in ("off", "local")


def session_settings(idle_s: float) -> tuple[str, ...]:
    """Settle what a server may have other defaults for: a writer that has waited for a row reads
    what was committed meanwhile; one that says nothing within a transaction for `idle_s` (its cable
    is cut) is ended, and with it its locks, for which TCP alone may take two hours."""
    return (
        "SET default_transaction_isolation = 'read committed'",
        f"SET idle_in_transaction_session_timeout = {round(idle_s * 1000)}",
    )

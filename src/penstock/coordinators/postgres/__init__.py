"""The coordinator for processes of several machines: tables and session locks in one Postgres database."""

from penstock.coordinators.postgres.coordinator import PostgresCoordinator

__all__ = ["PostgresCoordinator"]

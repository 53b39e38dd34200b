"""The coordinator for processes of several machines: tables and session locks in one Postgres database."""

from penstock.kind import StateKind

KIND = StateKind(
    settings="penstock.coordinators.postgres.coordinator:PostgresCoordinator",
    page="pipeline-file.md",
    extra="postgres",
    schemes=("postgresql", "postgres"),
)

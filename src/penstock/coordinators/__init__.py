"""Where terms and watermarks are kept: one folder for each kind of store."""

COORDINATORS = {
    "postgres": "penstock.coordinators.postgres:PostgresCoordinator",
    "sqlite": "penstock.coordinators.sqlite:SqliteCoordinator",
}

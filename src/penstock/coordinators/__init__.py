"""Where terms and watermarks are kept: one folder for each kind of store."""

SCHEMES = {"kafka": "kafka", "postgresql": "postgres", "postgres": "postgres"}
"""Which store a URL means; what is no URL is the path of a file."""

COORDINATORS = {
    "kafka": "penstock.coordinators.kafka:KafkaCoordinator",
    "postgres": "penstock.coordinators.postgres:PostgresCoordinator",
    "sqlite": "penstock.coordinators.sqlite:SqliteCoordinator",
}

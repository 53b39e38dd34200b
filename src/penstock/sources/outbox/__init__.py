"""The transactional outbox of a Postgres database, read in windows between two snapshots. See DESIGN.md."""

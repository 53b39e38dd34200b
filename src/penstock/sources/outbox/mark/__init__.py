"""The seed layout of an outbox: rows are marked when they are read, and purged when they are delivered. See DESIGN.md."""

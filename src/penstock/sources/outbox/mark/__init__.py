"""The outbox in the layout of goharvest: rows are marked when they are read, and purged when they are delivered. See DESIGN.md."""

"""The same changes through Debezium, through plain micro-batches and through Penstock: `make bench-peers`."""

"""Running pipelines: leadership, the query of a term, settling, and the end."""

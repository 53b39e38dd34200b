"""Where terms and watermarks are kept: one module for each kind of store."""

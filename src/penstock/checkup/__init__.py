"""What `penstock doctor` looks at: small checks, each with its verdict and its remedy. They change nothing."""

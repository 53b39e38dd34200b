"""The checks of `penstock doctor`, each with its verdict and its remedy. They change nothing."""

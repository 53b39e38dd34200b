"""Real servers for the tests and measurements of this project; not part of the package."""

"""Tools for the tests of this project and of others: a receiver with faults, oracles, and the contract suites."""

"""Tests of the use cases: cheats, secrets, contracts, interpreters, the pytest plugin."""

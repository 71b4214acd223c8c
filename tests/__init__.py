"""The tests, one folder a room. A package: helpers are imported as `tests.<room>.<name>`."""

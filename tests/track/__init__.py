"""Tests of `track`: two runs set against each other."""

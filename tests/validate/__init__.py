"""Tests of the rules: each catches what was planted and leaves clean results alone."""

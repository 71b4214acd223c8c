"""Tests of what the machine is and what happens on it."""

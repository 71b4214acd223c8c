"""Tests of the house itself: its rooms, their imports, its packaging and its docs."""

"""Tests of whole cases in real processes."""

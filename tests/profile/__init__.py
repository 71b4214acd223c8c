"""Profiles, read and written."""

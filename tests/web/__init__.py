"""Tests of the dashboard: its views, its API, and its pages in a real browser."""

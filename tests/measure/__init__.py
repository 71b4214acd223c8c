"""Tests of the worker's loops and clocks."""

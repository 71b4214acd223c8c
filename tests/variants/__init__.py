"""Tests of how a workload is run."""

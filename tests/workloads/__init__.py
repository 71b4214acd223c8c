"""Tests of targets, fresh inputs and nests."""

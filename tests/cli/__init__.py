"""Tests of the command line, in processes of their own."""

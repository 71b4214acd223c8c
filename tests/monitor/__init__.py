"""Tests of watching a live loop: real loops and signals, and days of training in a second."""

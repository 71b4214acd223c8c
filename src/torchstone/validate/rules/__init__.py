"""The rules that ship with Torchstone, one a file; found by entry point like any other.

Each says what it found in one sentence with its figure and one with the remedy.
"""

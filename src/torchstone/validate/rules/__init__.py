"""The rules that ship with Torchstone: each says what it found, with its figures and the remedy."""

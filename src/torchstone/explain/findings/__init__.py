"""What a ledger gives away: each finding one small file, found by entry point.

Holds: the Protocol in `base`, the registry, the findings. Touches: nothing; a ledger in,
a prediction out, or None.
"""

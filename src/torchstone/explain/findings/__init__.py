"""What a ledger gives away: findings by what they are about.

Holds: the Protocol in `base`, the registry, the findings. Touches: nothing; a ledger in,
a prediction out, or None.
"""

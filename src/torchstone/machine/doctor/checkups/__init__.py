"""The built-in checkups: a few related ones a file, each found by its entry point.

They hold thresholds as named constants with their source, and read through the view alone. `R5` and
`R15` are rules of validation: the drifting clock and the host noise gate.
"""

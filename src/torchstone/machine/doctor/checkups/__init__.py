"""The built-in checkups: related ones in a file, thresholds as constants with their source."""

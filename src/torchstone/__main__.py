"""`python -m torchstone`."""

from torchstone.cli import main

main()

"""Targets for the tests of the measuring core: honest, dying, cheating and ill-behaved ones."""

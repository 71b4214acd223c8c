"""Tuning as decisions: which techniques are tried, what is adopted, and the recipe that comes out.

Holds: the plan of the experiments, the rules by which one is adopted, rejected or left open, the
forward selection, the Pareto front, the text of a recipe. Touches: `records`, `variants` (for what
techniques say of themselves), `stats`; nothing is measured or stored here, `lab.tune` does that.
"""

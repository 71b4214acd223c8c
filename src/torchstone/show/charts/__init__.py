"""Charts as SVG, made on the server and readable without scripts.

Holds: lines over time with intervals, raw samples by turn, intervals by name, and
points of two ratios. Touches: nothing;
plain numbers in, text out. Embedded charts take their colours from `assets/charts/charts.css` and
come alive by `assets/charts/charts.js`; stand-alone ones need neither.
"""

from torchstone.show.charts.frame import (
    IntervalRow,
    Point,
    SampleTurn,
    Series,
    Strip,
    format_estimate,
)
from torchstone.show.charts.intervals import (
    ScatterPoint,
    interval_chart,
    scatter_chart,
    strip_chart,
    strip_of,
)
from torchstone.show.charts.line import SIZE, SMALL_SIZE, line_chart

__all__ = [
    "SIZE",
    "SMALL_SIZE",
    "IntervalRow",
    "Point",
    "SampleTurn",
    "ScatterPoint",
    "Series",
    "Strip",
    "format_estimate",
    "interval_chart",
    "line_chart",
    "scatter_chart",
    "strip_chart",
    "strip_of",
]

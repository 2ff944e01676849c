"""Pages made from results only."""

from convergent.report.page import Curve, DemoPage, Network, Points, Score, SizeRow, number, write_demo_page

__all__ = ["Curve", "DemoPage", "Network", "Points", "Score", "SizeRow", "number", "write_demo_page"]

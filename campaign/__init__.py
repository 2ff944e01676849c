"""A campaign against the library: random systems, kills at every file operation, and bad input, checked for what must never happen.

    python -m campaign --seconds 600 --parts systems,kills,inputs

Everything is drawn from a seed and a number, so that each failure can be run again alone (``--again SEED:NUMBER``).
"""

"""Every speed claim of convergent, against its peers and its limit, in one run: ``python -m benchmarks``."""

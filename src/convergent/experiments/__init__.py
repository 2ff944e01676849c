"""Every table and figure of the paper as an experiment: its jobs, and what is made of their results."""

"""Training: named models, optimisers, runs on disk."""

"""What samples and takes gradient steps. Engines know nothing of the algorithm."""

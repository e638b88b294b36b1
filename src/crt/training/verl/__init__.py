"""verl on a Ray cluster: the same recipe, the same advantages, the same run directory."""

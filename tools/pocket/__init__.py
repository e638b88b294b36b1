"""How the pocket models are made; run from the root of a clone, not part of the package."""

"""TRL on one machine: `fit` trains one stage, `trainer` is GRPOTrainer with our advantages."""

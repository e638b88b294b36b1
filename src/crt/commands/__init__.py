"""One module a verb: `add_arguments(parser)` and `run(args) -> int`; heavy imports inside `run`."""

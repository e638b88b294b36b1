"""A response and a gold answer in, a verdict out: other folders import `grader` and `extract`."""

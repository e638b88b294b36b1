"""Response and gold answer in, verdict out; `grader` and `extract` are for the other folders."""

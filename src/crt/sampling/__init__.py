"""Models by name; completions from transformers or vLLM; graded rollouts.

May import: data, grading, pocket.
"""

import os

# Large pages for large tensors on a CPU, where torch's first allocation asks for them: the sampler
# reads its whole cache for every token, a fifth faster.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

"""What samples and takes gradient steps. Engines know nothing of the algorithm."""

import os

# Large pages for large tensors on a CPU, where torch's first allocation asks for them: the sampler
# reads its whole cache for every token, a fifth faster.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

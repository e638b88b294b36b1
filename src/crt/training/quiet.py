"""The libraries' own progress bars and notes, off: a run says what a user needs, once."""

import logging
import os
import warnings


def quiet() -> None:
    """Before TRL and transformers are loaded; warnings of theirs that matter are errors of ours."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("trl").setLevel(logging.ERROR)
    from transformers.utils import logging as of_transformers

    of_transformers.set_verbosity_error()
    of_transformers.disable_progress_bar()

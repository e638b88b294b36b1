"""The public names, for type checkers; `__init__.py` loads each when it is first used."""

from crt.algorithm.advantages import advantages as advantages
from crt.algorithm.batch import (
    Batch as Batch,
    batch_of as batch_of,
)
from crt.algorithm.length import normalised_length as normalised_length
from crt.algorithm.metrics import (
    AES1 as AES1,
    AES2 as AES2,
    aes as aes,
    transitions as transitions,
    zip_ratio as zip_ratio,
    zip_ratios as zip_ratios,
)
from crt.algorithm.objectives import (
    AccuracyOnly as AccuracyOnly,
    Decision as Decision,
    LengthOnly as LengthOnly,
    Objective as Objective,
    PrimalDual as PrimalDual,
    Refine as Refine,
    Shorten as Shorten,
    state_of as state_of,
    with_state as with_state,
)
from crt.algorithm.statistics import (
    Certificate as Certificate,
    Interval as Interval,
    bootstrap as bootstrap,
    mean_interval as mean_interval,
    non_inferiority as non_inferiority,
)
from crt.algorithm.step import (
    Signal as Signal,
    signal as signal,
)
from crt.algorithm.two_stage import Saturation as Saturation
from crt.config import RunConfig as RunConfig
from crt.data.datasets import load_problems as load_problems
from crt.errors import (
    ConfigError as ConfigError,
    CrtError as CrtError,
    DataError as DataError,
    EngineError as EngineError,
    GradingError as GradingError,
)
from crt.grading.grader import grade_response as grade_response
from crt.recipes import load_recipe as load_recipe
from crt.training.trl.trainer import CRTTrainer as CRTTrainer
from crt.types import (
    Problem as Problem,
    Rollout as Rollout,
    Verdict as Verdict,
)
from crt.version import __version__ as __version__

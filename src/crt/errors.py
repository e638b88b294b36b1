"""What goes wrong for a user: one clear sentence each, never a traceback."""


class CrtError(Exception):
    """Says what happened, where, with which value, and what to do; `crt` exits with 2."""


class ConfigError(CrtError):
    """A recipe or a setting cannot be used."""


class DataError(CrtError):
    """A data file, or a problem in it, cannot be used."""


class GradingError(CrtError):
    """The grader does not work, so no figure could be trusted."""


class EngineError(CrtError):
    """Sampling or training cannot start or go on."""

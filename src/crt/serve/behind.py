"""Which servers are behind the dial, and what they call the levels."""

import os
import re
from collections.abc import Sequence

import httpx

from crt.errors import ConfigError, EngineError
from crt.serve.family import Family
from crt.serve.metrics import Metrics
from crt.serve.upstream import Served, UpstreamEngine, UpstreamSettings


def upstream_engine(
    family: Family,
    urls: Sequence[str],
    names: Sequence[str],
    settings: UpstreamSettings,
    metrics: Metrics,
) -> UpstreamEngine:
    """The engine for `[LEVEL=]URL`s; each level's name there is given or found."""
    if settings.key_from and not os.environ.get(settings.key_from):
        raise ConfigError(f"--upstream-key-from {settings.key_from}: there is no such variable")
    levels = [level.name for level in family.levels]
    at = places(urls, levels)
    given = dict(_pair(each, "--upstream-model", levels) for each in names)
    served: dict[str, Served] = {}
    there = {url: _models(url, settings) for url in dict.fromkeys(at.values())}
    for level in levels:
        model = given.get(level) or found_model(family.name, level, there[at[level]])
        if model is None:
            raise ConfigError(
                f"{at[level]} serves {', '.join(there[at[level]][:10]) or 'no model'}, and none is "
                f"called like {family.name}:{level}: say which with --upstream-model {level}=NAME"
            )
        served[level] = Served(at[level], model)
        same = next((each for each in served if served[each] == served[level]), level)
        if same != level and level not in given:
            raise ConfigError(
                f"{same} and {level} would both be {model} at {at[level]}: say where {level} is, "
                f"--upstream {level}=URL, or what it is called there, --upstream-model {level}=NAME"
            )
    return UpstreamEngine(family, served, settings, metrics)


def places(urls: Sequence[str], levels: Sequence[str]) -> dict[str, str]:
    """Level → address: a bare URL is for all levels that have none of their own."""
    found: dict[str, str] = {}
    rest: str | None = None
    for each in urls:
        if re.match(r"https?://", each):
            rest = each
        else:
            level, url = _pair(each, "--upstream", levels)
            found[level] = url
    missing = [level for level in levels if level not in found]
    if missing and rest is None:
        raise ConfigError(f"--upstream: no address for the level {missing[0]}")
    every = {level: found.get(level) or str(rest) for level in levels}
    bad = next((url for url in every.values() if not re.match(r"https?://[^/\s]+", url)), None)
    if bad is not None:
        raise ConfigError(f"--upstream {bad!r} is not an address such as http://127.0.0.1:8001/v1")
    return {level: url.rstrip("/") for level, url in every.items()}


def found_model(family: str, level: str, there: Sequence[str]) -> str | None:
    """The name of a level's model on a server: the same, with another sign, or the level alone."""
    wanted = (f"{family}:{level}", f"{family}-{level}", level)
    found = next((name for name in wanted if name in there), None)
    return there[0] if found is None and len(there) == 1 else found


def _models(url: str, settings: UpstreamSettings) -> list[str]:
    key = os.environ.get(settings.key_from or "", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        told = httpx.get(f"{url}/models", headers=headers, timeout=30.0, trust_env=False)
        told.raise_for_status()
        return [str(each["id"]) for each in told.json()["data"]]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise EngineError(f"{url}/models answers {status}: is the address right?") from None
    except httpx.HTTPError as error:
        raise EngineError(f"{url} cannot be reached: {error}.") from None
    except (ValueError, KeyError, TypeError):
        raise EngineError(f"{url}/models is not a list of models.") from None


def _pair(text: str, option: str, levels: Sequence[str]) -> tuple[str, str]:
    level, equals, value = text.partition("=")
    if not equals or not value or level not in levels:
        raise ConfigError(f"{option} {text!r} is not LEVEL=…, with one of {', '.join(levels)}")
    return level, value

"""Tab completion: a script for bash, zsh or fish, made from the parsers of all verbs."""

import argparse
from collections.abc import Iterable, Mapping

BASH = """\
# In ~/.bashrc:  eval "$(crt --completion bash)"
_crt() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words=""
    case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
        1:*) words="{verbs}" ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F _crt crt
"""
ZSH = '# In ~/.zshrc:  eval "$(crt --completion zsh)"\nautoload -U bashcompinit && bashcompinit\n'
FISH = "# In ~/.config/fish/config.fish:  crt --completion fish | source\n"


Parsers = Mapping[str, argparse.ArgumentParser]


def script(shell: str, verbs: Mapping[str, str], parsers: Parsers) -> str:
    """The script; `verbs` are names with their help, `parsers` those of the verbs."""
    if shell == "fish":
        return FISH + "".join(_fish_lines(verbs, parsers))
    cases = "\n".join(
        f'        *:{verb}) words="{" ".join(words_of(parser))}" ;;'
        for verb, parser in parsers.items()
    )
    bash = BASH.format(verbs=" ".join(verbs), cases=cases)
    return bash if shell == "bash" else ZSH + bash.partition("\n")[2]


def words_of(parser: argparse.ArgumentParser) -> list[str]:
    """Its options, and what its arguments may be where that is a list; those of actions too."""
    words: list[str] = []
    for action in parser._actions:
        words += [option for option in action.option_strings if option.startswith("--")]
        words += map(str, action.choices or ())
        if isinstance(action, argparse._SubParsersAction):
            words += [word for each in action.choices.values() for word in words_of(each)]
    return list(dict.fromkeys(words))


def _fish_lines(verbs: Mapping[str, str], parsers: Parsers) -> Iterable[str]:
    for verb, line in verbs.items():
        quoted = line.replace("'", r"\'")
        yield f"complete -c crt -n __fish_use_subcommand -a {verb} -d '{quoted}'\n"
    for verb, parser in parsers.items():
        for word in words_of(parser):
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield f"complete -c crt -n '__fish_seen_subcommand_from {verb}' {what}\n"

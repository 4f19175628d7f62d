"""Shell completion, written from the argument parser itself, so that it never names what is not there.

``headrace completion bash`` prints a script to source. It is static: pressing Tab starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

SHELLS = ("bash", "zsh")

_BASH = """\
# bash completion of headrace: source <(headrace completion bash)
_headrace() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=""
  if [ "$COMP_CWORD" = 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}}:$before" in
{choices}
    *) case "${{COMP_WORDS[1]}}" in
{options}
      esac ;;
    esac
  fi
  [[ $word == -* || -n $words && $word != */* ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _headrace headrace
"""

_ZSH = "# zsh completion of headrace: source <(headrace completion zsh)\nautoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str, subparsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """The completion script for ``bash`` or ``zsh`` (zsh runs bash's through bashcompinit)."""
    options, choices = [], []
    for name, parser in subparsers.items():
        flags = [flag for action in parser._actions for flag in action.option_strings]
        options.append(f'      {name}) words="{" ".join(sorted(flags))}" ;;')
        for action in parser._actions:
            if action.choices and action.option_strings:
                patterns = "|".join(f"{name}:{flag}" for flag in action.option_strings)
                choices.append(f'    {patterns}) words="{" ".join(map(str, action.choices))}" ;;')
    body = _BASH.format(commands=" ".join(subparsers), options="\n".join(options), choices="\n".join(choices))
    return _ZSH + body if shell == "zsh" else body

"""What `init` asks once, and records in the user's file: the default agent, and what agents may do unasked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.api.home.init import AGENT, PERMISSIONS, choose, chosen
from holdfast.base.errors import Refused, UsageError
from holdfast.cli.output.render import clean, one_line

if TYPE_CHECKING:
    from holdfast.api.home.agent_clis import Cli
    from holdfast.config import Config

MODES = {
    "read": "look, and change nothing",
    "edit": "change files of their workspace; what their CLI would ask a person for is refused",
    "full": "everything that you may do, without a question: any command, any file, the network",
}
MOST_QUESTIONS = 3


def choose_agent(found: Sequence[Cli], wanted: str | None) -> None:
    names = [cli.name for cli in found]
    if wanted is not None:
        _tell(f"The agent of tasks that name none is now {wanted}", choose(AGENT, wanted))
        return
    if not found:
        print("No agent CLI was found in PATH. Any command can be an agent:")
        print('  holdfast run "say hello" -- sh -c "cat > hello.txt"')
        return
    listed = ", ".join(f"{cli.name} {cli.version}".rstrip() for cli in found)
    print(f"Agent CLIs: {clean(listed)}.")
    before = chosen(AGENT)
    if before is not None:
        print(f"The agent of tasks that name none is {clean(before)}, as you chose.")
    elif len(names) == 1:
        _record(f"The agent of tasks that name none is {names[0]}, the only one found", AGENT, names[0])
    elif _has_terminal():
        answer = _ask(f"Which one should tasks have that name none? [{names[0]}] ", names, names[0])
        if answer is not None:
            _record(f"The agent of tasks that name none is {answer}", AGENT, answer)
    else:
        print("Which of them tasks have that name none is not chosen yet: holdfast init --agent NAME")
    print(f'  holdfast run "fix the flaky test" --agent {names[0]}')


def refuse_unknown(name: str) -> None:
    """Before anything is done or said: a refusal stands alone."""
    from holdfast.api.home.agent_clis import known_agents

    if name not in known_agents():
        raise UsageError(f"There is no agent '{one_line(name, 40)}'. This version knows: {', '.join(known_agents())}.")


def choose_permissions(found: Sequence[Cli], settings: Config, wanted: str | None) -> None:
    from holdfast.api.home.agent_clis import refusal

    mode = wanted or chosen(PERMISSIONS)
    if wanted is not None:
        _tell(f"Agents may do this unasked: {wanted} ({MODES[wanted]})", choose(PERMISSIONS, wanted))
    elif mode is not None:
        print(f"Agents may do this unasked: {clean(mode)} ({MODES.get(mode, 'not a mode')}), as you chose.")
    elif found and _has_terminal():
        mode = _ask_permissions(found)
        if mode is not None:
            _record(f"Agents may do this unasked: {mode} ({MODES[mode]})", PERMISSIONS, mode)
    if mode is None:
        mode = "edit"
        print(f"Nobody chose what agents may do unasked, so it stays at edit: {MODES[mode]}.")
        print("  To change it: holdfast init --permissions read|edit|full (for one task: --permission)")
    for cli in found:
        why = refusal(cli, settings, mode)
        if why is not None:
            print(f"  {cli.name} cannot be started like this: {clean(why)}.")


def _ask_permissions(found: Sequence[Cli]) -> str | None:
    from holdfast.api.home.agent_clis import permission_words

    print("What may agents do unasked? Nobody is there to answer them. (One task may differ: --permission)")
    for mode, meaning in MODES.items():
        print(f"  {mode:<5} {meaning}")
        for cli in found:
            words = permission_words(cli).get(mode, "")
            if words:
                print(f"          {cli.name}: {one_line(words, 100)}")
    return _ask("read, edit or full? [edit] ", list(MODES), "edit")


def _ask(question: str, answers: Sequence[str], default: str) -> str | None:
    """None: nobody answered. Whole words only: nothing dangerous by a slip of one key."""
    for _attempt in range(MOST_QUESTIONS):
        try:
            answer = input(question).strip().lower() or default
        except EOFError:
            print()
            return None
        if answer in answers:
            return answer
        print(f"'{one_line(answer, 40)}' is none of {', '.join(answers)}.")
    return None


def _record(what: str, key: str, value: str) -> None:
    """An answer. Where it cannot be written down, the person is told what to write, and set-up goes on."""
    try:
        _tell(what, choose(key, value))
    except Refused as error:
        print(clean(error))


def _tell(what: str, file: str) -> None:
    print(f"{what}; recorded in {clean(file)}.")


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()

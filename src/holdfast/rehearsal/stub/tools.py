"""Tool calls of the stub: a tool is chosen from those that a CLI offers, and its arguments are filled by its schema."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import Any

from holdfast.rehearsal.stub.messages import Conversation, Json, Tool, ToolCallReply

WRITERS = ("Write", "write_file", "write", "create", "create_file", "apply_patch", "edit")
READERS = ("Read", "read_file", "read")
SCRIPTS = "exec"  # of codex with models that it knows: takes JavaScript, in which the other tools are functions
SHELLS = ("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell", "local_shell", SCRIPTS)
_ROLES = {
    "path": "path",
    "filepath": "path",
    "absolutepath": "path",
    "filename": "path",
    "content": "content",
    "filetext": "content",
    "newstring": "content",
    "newstr": "content",
    "input": "patch",
    "patch": "patch",
    "patchtext": "patch",
    "command": "command",
    "cmd": "command",
}
# Values for the unimportant arguments of a call. The waits are long, so that a slow command stays a call in progress.
_OTHERS: dict[str, Any] = {
    "oldstring": "",
    "oldstr": "",
    "description": "Rehearsal",
    "mode": "sync",
    "isbackground": False,
    "timeout": 600_000,
    "timeoutms": 600_000,
    "initialwait": 600,
    "yieldtimems": 600_000,
}
_WORKING_DIRECTORY = re.compile(
    r"(?:working (?:in the )?directory|workspace director(?:y|ies)|current directory|<cwd>)(?: is)?[\s:*`-]{0,12}"
    r"(/[^\n<`\"']+)",
    re.I,
)


def write_file(conversation: Conversation, name: str, content: str) -> ToolCallReply | None:
    """Return a call that writes `name`: with a tool for files, else with a shell. None if no offered tool can."""
    tool = _first_offered(conversation.tools, WRITERS)
    if tool is None:
        return run_command(conversation, f"printf '%s\\n' {shlex.quote(content)} > {shlex.quote(name)}")
    patch = f"*** Begin Patch\n*** Add File: {name}\n+{content}\n*** End Patch\n"
    values = {"path": _absolute_path(conversation, name), "content": content + "\n", "patch": patch}
    return _call(conversation, tool, values)


def read_file(conversation: Conversation, name: str) -> ToolCallReply | None:
    """Return a call that reads `name`. None if the CLI offers no tool for it."""
    tool = _first_offered(conversation.tools, READERS)
    return None if tool is None else _call(conversation, tool, {"path": _absolute_path(conversation, name)})


def run_command(conversation: Conversation, command: str) -> ToolCallReply | None:
    tool = _first_offered(conversation.tools, SHELLS)
    return None if tool is None else _call(conversation, tool, {"command": command})


def _first_offered(tools: tuple[Tool, ...], names: tuple[str, ...]) -> Tool | None:
    offered = {tool.name: tool for tool in tools}
    return next((offered[name] for name in names if name in offered), None)


def _call(conversation: Conversation, tool: Tool, values: dict[str, str]) -> ToolCallReply:
    arguments = {"input": _free_text(tool, values)} if tool.freeform else _fill_arguments(tool, values)
    return ToolCallReply(tool=tool, arguments=arguments, number=len(conversation.calls) + 1)


def _free_text(tool: Tool, values: dict[str, str]) -> str:
    if tool.name != SCRIPTS:
        return values.get("patch", "")
    arguments = json.dumps({"cmd": values["command"], "yield_time_ms": 30_000})
    return f'// @exec: {{"yield_time_ms": 600000}}\ntext(await tools.exec_command({arguments}));\n'


def _fill_arguments(tool: Tool, values: dict[str, str]) -> Json:
    required = tool.schema.get("required") or []
    filled = {}
    for name, schema in (tool.schema.get("properties") or {}).items():
        plain = name.replace("_", "").lower()
        role = _ROLES.get(plain)
        if role in values:
            filled[name] = _shape_value(values[role], schema)
        elif plain in _OTHERS and (name in required or plain != "description"):
            filled[name] = _OTHERS[plain]
        elif name in required:
            filled[name] = _any_value(schema)
    return filled


def _shape_value(value: str, schema: Json) -> object:
    return ["bash", "-lc", value] if schema.get("type") == "array" else value


def _any_value(schema: Json) -> object:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = str(schema.get("type", "string")).lower()
    return {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}.get(kind, "rehearsal")


def _absolute_path(conversation: Conversation, name: str) -> str:
    """Return the absolute path of `name`, because some tools want one.

    Every CLI gives the model its working directory, each with different words.
    """
    for text in (conversation.system, *conversation.prompts):
        if found := _WORKING_DIRECTORY.search(text):
            return os.path.join(found.group(1).strip().rstrip("."), name)
    return name

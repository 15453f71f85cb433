"""The command about Holdfast as a systemd service: service install, show, uninstall."""

from __future__ import annotations

import argparse
import os
import sys

from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import print_json


def configure_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "show", "uninstall"), help="what to do")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--user", action="store_true", help="a service of your own manager (unless you are root)")
    scope.add_argument("--system", action="store_true", help="a service of the machine, with root's sweep before it")
    parser.add_argument("--run-as", metavar="USER", help="with --system: whose agents they are (who called sudo)")
    parser.add_argument("--name", default="holdfast", help="the unit's name (holdfast)")
    parser.add_argument("--root", metavar="DIR", help="below this directory instead of /, as for systemctl --root")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--force", action="store_true", help="replace what is not ours; `uninstall` brings it back")
    add_json_option(parser)


def run_service(arguments: argparse.Namespace) -> int:
    from holdfast.api.home import service

    system = arguments.system or (not arguments.user and os.geteuid() == 0)
    wanted = service.resolve_service(system=system, name=arguments.name, run_as=arguments.run_as, root=arguments.root)
    if arguments.action == "show":
        path, state = wanted.path(wanted.unit_file), wanted.state()
        if arguments.json:
            print_json({"path": path, "state": state, "system": system, "text": wanted.text})
            return 0
        print(wanted.text, end="")
        print(f"{path}: {_STATE_TEXT[state]}", file=sys.stderr)
        return 0
    act = service.install if arguments.action == "install" else service.uninstall
    lines = act(wanted, dry_run=arguments.dry_run, force=arguments.force)
    if arguments.json:
        print_json({"path": wanted.path(wanted.unit_file), "did": lines, "dry_run": arguments.dry_run})
        return 0
    for line in lines or [f"{wanted.path(wanted.unit_file)} is in place; there was nothing to do."]:
        print(line)
    if arguments.action == "install" and not arguments.dry_run:
        print(f"Then: `{wanted.systemctl} enable --now {wanted.unit.name}` starts it, now and after every boot;")
        print(f"      `{wanted.systemctl} status {wanted.unit.name}` shows it, with the line of `holdfast-cleanup`.")
        if not system:
            print("      `loginctl enable-linger` lets it run while you are not logged in.")
    return 0


_STATE_TEXT = {
    "absent": "not installed; `holdfast service install` writes it",
    "same": "installed, exactly this",
    "older": "installed by another version of Holdfast; `holdfast service install` renews it",
    "other": "the service of another home; choose another --name",
    "changed": "installed, and changed by hand since",
    "foreign": "not ours",
}

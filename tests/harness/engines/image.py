"""What a private engine needs of this machine, and the one image that it has: busybox and nothing else."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

IMAGE = "holdfast-test:1"


def why_not() -> str:
    """Why there can be no engine here; nothing when there can."""
    if os.geteuid() != 0:
        return "a private container engine needs root; run it as root to include containers"
    for program, package in (("dockerd", "docker.io"), ("busybox", "busybox-static")):
        if shutil.which(program) is None:
            return f"{program} is not installed; scripts/setup_engine.sh installs {package} as root with apt-get"
    if b"/ld-linux" in Path(shutil.which("busybox") or "").read_bytes()[:4096]:  # it asks for a loader
        return "busybox needs libraries, which the test image has not; install busybox-static instead"
    return ""


def image() -> bytes:
    """A root file system with busybox and nothing else."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise RuntimeError("busybox is not installed (package busybox-static)")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, mode in (("bin", 0o755), ("tmp", 0o1777), ("etc", 0o755), ("proc", 0o755), ("dev", 0o755)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            archive.addfile(folder)
        program = tarfile.TarInfo("bin/busybox")
        data = Path(busybox).read_bytes()
        program.size, program.mode = len(data), 0o755
        archive.addfile(program, io.BytesIO(data))
        for applet in applets:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link) if applet != "busybox" else None
    return content.getvalue()

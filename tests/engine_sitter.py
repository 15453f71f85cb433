"""Keeps a private container engine for one test session, and ends it when the last test process is gone.

`python -m tests.engine_sitter FOLDER`: starts dockerd below FOLDER, imports an image made of busybox, writes
FOLDER/ready (or FOLDER/failed, with the reason). Every test process that uses the engine holds FOLDER/users shared; we
wait for it exclusively, which the kernel grants when all of them are done, or dead.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.harness.engines.image import IMAGE, image

PR_SET_PDEATHSIG = 1
PATIENCE = 60.0


def start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [
                "dockerd",
                f"--data-root={folder}/data",
                f"--exec-root={folder}/exec",
                f"--host=unix://{folder}/sock",
                f"--pidfile={folder}/pid",
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )


def wait_for_answer(folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    import docker  # type: ignore[import-untyped]  # it has no annotations

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            api = docker.APIClient(base_url=f"unix://{folder}/sock", version="auto", timeout=20)
            api.import_image_from_data(image(), repository=IMAGE.split(":")[0], tag=IMAGE.split(":")[1])
            return
        except (docker.errors.DockerException, OSError):
            if daemon.poll() is not None or time.monotonic() > deadline:
                last = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:] or ["it says nothing"]
                raise RuntimeError(f"dockerd did not start: {last[0]}") from None
            time.sleep(0.05)


def stop(folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    """dockerd ends its containers and containerd itself; what it left mounted is unmounted."""
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(timeout=40)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)


def main(folder: Path) -> None:
    daemon = start(folder)
    try:
        wait_for_answer(folder, daemon)
        (folder / "ready").touch()
        with (folder / "users").open("rb") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "ready").unlink()
            stop(folder, daemon)
            for name in ("data", "exec", "log", "pid", "sock"):
                with contextlib.suppress(NotADirectoryError):
                    shutil.rmtree(folder / name, ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.unlink(folder / name)
    except BaseException as problem:
        stop(folder, daemon)
        (folder / "failed").write_text(str(problem))
        raise


if __name__ == "__main__":
    if os.fork() == 0:  # nobody's child: whoever asked for us may end before we do
        os.setsid()
        main(Path(sys.argv[1]))

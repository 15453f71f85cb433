"""How soon a plain parent notices that a child died: `exit_baselines.py asyncio|polling CHILDREN DEATHS`.

Prints a JSON list of seconds. Run as a process of its own, because it is the parent that is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

SLEEPER = ("sleep", "120")  # ends by itself, whatever becomes of us
POLL_EVERY = 1.0
LOOKS = 4  # the deaths of a polled parent are spread over so many looks, at ten or so between two
PAUSE = (0.005, 0.04)
SEED = 4


async def by_asyncio(children: int, deaths: int) -> list[float]:
    """asyncio's own child watcher, as a program gets it that only awaits `process.wait()`."""
    chance = random.Random(SEED)
    idle = [await asyncio.create_subprocess_exec(*SLEEPER) for _ in range(children)]
    seconds = []
    try:
        for _ in range(deaths):
            process = await asyncio.create_subprocess_exec(*SLEEPER)
            waiting = asyncio.create_task(_moment_of_exit(process))
            await asyncio.sleep(chance.uniform(*PAUSE))
            began = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            seconds.append(await waiting - began)
    finally:
        for process in idle:
            process.kill()
        for process in idle:
            await process.wait()
    return seconds


async def _moment_of_exit(process: asyncio.subprocess.Process) -> float:
    await process.wait()
    return time.monotonic()


def by_polling(children: int, deaths: int) -> list[float]:
    """Every child is asked once a second, as many supervisors do."""
    idle = [subprocess.Popen(SLEEPER) for _ in range(children)]
    victims = [subprocess.Popen(SLEEPER) for _ in range(deaths)]
    doomed = tuple(victims)
    killed: dict[int, float] = {}
    looks = max(1, min(LOOKS, deaths // 10))

    def kill_at_random() -> None:
        chance = random.Random(SEED)
        for victim in doomed:
            time.sleep(chance.uniform(0, 2 * looks * POLL_EVERY / deaths))
            killed[victim.pid] = time.monotonic()
            victim.kill()

    killer = threading.Thread(target=kill_at_random)
    killer.start()
    seconds = []
    try:
        while victims:
            time.sleep(POLL_EVERY)
            for process in idle:
                process.poll()
            for victim in [each for each in victims if each.poll() is not None]:
                seconds.append(time.monotonic() - killed[victim.pid])
                victims.remove(victim)
    finally:
        killer.join()
        for process in idle:
            process.kill()
            process.wait()
    return seconds


if __name__ == "__main__":
    how, children, deaths = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found = asyncio.run(by_asyncio(children, deaths)) if how == "asyncio" else by_polling(children, deaths)
    print(json.dumps(found))

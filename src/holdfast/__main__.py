"""`python -m holdfast` and the `holdfast` command."""

from __future__ import annotations

import gc
import sys

from holdfast.base import low_memory

YOUNG_OBJECTS = 20_000  # new objects between two looks for garbage. Python's own 700 costs a short command 5 %


def main() -> None:
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    try:
        from holdfast.cli.main import prepare_process, run

        prepare_process()
        code = run(sys.argv[1:])
    except (MemoryError, RuntimeError, ImportError, SystemError) as error:  # on the way there, or while it was told
        if not low_memory.is_out_of_memory(error):
            raise
        code = low_memory.report_low_memory()
    sys.exit(code)


if __name__ == "__main__":
    main()

"""The crash matrix: every point × every hit × every fault, over scenarios of real work. Manual: docs/faults.md."""

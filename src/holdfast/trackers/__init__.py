"""Issue trackers, from which tasks may come in addition to `holdfast add`: the interface and its adapters.

Adapters run the tracker's command. They do not touch the store.
"""

"""Where tasks may come from besides `holdfast add`: outside trackers of issues."""

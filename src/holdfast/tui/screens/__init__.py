"""The screens of `top`, one module each, and a package for the screen of one task. They read through the feed only."""

"""The terminal UI, `holdfast top`. Only this package imports Textual, and it is imported only when `top` starts.

Screens read and act through `holdfast.api`. They open neither the store nor git themselves.
"""

"""Delivery of alerts to people: the interface of a target, a command of the user, and a webhook.

Targets run helper processes. They touch neither the store nor files.
"""

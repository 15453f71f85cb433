"""The terminal UI, `holdfast top`. Nothing else imports Textual, and nothing here is imported before it is wanted."""

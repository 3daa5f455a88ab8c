"""Whose time is it: counted calls own the time of what runs below them."""

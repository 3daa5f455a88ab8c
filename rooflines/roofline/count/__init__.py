"""The count of every call in a trace: one resolver fills in what another cannot know."""

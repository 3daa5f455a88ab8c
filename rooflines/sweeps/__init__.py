"""Many runs of ``profile`` or ``train``: points, each in its own process, here or on other machines; their
table and page."""

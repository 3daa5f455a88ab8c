"""A folder for PYTHONPATH: every interpreter imports ``sitecustomize`` from there when it starts."""

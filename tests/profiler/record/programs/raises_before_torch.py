"""An exception before torch is used, in a module that is imported."""

import json

json.loads("{")

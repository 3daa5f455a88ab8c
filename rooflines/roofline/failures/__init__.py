"""Why a training failed: its loss became infinite or NaN, grew, or stayed at chance."""

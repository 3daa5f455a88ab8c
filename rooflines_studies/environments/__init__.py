"""Networks by device on a roofline: the paper's tables and figures, its proxy of intensity, and what changes
in its verdicts."""

"""The roofline model: lower bounds, headroom and bound classes of operators."""

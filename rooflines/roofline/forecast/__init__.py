"""A step that was not run: its operators on another device, with what measured runs say of the bound that they reach."""

"""What runs inside of the program that is recorded, besides the passes."""

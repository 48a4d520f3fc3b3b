"""Sets up the exercises of docs/learn, runs and grades them."""

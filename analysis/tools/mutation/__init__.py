"""Breaks the code in small ways and asks whether a test fails."""

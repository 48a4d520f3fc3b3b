"""One kernel or one step as a sheet or a page: source, PTX, machine code, counts and times side by side."""

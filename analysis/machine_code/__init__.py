"""Readers of cubins, disassembly, PTX and ptxas logs: the build's products, read without a GPU."""

"""What cubins, listings, PTX and ptxas logs say: the build's products, read without a GPU."""

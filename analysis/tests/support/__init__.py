"""What several tests share: small compiled kernels, stand-ins for programs, copies of the checkout."""

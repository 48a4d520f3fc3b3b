"""A judge of submitted kernels: it records what a submission sends to the GPU and replays that on inputs of its own."""

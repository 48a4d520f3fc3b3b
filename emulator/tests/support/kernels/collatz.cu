/* Steps of the Collatz sequence: a loop that ends in a different iteration in every lane, with a branch inside. */
__global__ void collatz(const unsigned *starts, unsigned *steps, unsigned *largest) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long n = starts[i], top = n;
    unsigned count = 0;
    while (n != 1) {
        if (n % 2 == 0) {
            n /= 2;
        } else {
            n = 3 * n + 1;
            top = n > top ? n : top;
        }
        count++;
        if (count > 400) {
            break;
        }
    }
    steps[i] = count;
    largest[i] = (unsigned)(top % 1000003);
}

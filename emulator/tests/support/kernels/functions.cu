// What nvcc makes calls of: recursion, structs by value, virtual functions, a table of functions, and f64 functions of
// the CUDA library, whose rare cases are functions that are not inlined.

struct Pair {
    int a, b;
};

__device__ __noinline__ Pair fibonacci(int n) {
    if (n == 0) return {0, 1};
    Pair before = fibonacci(n - 1);
    return {before.b, before.a + before.b};
}

struct Shape {
    __device__ virtual int of(int x) const = 0;
};
struct Sum : Shape {
    int k;
    __device__ Sum(int k) : k(k) {}
    __device__ int of(int x) const override { return x + k; }
};
struct Product : Shape {
    int k;
    __device__ Product(int k) : k(k) {}
    __device__ int of(int x) const override { return x * k; }
};

typedef int step(int);
__device__ int square(int x) { return x * x; }
__device__ int negative(int x) { return -x; }
__device__ step *steps[2] = {square, negative};

__global__ void calls(int *out, int k) {
    int t = threadIdx.x;
    Sum sum(k);
    Product product(k + 1);
    const Shape *shape = t & 2 ? (const Shape *)&sum : (const Shape *)&product;
    out[t] = fibonacci(t % 13).a + shape->of(t) * 1000 + steps[(t + k) & 1](t) * 100000;
}

__global__ void doubles(const double *in, double *powers, double *sines) {
    int t = threadIdx.x;
    powers[t] = pow(fabs(in[t]), 0.7);
    sines[t] = sin(in[t]);
}

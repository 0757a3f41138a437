// Kernels with the signature of `sgemm`, right and wrong on purpose, to test the checker with. One thread per result.
#define SIGNATURE                                                                                                 \
  int rows, int columns, int depth, float alpha, const float *a, int lda, const float *b, int ldb, float beta, \
      float *c, int ldc

__device__ float product(const float* a, int lda, const float* b, int ldb, int row, int column, int from, int to) {
  float sum = 0.0f;
  for (int k = from; k < to; ++k) sum += a[(size_t)row * lda + k] * b[(size_t)k * ldb + column];
  return sum;
}

#define PLACE                                            \
  int column = blockIdx.x * blockDim.x + threadIdx.x;    \
  int row = blockIdx.y * blockDim.y + threadIdx.y;       \
  if (row >= rows || column >= columns) return;          \
  float* out = c + (size_t)row * ldc + column;           \
  float old = beta == 0.0f ? 0.0f : beta * *out

extern "C" __global__ void naive(SIGNATURE) {
  PLACE;
  *out = (alpha == 0.0f ? 0.0f : alpha * product(a, lda, b, ldb, row, column, 0, depth)) + old;
}

extern "C" __global__ void backwards(SIGNATURE) {
  PLACE;
  float sum = 0.0f;
  for (int k = depth - 1; k >= 0; --k) sum += a[(size_t)row * lda + k] * b[(size_t)k * ldb + column];
  *out = alpha * sum + old;
}

extern "C" __global__ void in_slices(SIGNATURE) {
  PLACE;
  float sum = 0.0f;
  int step = (depth + 15) / 16;
  for (int from = 0; from < depth; from += step) {
    sum += product(a, lda, b, ldb, row, column, from, min(depth, from + step));
  }
  *out = alpha * sum + old;
}

extern "C" __global__ void loses_a_slice(SIGNATURE) {
  PLACE;
  *out = alpha * product(a, lda, b, ldb, row, column, 0, depth - 8) + old;
}

extern "C" __global__ void all_nan(SIGNATURE) {
  PLACE;
  *out = __int_as_float(0x7fc00000) + old;
}

extern "C" __global__ void all_infinite(SIGNATURE) {
  PLACE;
  *out = __int_as_float(0x7f800000) + old;
}

extern "C" __global__ void reads_c(SIGNATURE) {
  PLACE;
  *out = alpha * product(a, lda, b, ldb, row, column, 0, depth) + beta * *out;
}

extern "C" __global__ void writes_past_the_end(SIGNATURE) {
  PLACE;
  *out = alpha * product(a, lda, b, ldb, row, column, 0, depth) + old;
  if (row == rows - 1 && column == columns - 1) c[(size_t)rows * ldc + 5] = 1.0f;
}

extern "C" __global__ void changes_an_input(SIGNATURE) {
  PLACE;
  *out = alpha * product(a, lda, b, ldb, row, column, 0, depth) + old;
  if (row == 2 && column == 3) const_cast<float*>(a)[lda + 1] = 1.0f;
}

extern "C" __global__ void illegal_address(SIGNATURE) {
  PLACE;
  *out = old;
  c[(1ll << 40) + row] = 1.0f;
}

__device__ void wait_ms(long long ms) {
  long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < ms * 1000000ll);
}

extern "C" __global__ void takes_ten_seconds(SIGNATURE) {
  wait_ms(10000);
  PLACE;
  *out = old;
}

extern "C" __global__ void takes_ten_milliseconds(SIGNATURE) {
  wait_ms(10);
  PLACE;
  *out = old;
}

extern "C" __global__ void __launch_bounds__(32) refuses_large_blocks(SIGNATURE) {
  PLACE;
  *out = alpha * product(a, lda, b, ldb, row, column, 0, depth) + old;
}

// Many live values per thread: about 160 registers unless the launch bounds forbid it.
template <int COUNT>
__device__ float many_registers(const float* a, int lda, const float* b, int ldb, int row, int column, int depth) {
  float sums[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = 0.0f;
  for (int k = 0; k + COUNT <= depth; k += COUNT) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      sums[i] = fmaf(a[(size_t)row * lda + k + i], b[(size_t)(k + i) * ldb + column], sums[i]);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sum += sums[i];
  return sum;
}

extern "C" __global__ void wide(SIGNATURE) {
  PLACE;
  *out = alpha * many_registers<128>(a, lda, b, ldb, row, column, depth) + old;
}

extern "C" __global__ void __launch_bounds__(512) wide_and_bounded(SIGNATURE) {
  PLACE;
  *out = alpha * many_registers<128>(a, lda, b, ldb, row, column, depth) + old;
}

// The name of an instance is lowered by the compiler.
template <int UNUSED>
__global__ void templated(SIGNATURE) {
  PLACE;
  *out = alpha * product(a, lda, b, ldb, row, column, 0, depth) + old;
}
template __global__ void templated<7>(SIGNATURE);

// What becomes of a sum on its way into C: alpha * sum + beta * C. C is read only where beta is not zero.
struct Epilogue {
  float* c;
  int ldc;
  float alpha, beta;

  // From now on rows and columns count from this element.
  __device__ __forceinline__ void move(long long row, long long column) { c += row * ldc + column; }

  // Writes the first `valid` of `Width` sums that lie side by side; `Width` is what the alignment of C allows.
  template <int Width>
  __device__ __forceinline__ void store(int row, int column, const float* sums, int valid) const {
    float* const to = c + static_cast<long long>(row) * ldc + column;
    float out[Width], old[Width];
#pragma unroll
    for (int i = 0; i < Width; ++i) old[i] = 0.0f;
    if (!kBetaZero) {
      if (beta != 0.0f) load_valid<Width>(old, to, valid);
    }
#pragma unroll
    for (int i = 0; i < Width; ++i) out[i] = kBetaZero ? alpha * sums[i] : alpha * sums[i] + beta * old[i];
    if (valid >= Width) {
      store_global<Width>(to, out);
    } else {
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        if (i < valid) to[i] = out[i];
      }
    }
  }
};

// How every step of the ladder writes a result. With beta zero C is not read, whatever it holds.
__device__ __forceinline__ float blend(float product, const float* c, float alpha, float beta) {
  return beta == 0.0f ? alpha * product : alpha * product + beta * *c;
}

// The number of tiles of `size` that cover `length`.
__device__ __forceinline__ unsigned tiles_of(int length, int size) { return length / size + (length % size != 0); }

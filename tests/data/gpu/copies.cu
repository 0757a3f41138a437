// Two copies of the same matrix with the same result: in order, and in pieces that lie far apart.
extern "C" __global__ void in_order(int count, const float* x, float* y) {
  const float4* from = reinterpret_cast<const float4*>(x);
  float4* to = reinterpret_cast<float4*>(y);
#pragma unroll 4
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count / 4; i += (long long)gridDim.x * blockDim.x) {
    to[i] = from[i];
  }
}

// Neighbouring lanes are 8 KiB apart, so that every sector is fetched for 4 of its 32 bytes.
extern "C" __global__ void scattered(int count, const float* x, float* y) {
  int rows = count / 2048;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
    long long j = (i % rows) * 2048 + i / rows;
    y[j] = x[j];
  }
}

// What becomes of a sum on its way into C: alpha * sum + beta * C. C is read only where beta is not zero.
{% if ACTIVATION == "gelu" %}
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
{% endif %}
{% if ACTIVATION != "none" or EPILOGUE != "x" %}
__device__ __forceinline__ float finished(float x) {
{% if ACTIVATION == "relu" %}
  x = x < 0.0f ? 0.0f : x;  // which lets NaN through
{% elif ACTIVATION == "gelu" %}
  x = gelu(x);
{% endif %}
  return {{ EPILOGUE }};
}
{% endif %}
struct Epilogue {
  float* c;
  int ldc;
  float alpha, beta;
{% if BIAS == "row" %}
  const float* bias;  // one value for each column of C
{% elif BIAS == "column" %}
  const float* bias;  // one value for each row of C
{% endif %}

  // From now on rows and columns count from this element.
  __device__ __forceinline__ void move(long long row, long long column) {
    c += row * ldc + column;
{% if BIAS == "row" %}
    bias += column;
{% elif BIAS == "column" %}
    bias += row;
{% endif %}
  }

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
{% if BIAS == "row" %}
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      if (i < valid) out[i] += __ldg(bias + column + i);
    }
{% elif BIAS == "column" %}
    const float shift = __ldg(bias + row);
#pragma unroll
    for (int i = 0; i < Width; ++i) out[i] += shift;
{% endif %}
{% if ACTIVATION != "none" or EPILOGUE != "x" %}
#pragma unroll
    for (int i = 0; i < Width; ++i) out[i] = finished(out[i]);
{% endif %}
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

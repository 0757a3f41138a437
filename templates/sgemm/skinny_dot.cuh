// The streamed operand is contiguous along the depth. Lanes that read it side by side get depths of one row, but each
// computes with rows of its own: the warp exchanges them through shared memory, as [kTileWide][kStep]. The vectors of a
// row lie permuted, so that neither the eight lanes that write 32 words nor the eight that read a depth of their rows meet
// in a bank.
constexpr bool kStreamedAlongDepth = true;
constexpr int kRuns = kStep / 4;                 // vectors of a row in a step
constexpr int kPassRows = 32 / kRuns;            // rows that the lanes fetch at once
constexpr int kPasses = kTileWide / kPassRows;
constexpr int kCopy = kLoadStreamed;
constexpr int kStreamedStage = kTileWide * kStep;
constexpr int kWarpStage = kStreamedStage + kStep * kSmall;

// Where the vector of a row lies; adding 32 / kRuns * 2 rows changes nothing.
__device__ __forceinline__ int permuted(int vector, int row) { return vector ^ row * kRuns / 8 % kRuns; }

struct StreamedLoader {
  const float* from;  // the lane's first element in the next step to fetch
  long long pitch;
  int depth_left, wide_left;
{% if LOAD == "cpasync" %}
  SharedAddress to[2];  // in even and in odd passes
{% else %}
  float* to[2];
  float held[kPasses][4];
{% endif %}

  __device__ __forceinline__ void begin(const float* streamed, int pitch_, float* warp_shared, int lane, int first, int depth, int left) {
    const int row = lane / kRuns, run = lane % kRuns, k = run * 4;
    pitch = pitch_;
    from = streamed + row * pitch + first + k;
    depth_left = depth - first - k, wide_left = left - row;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      float* const place = warp_shared + row * kStep + permuted(run, row + odd * kPassRows) * 4;
{% if LOAD == "cpasync" %}
      to[odd] = shared_address(place);
{% else %}
      to[odd] = place;
{% endif %}
    }
  }
  __device__ __forceinline__ int valid(int pass, int k, int width) const {
    return !kGuard || pass * kPassRows < wide_left ? clamp(depth_left - k, width) : 0;
  }
{% if LOAD == "cpasync" %}
  __device__ __forceinline__ void fetch(int stage) {
    const float* row = from;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int k = 0; k < 4; k += kCopy) {
        copy_async<kCopy>(to[pass % 2], stage * kWarpStage + pass * kPassRows * kStep + k, row + k, valid(pass, k, kCopy));
      }
      row += kPassRows * pitch;
    }
    from += kWarps * kStep;
    depth_left -= kWarps * kStep;
  }
{% else %}
  __device__ __forceinline__ void fetch(bool more = true) {
    const float* row = from;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int k = 0; k < 4; k += kCopy) {
        zero<kCopy>(held[pass] + k);
        load_streamed<kCopy>(held[pass] + k, row + k, more ? valid(pass, k, kCopy) : 0);
      }
      row += kPassRows * pitch;
    }
    from += kWarps * kStep;
    depth_left -= kWarps * kStep;
  }
  __device__ __forceinline__ void store(int stage) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      Vector<4>::store(to[pass % 2] + stage * kWarpStage + pass * kPassRows * kStep, held[pass]);
    }
  }
{% endif %}
  // Four depths of a stage, for the lane's rows.
  __device__ __forceinline__ void read(float (&values)[4][kWide], const float* stage, int lane, int k) const {
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      float row[4];
      Vector<4>::load(row, stage + (w * 32 + lane) * kStep + permuted(k / 4, lane) * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j][w] = row[j];
    }
  }
};

__device__ __forceinline__ void save_sums(float* tile, const float (&sums)[kSmall][kWide], int lane) {
#pragma unroll
  for (int s = 0; s < kSmall; ++s) {
#pragma unroll
    for (int w = 0; w < kWide; ++w) tile[s * kTileWide + w * 32 + lane] = sums[s][w];
  }
}

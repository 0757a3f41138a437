// The streamed operand is contiguous along the long side: a lane reads what it computes with, kVector neighbours at a time.
constexpr bool kStreamedAlongDepth = false;
constexpr int kGroups = kWide / kVector;  // vectors of a lane at one depth
constexpr int kCopy = kLoadStreamed < kVector ? kLoadStreamed : kVector;
{% if LOAD == "cpasync" %}
constexpr int kStreamedStage = kStep * kTileWide;
{% else %}
constexpr int kStreamedStage = 0;  // stays in registers
{% endif %}
constexpr int kWarpStage = kStreamedStage + kStep * kSmall;

struct StreamedLoader {
  const float* from;  // the lane's first element of the next depth to fetch
  long long pitch, to_next;
  int depth_left, wide_left;
{% if LOAD == "cpasync" %}
  SharedAddress to;
{% else %}
  float held[kStep][kWide], now[kStep][kWide];  // of the next step and of the present one
{% endif %}

  __device__ __forceinline__ void begin(const float* streamed, int pitch_, float* warp_shared, int lane, int first, int depth, int left) {
    pitch = pitch_;
    from = streamed + first * pitch + lane * kVector;
    to_next = (kWarps - 1) * kStep * pitch;
    depth_left = depth - first, wide_left = left - lane * kVector;
{% if LOAD == "cpasync" %}
    to = shared_address(warp_shared + lane * kVector);
{% endif %}
  }
  __device__ __forceinline__ int valid(int k, int w, int width) const {
    return !kGuard || k < depth_left ? clamp(wide_left - w, width) : 0;
  }
{% if LOAD == "cpasync" %}
  __device__ __forceinline__ void fetch(int stage) {
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int j = 0; j < kVector; j += kCopy) {
          const int w = g * 32 * kVector + j;
          copy_async<kCopy>(to, stage * kWarpStage + k * kTileWide + w, from + w, valid(k, w, kCopy));
        }
      }
      from += pitch;
    }
    from += to_next;
    depth_left -= kWarps * kStep;
  }
  // Four depths of a stage.
  __device__ __forceinline__ void read(float (&values)[4][kWide], const float* stage, int lane, int k) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        Vector<kVector>::load(values[j] + g * kVector, stage + (k + j) * kTileWide + (g * 32 + lane) * kVector);
      }
    }
  }
{% else %}
  __device__ __forceinline__ void fetch(bool more = true) {
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int j = 0; j < kVector; j += kCopy) {
          const int w = g * 32 * kVector + j;
          zero<kCopy>(held[k] + g * kVector + j);
          load_streamed<kCopy>(held[k] + g * kVector + j, from + w, more ? valid(k, w, kCopy) : 0);
        }
      }
      from += pitch;
    }
    from += to_next;
    depth_left -= kWarps * kStep;
  }
  __device__ __forceinline__ void store(int) {
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
#pragma unroll
      for (int w = 0; w < kWide; ++w) now[k][w] = held[k][w];
    }
  }
  __device__ __forceinline__ void read(float (&values)[4][kWide], const float*, int, int k) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int w = 0; w < kWide; ++w) values[j][w] = now[k + j][w];
    }
  }
{% endif %}
};

__device__ __forceinline__ void save_sums(float* tile, const float (&sums)[kSmall][kWide], int lane) {
#pragma unroll
  for (int s = 0; s < kSmall; ++s) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) Vector<kVector>::store(tile + s * kTileWide + (g * 32 + lane) * kVector, sums[s] + g * kVector);
  }
}

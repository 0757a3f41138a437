// A product with one long and one short side, limited by the memory that its larger operand takes. The kernel sees it as
// wide^T x small: the `streamed` operand (depth x wide) is read once from memory, the `small` one again for each tile.
// With few rows of C, B is streamed; with few columns A is, which is the same product transposed.
//
// A warp owns a tile of 32 * kWide x kSmall results in the registers of its lanes and walks down the depth in steps; the
// warps of a block, and several blocks, take turns at the steps of one tile. No warp waits for another before the end, when
// their sums meet in shared memory.
constexpr bool kFewRows = {{ KIND == "rows" }};  // else few columns
constexpr int kSmall = {{ SMALL }};              // of the short side, computed at once
constexpr int kWide = {{ WIDE }};                // of the long side, per lane
constexpr int kWarps = {{ WARPS }};
constexpr int kStep = {{ UNROLL }};              // depth of a step
constexpr int kLoadStreamed = {{ LOAD_B if KIND == "rows" else LOAD_A }};  // elements at a time: what the alignment allows
constexpr int kStoreC = {{ STORE_C }};
constexpr bool kGuard = {{ GUARD }};             // false: the sizes are multiples of tile and step
constexpr bool kSmallAlongDepth = {{ not TRANS_A if KIND == "rows" else TRANS_B }};  // in memory; else along the short side

constexpr int kThreads = 32 * kWarps;
constexpr int kTileWide = 32 * kWide;
constexpr int kTile = kSmall * kTileWide;
constexpr int kVector = kWide < 4 ? kWide : 4;  // results of a lane that lie side by side, where it can choose

{% include "lib/shared.cuh" %}

{% if LOAD == "cpasync" %}
{% include "lib/async_copy.cuh" %}

constexpr int kStages = {{ STAGES }};  // steps in shared memory at once
{% else %}
{% include "lib/streamed.cuh" %}

constexpr int kStages = 2;  // one to write while slower lanes still read the other
{% endif %}
{% if STREAM > 0 %}
{% include "lib/accumulate.cuh" %}

{% endif %}
{% if CLUSTER > 1 %}
{% include "lib/cluster.cuh" %}

{% endif %}
// How many of `width` elements are there, of `left` that remain.
__device__ __forceinline__ int clamp(int left, int width) {
  if (!kGuard) return width;
  if (width == 1) return left > 0 ? 1 : 0;
  return left < 0 ? 0 : left < width ? left : width;
}

template <int Width>
__device__ __forceinline__ void zero(float* values) {
  if (!kGuard) return;  // then all are loaded
#pragma unroll
  for (int i = 0; i < Width; ++i) values[i] = 0.0f;
}

{% if (TRANS_B if KIND == "rows" else not TRANS_A) %}
{% include "sgemm/skinny_dot.cuh" %}
{% else %}
{% include "sgemm/skinny_stream.cuh" %}
{% endif %}

// Brings a warp's part of the small operand to shared memory, as [kStep][kSmall].
struct SmallLoader {
  static constexpr int kCount = (kStep * kSmall + 31) / 32;  // elements of a lane
  static constexpr int kRun = kSmallAlongDepth ? kStep : kSmall;  // elements that follow each other in memory
  static constexpr int kPass = 32 / kRun;  // runs that the lanes take at once
  const float* from;
  long long pass, next_step;
  int k, s, depth_left, small_left;
{% if LOAD == "cpasync" %}
  SharedAddress to;
{% else %}
  float* to;
  float held[kCount];
{% endif %}

  __device__ __forceinline__ void begin(const float* small, int pitch, float* warp_shared, int lane, int first, int depth, int left) {
    k = kSmallAlongDepth ? lane % kRun : lane / kRun;
    s = kSmallAlongDepth ? lane / kRun : lane % kRun;
    const long long pitch_k = kSmallAlongDepth ? 1 : pitch, pitch_s = kSmallAlongDepth ? pitch : 1;
    from = small + (first + k) * pitch_k + s * pitch_s;
    pass = static_cast<long long>(kPass) * pitch;
    next_step = kWarps * kStep * pitch_k;
    depth_left = depth - first - k, small_left = left - s;
{% if LOAD == "cpasync" %}
    to = shared_address(warp_shared + k * kSmall + s);
{% else %}
    to = warp_shared + k * kSmall + s;
{% endif %}
  }
  // Whether the lane has an i-th element, and whether that lies in the matrix.
  __device__ __forceinline__ bool has(int i) const {
    return kStep * kSmall % 32 == 0 || k * (kSmallAlongDepth ? 1 : kSmall) + s * (kSmallAlongDepth ? kStep : 1) + 32 * i < kStep * kSmall;
  }
  __device__ __forceinline__ int valid(int i) const {
    if (!kGuard) return 1;
    return (kSmallAlongDepth ? 0 : i * kPass) < depth_left && (kSmallAlongDepth ? i * kPass : 0) < small_left;
  }
  static __device__ __forceinline__ int target(int i) { return i * kPass * (kSmallAlongDepth ? 1 : kSmall); }

  __device__ __forceinline__ void fetch(int stage, bool more = true) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
{% if LOAD == "cpasync" %}
      if (has(i)) copy_async<1>(to, stage * kWarpStage + target(i), from + i * pass, valid(i));
{% else %}
      held[i] = more && has(i) && valid(i) ? from[i * pass] : 0.0f;
{% endif %}
    }
    from += next_step;
    depth_left -= kWarps * kStep;
  }
{% if LOAD != "cpasync" %}
  __device__ __forceinline__ void store(int stage) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (has(i)) to[stage * kWarpStage + target(i)] = held[i];
    }
  }
{% endif %}
};

// The small operand's kSmall values at depth k of a step, of which the first kSmall % 4 of `held` may stem from before.
__device__ __forceinline__ void load_small(float* to, const float* stage, int k) {
  constexpr int kValues = kSmall < 4 ? 4 : kSmall;
  if (k % (kValues / kSmall) == 0) {
#pragma unroll
    for (int s = 0; s < kValues; s += 4) Vector<4>::load(to + s, stage + k * kSmall + s);
  }
}

// Multiplies four depths of a step into the sums.
__device__ __forceinline__ void multiply_add(float (&sums)[kSmall][kWide], const float (&streamed)[4][kWide], const float* stage, int k) {
  float small[kSmall < 4 ? 4 : kSmall];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    load_small(small, stage, k + j);
    const float* const now = small + (kSmall < 4 ? j * kSmall % 4 : 0);
#pragma unroll
    for (int s = 0; s < kSmall; ++s) {
#pragma unroll
      for (int step = 0; step < kWide; ++step) {
        const int w = s % 2 == 1 ? kWide - 1 - step : step;  // turning back keeps an operand in the register cache
        sums[s][w] += now[s] * streamed[j][w];
      }
    }
  }
}

// Results that are stored together: neighbours in a row of C.
constexpr int kItem = kFewRows ? 4 : kSmall < 4 ? kSmall : 4;
constexpr int kItems = kTile / kItem;

struct Item {
  int s, w;  // of its first result

  __device__ __forceinline__ explicit Item(int index) {
    s = kFewRows ? index / (kTileWide / kItem) : index / kTileWide * kItem;
    w = kFewRows ? index % (kTileWide / kItem) * kItem : index % kTileWide;
  }
  __device__ __forceinline__ void load(float* to, const float* tile) const {
    if (kFewRows) {
      Vector<kItem>::load(to, tile + s * kTileWide + w);
    } else {
#pragma unroll
      for (int j = 0; j < kItem; ++j) to[j] = tile[(s + j) * kTileWide + w];
    }
  }
  __device__ __forceinline__ void save(float* tile, const float* from) const {
    if (kFewRows) {
      Vector<kItem>::store(tile + s * kTileWide + w, from);
    } else {
#pragma unroll
      for (int j = 0; j < kItem; ++j) tile[(s + j) * kTileWide + w] = from[j];
    }
  }
  __device__ __forceinline__ void finish(const Epilogue& epilogue, const float* sums, int small_left, int wide_left) const {
    const int row = kFewRows ? s : w, column = kFewRows ? w : s;
    if (kGuard && row >= (kFewRows ? small_left : wide_left)) return;
    const int left = kFewRows ? wide_left : small_left;
#pragma unroll
    for (int j = 0; j < kItem; j += kStoreC) epilogue.store<kStoreC>(row, column + j, sums + j, kGuard ? left - column - j : kStoreC);
  }
};

__device__ __forceinline__ void multiply(int rows, int columns, int depth, const float* __restrict__ a, int lda,
                                         const float* __restrict__ b, int ldb, Epilogue epilogue, float* workspace) {
  const unsigned small_size = kFewRows ? rows : columns, wide_size = kFewRows ? columns : rows;
  const unsigned tiles_small = small_size / kSmall + (small_size % kSmall != 0);
{% if STREAM > 0 %}
  const unsigned tiles = tiles_small * (wide_size / kTileWide + (wide_size % kTileWide != 0));
  const unsigned slices = gridDim.x / tiles;  // blocks that share a tile, each with its part of the depth
{% else %}
  constexpr unsigned slices = {{ CLUSTER }};  // blocks that share a tile, each with its part of the depth
{% endif %}
  const unsigned slice = blockIdx.x % slices, tile = blockIdx.x / slices;
  const long long small_first = static_cast<long long>(tile % tiles_small) * kSmall;
  const long long wide_first = static_cast<long long>(tile / tiles_small) * kTileWide;
  const int small_left = static_cast<int>(small_size - small_first), wide_left = static_cast<int>(wide_size - wide_first);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* const shared = dynamic_shared();
  float* const warp_shared = shared + warp * kStages * kWarpStage;
  float* const small_shared = warp_shared + kStreamedStage;

  // This block's steps, and of them the warp's; with alpha zero A and B are not read, whatever they hold.
  const int steps = epilogue.alpha == 0.0f ? 0 : depth / kStep + (depth % kStep != 0);
  const int slice_steps = steps / static_cast<int>(slices), longer = steps % static_cast<int>(slices), rank = static_cast<int>(slice);
  const int first = rank * slice_steps + (rank < longer ? rank : longer) + warp;
  const int behind = slice_steps + (rank < longer) - warp;
  const int count = behind > 0 ? (behind + kWarps - 1) / kWarps : 0;

  float sums[kSmall][kWide];
#pragma unroll
  for (int s = 0; s < kSmall; ++s) {
#pragma unroll
    for (int w = 0; w < kWide; ++w) sums[s][w] = 0.0f;
  }

  if (count > 0) {
    const float* const streamed = kFewRows ? b : a;
    const float* const small = kFewRows ? a : b;
    const int streamed_pitch = kFewRows ? ldb : lda, small_pitch = kFewRows ? lda : ldb;
    StreamedLoader wide_loader;
    SmallLoader small_loader;
    wide_loader.begin(streamed + wide_first * (kStreamedAlongDepth ? streamed_pitch : 1), streamed_pitch, warp_shared, lane,
                      first * kStep, depth, wide_left);
    small_loader.begin(small + small_first * (kSmallAlongDepth ? small_pitch : 1), small_pitch, small_shared, lane,
                       first * kStep, depth, small_left);
{% if LOAD == "cpasync" %}
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (stage < count) wide_loader.fetch(stage), small_loader.fetch(stage);
      commit_copies();
    }
    int stage = 0, filled = kStages - 1;
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      wait_copies<kStages - 2>();
      __syncwarp();  // the lanes have each other's copies, and are done with the stage that is filled next
      if (step + kStages - 1 < count) wide_loader.fetch(filled), small_loader.fetch(filled);
      commit_copies();  // also where it is empty: the count of groups has to go on
#pragma unroll
      for (int k = 0; k < kStep; k += 4) {
        float values[4][kWide];
        wide_loader.read(values, warp_shared + stage * kWarpStage, lane, k);
        multiply_add(sums, values, small_shared + stage * kWarpStage, k);
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
      filled = filled + 1 == kStages ? 0 : filled + 1;
    }
    wait_copies<0>();
{% else %}
    wide_loader.fetch(), small_loader.fetch(0);
    int stage = 0;
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      wide_loader.store(stage), small_loader.store(stage);
      __syncwarp();  // the lanes have each other's values, and are done with the stage that is written next
      wide_loader.fetch(step + 1 < count), small_loader.fetch(stage, step + 1 < count);
#pragma unroll
      for (int k = 0; k < kStep; k += 4) {
        float values[4][kWide];
        wide_loader.read(values, warp_shared + stage * kWarpStage, lane, k);
        multiply_add(sums, values, small_shared + stage * kWarpStage, k);
      }
      stage ^= 1;
    }
{% endif %}
  }
  if (steps == 0) epilogue.alpha = 0.0f;  // the sum is empty, even where alpha is infinite

  // The sums of all warps meet in shared memory, in the place of the stages.
  __syncthreads();
  save_sums(shared + warp * kTile, sums, lane);
  __syncthreads();
  epilogue.move(kFewRows ? small_first : wide_first, kFewRows ? wide_first : small_first);
#pragma unroll 1
  for (int index = threadIdx.x; index < kItems; index += kThreads) {
    const Item item(index);
    float total[kItem];
    item.load(total, shared);
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      float part[kItem];
      item.load(part, shared + w * kTile);
#pragma unroll
      for (int j = 0; j < kItem; ++j) total[j] += part[j];
    }
{% if STREAM > 0 %}
    add_global<kItem>(workspace + static_cast<long long>(tile) * kTile + index * kItem, total);
{% elif CLUSTER > 1 %}
    item.save(shared, total);
{% else %}
    item.finish(epilogue, total, small_left, wide_left);
{% endif %}
  }
{% if STREAM > 0 %}

  // The last block to arrive has everybody's sums.
  unsigned* const counters = reinterpret_cast<unsigned*>(workspace + static_cast<long long>(tiles) * kTile);
  if (!last_to_arrive(counters + tile, slices, shared)) return;
#pragma unroll 1
  for (int index = threadIdx.x; index < kItems; index += kThreads) {
    float total[kItem];
#pragma unroll
    for (int j = 0; j < kItem; ++j) total[j] = 0.0f;
    take_global<kItem>(total, workspace + static_cast<long long>(tile) * kTile + index * kItem);
    Item(index).finish(epilogue, total, small_left, wide_left);
  }
{% elif CLUSTER > 1 %}

  // Each block of the cluster adds up its share of the results, always in the same order.
  cluster_wait();
#pragma unroll 1
  for (int index = slice * kThreads + threadIdx.x; index < kItems; index += slices * kThreads) {
    const Item item(index);
    float total[kItem];
#pragma unroll
    for (int j = 0; j < kItem; ++j) total[j] = 0.0f;
#pragma unroll
    for (unsigned block = 0; block < slices; ++block) {
#pragma unroll
      for (int j = 0; j < kItem; ++j) {
        total[j] += load_cluster(shared + (kFewRows ? item.s * kTileWide + item.w + j : (item.s + j) * kTileWide + item.w), block);
      }
    }
    item.finish(epilogue, total, small_left, wide_left);
  }
  cluster_wait();  // nobody leaves while others still read its shared memory
{% endif %}
}

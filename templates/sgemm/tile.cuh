// A block computes a tile of C; its warps, and within them the lanes, own sub-tiles of it in registers. Tiles of A (stored
// transposed, so that a thread's rows lie side by side) and of B pass through a ring of stages in shared memory.
constexpr int kBlockM = {{ BM }}, kBlockN = {{ BN }}, kBlockK = {{ BK }};
constexpr int kWarpM = {{ WM }}, kWarpN = {{ WN }};
constexpr int kThreadM = {{ TM }}, kThreadN = {{ TN }};    // results of a thread in all
constexpr int kVectorM = {{ VM }}, kVectorN = {{ VN }};    // of them, how many side by side
constexpr int kLanesM = {{ lanes_m }}, kLanesN = {{ lanes_n }};
constexpr int kThreads = {{ threads }};
constexpr int kStages = {{ STAGES }};
constexpr int kRunA = {{ VA }}, kRunB = {{ VB }};          // consecutive elements that a thread fetches
{% if LOAD != "cpasync" %}
constexpr int kLoadA = {{ LOAD_A }};                       // at how many a time: what the alignment allows
{% endif %}
constexpr int kLoadB = {{ LOAD_B }};
constexpr int kStoreC = {{ STORE_C }};
constexpr int kPitchA = {{ BM }} + {{ PAD_A }}, kPitchB = {{ BN }} + {{ PAD_B }};
constexpr int kGroupM = {{ GROUP_M }};
constexpr bool kDoubleFragments = {{ REGDB }};
constexpr bool kSerpentine = {{ ORDER == "serpentine" }};
constexpr bool kGuard = {{ GUARD }};         // false: the sizes are multiples of the tile

constexpr int kStageA = kBlockK * kPitchA, kStageB = kBlockK * kPitchB;
constexpr int kGroupsM = kThreadM / kVectorM, kGroupsN = kThreadN / kVectorN;

{% include "lib/shared.cuh" %}

{% include "lib/tile_runs.cuh" %}

{% if LOAD == "cpasync" %}
{% include "lib/async_copy.cuh" %}

{% endif %}
typedef TileRuns<kBlockM, kBlockK / kRunA, kThreads> RunsA;
typedef TileRuns<kBlockK, kBlockN / kRunB, kThreads> RunsB;

// Fetches one tile after another for one thread.
struct TileLoader {
  const float* a;  // this thread's next run
  const float* b;
  long long lda, ldb;
  long long offsets_a[RunsA::count], offsets_b[RunsB::count];  // of the runs, where the walk is not straight
  int rows_a, depth_a, depth_b, columns_b;  // how much of the matrices lies beyond the thread's first element
  int thread, stage;
{% if LOAD == "cpasync" %}
  SharedAddress to_a, to_b;  // the thread's first elements in the stage to fill
{% else %}
  float* to_a;  // the thread's first elements in the stage to fill
  float* to_b;
  float held_a[RunsA::count][kRunA], held_b[RunsB::count][kRunB];
{% endif %}

  __device__ __forceinline__ void begin(const float* a_tile, int lda_, const float* b_tile, int ldb_, float* shared, int rows,
                                        int columns, int depth) {
    thread = threadIdx.x, stage = 0;
    lda = lda_, ldb = ldb_;
    const int row_a = RunsA::first_row(thread), k_a = RunsA::first_run(thread) * kRunA;
    const int k_b = RunsB::first_row(thread), column_b = RunsB::first_run(thread) * kRunB;
    a = a_tile + row_a * lda + k_a, b = b_tile + k_b * ldb + column_b;
    rows_a = rows - row_a, depth_a = depth - k_a, depth_b = depth - k_b, columns_b = columns - column_b;
{% if LOAD == "cpasync" %}
    to_a = shared_address(shared + k_a * kPitchA + row_a);
    to_b = shared_address(shared + kStages * kStageA + k_b * kPitchB + column_b);
{% else %}
    to_a = shared + k_a * kPitchA + row_a;
    to_b = shared + kStages * kStageA + k_b * kPitchB + column_b;
{% endif %}
#pragma unroll
    for (int i = 0; i < RunsA::count; ++i) {
      offsets_a[i] = RunsA::straight ? 0 : RunsA::row(thread, i) * lda + RunsA::run(thread, i) * kRunA;
    }
#pragma unroll
    for (int i = 0; i < RunsB::count; ++i) {
      offsets_b[i] = RunsB::straight ? 0 : RunsB::row(thread, i) * ldb + RunsB::run(thread, i) * kRunB;
    }
  }

  // Where the i-th run lies in global memory. Runs are visited in order, and `step_*` follows each.
  __device__ __forceinline__ const float* run_a(int i) const {
    return a + (RunsA::straight ? RunsA::run(thread, i) * kRunA : offsets_a[i]);
  }
  __device__ __forceinline__ const float* run_b(int i) const {
    return b + (RunsB::straight ? RunsB::run(thread, i) * kRunB : offsets_b[i]);
  }
  __device__ __forceinline__ void step_a(int i) {
    if (RunsA::straight && i % RunsA::passes_per_row == RunsA::passes_per_row - 1) a += RunsA::rows_per_step * lda;
    if (i == RunsA::count - 1) a += kBlockK - (RunsA::straight ? RunsA::count / RunsA::passes_per_row * RunsA::rows_per_step : 0) * lda;
  }
  __device__ __forceinline__ void step_b(int i) {
    if (RunsB::straight && i % RunsB::passes_per_row == RunsB::passes_per_row - 1) b += RunsB::rows_per_step * ldb;
    if (i == RunsB::count - 1) b += (kBlockK - (RunsB::straight ? RunsB::count / RunsB::passes_per_row * RunsB::rows_per_step : 0)) * ldb;
  }

  // How many of the `width` elements from element `skip` of a run on lie in the matrix.
  __device__ __forceinline__ int valid_a(int i, int skip, int width) const {
    if (!kGuard) return width;
    return RunsA::row(thread, i) < rows_a ? clamp(depth_a - RunsA::run(thread, i) * kRunA - skip, width) : 0;
  }
  __device__ __forceinline__ int valid_b(int i, int skip, int width) const {
    if (!kGuard) return width;
    return RunsB::row(thread, i) < depth_b ? clamp(columns_b - RunsB::run(thread, i) * kRunB - skip, width) : 0;
  }
  static __device__ __forceinline__ int clamp(int valid, int width) {
    if (width == 1) return valid > 0 ? 1 : 0;
    return valid < 0 ? 0 : valid < width ? valid : width;
  }

  // Where a run goes, from the thread's first element in the stage on.
  __device__ __forceinline__ int target_a(int i) const {
    return RunsA::run(thread, i) * kRunA * kPitchA + RunsA::row(thread, i);
  }
  __device__ __forceinline__ int target_b(int i) const {
    return RunsB::row(thread, i) * kPitchB + RunsB::run(thread, i) * kRunB;
  }

  // A tile is fetched run by run, in order, so that the runs can be spread over the steps of the computation.
  static constexpr int kFetches = RunsA::count + RunsB::count;

  __device__ __forceinline__ void fetch(int index) {
    if (index < RunsA::count) {
      if (RunsA::inside(thread, index)) fetch_a(index);
      step_a(index);
    } else {
      if (RunsB::inside(thread, index - RunsA::count)) fetch_b(index - RunsA::count);
      step_b(index - RunsA::count);
    }
  }

{% if LOAD == "cpasync" %}
  __device__ __forceinline__ void fetch_a(int i) {
#pragma unroll
    for (int j = 0; j < kRunA; ++j) {  // four bytes at a time, since A lands transposed
      copy_async<1>(to_a, target_a(i) + j * kPitchA, run_a(i) + j, valid_a(i, j, 1));
    }
  }
  __device__ __forceinline__ void fetch_b(int i) {
#pragma unroll
    for (int j = 0; j < kRunB; j += kLoadB) {
      copy_async<kLoadB>(to_b, target_b(i) + j, run_b(i) + j, valid_b(i, j, kLoadB));
    }
  }

  __device__ __forceinline__ void store() {}
{% else %}
  __device__ __forceinline__ void fetch_a(int i) {
#pragma unroll
    for (int j = 0; j < kRunA; j += kLoadA) {
      load_valid<kLoadA>(held_a[i] + j, run_a(i) + j, valid_a(i, j, kLoadA));
    }
  }
  __device__ __forceinline__ void fetch_b(int i) {
#pragma unroll
    for (int j = 0; j < kRunB; j += kLoadB) {
      load_valid<kLoadB>(held_b[i] + j, run_b(i) + j, valid_b(i, j, kLoadB));
    }
  }

  // Puts what `fetch` brought into registers into the stage.
  __device__ __forceinline__ void store() {
#pragma unroll
    for (int i = 0; i < RunsA::count; ++i) {
      if (RunsA::inside(thread, i)) {
#pragma unroll
        for (int j = 0; j < kRunA; ++j) to_a[target_a(i) + j * kPitchA] = held_a[i][j];
      }
    }
#pragma unroll
    for (int i = 0; i < RunsB::count; ++i) {
      if (RunsB::inside(thread, i)) Vector<kRunB>::store(to_b + target_b(i), held_b[i]);
    }
  }
{% endif %}

  __device__ __forceinline__ void next_tile() {
    depth_a -= kBlockK, depth_b -= kBlockK;
    const bool wraps = stage == kStages - 1;
    stage = wraps ? 0 : stage + 1;
{% if LOAD == "cpasync" %}
    to_a = advanced(to_a, wraps ? -(kStages - 1) * kStageA : kStageA);
    to_b = advanced(to_b, wraps ? -(kStages - 1) * kStageB : kStageB);
{% else %}
    to_a += wraps ? -(kStages - 1) * kStageA : kStageA;
    to_b += wraps ? -(kStages - 1) * kStageB : kStageB;
{% endif %}
  }
};

// Reads a thread's fragments of column `k` of the stage.
__device__ __forceinline__ void load_fragments(float* a, float* b, const float* stage_a, const float* stage_b, int k) {
#pragma unroll
  for (int g = 0; g < kGroupsM; ++g) {
    Vector<kVectorM>::load(a + g * kVectorM, stage_a + k * kPitchA + g * kLanesM * kVectorM);
  }
#pragma unroll
  for (int g = 0; g < kGroupsN; ++g) {
    Vector<kVectorN>::load(b + g * kVectorN, stage_b + k * kPitchB + g * kLanesN * kVectorN);
  }
}

__device__ __forceinline__ void multiply_add(float (&sums)[kThreadM][kThreadN], const float* a, const float* b) {
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
    for (int step = 0; step < kThreadN; ++step) {
      // Turning back at the end of each row keeps an operand in the register cache.
      const int n = kSerpentine && m % 2 == 1 ? kThreadN - 1 - step : step;
      sums[m][n] += a[m] * b[n];
    }
  }
}

// The block's share of the product.
__device__ __forceinline__ void multiply(int rows, int columns, int depth, const float* __restrict__ a, int lda,
                                         const float* __restrict__ b, int ldb, Epilogue epilogue, float* workspace) {
  // Blocks walk down kGroupM rows of tiles before they move on to the next column, so that the L2 serves both operands.
  const unsigned tiles_m = rows / kBlockM + (rows % kBlockM != 0), tiles_n = columns / kBlockN + (columns % kBlockN != 0);
  const unsigned group = blockIdx.x / (kGroupM * tiles_n), in_group = blockIdx.x % (kGroupM * tiles_n);
  const unsigned height = tiles_m - group * kGroupM < kGroupM ? tiles_m - group * kGroupM : kGroupM;
  const long long row = static_cast<long long>(group * kGroupM + in_group % height) * kBlockM;
  const long long column = static_cast<long long>(in_group / height) * kBlockN;
  const int rows_left = static_cast<int>(rows - row), columns_left = static_cast<int>(columns - column);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
{% if LANES == "z" %}
  // Two rows of lanes interleaved: each half of a warp reads few enough distinct words for one wavefront.
  const int lane_m = lane / (2 * kLanesN) * 2 + lane % 2, lane_n = lane % (2 * kLanesN) / 2;
{% else %}
  const int lane_m = lane / kLanesN, lane_n = lane % kLanesN;
{% endif %}
  const int first_m = warp / (kBlockN / kWarpN) * kWarpM + lane_m * kVectorM;
  const int first_n = warp % (kBlockN / kWarpN) * kWarpN + lane_n * kVectorN;

  float* const shared = dynamic_shared();
  const float* const fragments_a = shared + first_m;
  const float* const fragments_b = shared + kStages * kStageA + first_n;

  float sums[kThreadM][kThreadN];
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
    for (int n = 0; n < kThreadN; ++n) sums[m][n] = 0.0f;
  }

  // With alpha zero A and B are not read, whatever they hold.
  const int tiles = epilogue.alpha == 0.0f ? 0 : depth / kBlockK + (depth % kBlockK != 0);
  TileLoader loader;
  loader.begin(a + row * lda, lda, b + column, ldb, shared, rows_left, columns_left, depth);

{% if LOAD == "sync" %}
  float fragment_a[2][kThreadM], fragment_b[2][kThreadN];
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
    for (int i = 0; i < TileLoader::kFetches; ++i) loader.fetch(i);
    loader.store();
    loader.next_tile();
    __syncthreads();
    if (kDoubleFragments) load_fragments(fragment_a[0], fragment_b[0], fragments_a, fragments_b, 0);
#pragma unroll
    for (int k = 0; k < kBlockK; ++k) {
      const int now = kDoubleFragments ? k % 2 : 0;
      if (!kDoubleFragments) load_fragments(fragment_a[0], fragment_b[0], fragments_a, fragments_b, k);
      if (kDoubleFragments && k + 1 < kBlockK) load_fragments(fragment_a[1 - now], fragment_b[1 - now], fragments_a, fragments_b, k + 1);
      multiply_add(sums, fragment_a[now], fragment_b[now]);
    }
    __syncthreads();  // the stage is free again
  }
{% else %}
  if (tiles > 0) {
    // Fill all stages but the one that the first tile's steps fill.
#pragma unroll
    for (int tile = 0; tile < kStages - 1; ++tile) {
      if (tile < tiles) {
#pragma unroll
        for (int i = 0; i < TileLoader::kFetches; ++i) loader.fetch(i);
        loader.store();
        loader.next_tile();
      }
{% if LOAD == "cpasync" %}
      commit_copies();
{% endif %}
    }
{% if LOAD == "cpasync" %}
    wait_copies<kStages - 2>();
{% endif %}
    __syncthreads();

    float fragment_a[2][kThreadM], fragment_b[2][kThreadN];
    int stage = 0;
    const float* stage_a = fragments_a;
    const float* stage_b = fragments_b;
    if (kDoubleFragments) load_fragments(fragment_a[0], fragment_b[0], stage_a, stage_b, 0);

#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const bool more = tile + (kStages - 1) < tiles;
#pragma unroll
      for (int k = 0; k < kBlockK; ++k) {
        const int now = kDoubleFragments ? k % 2 : 0;
        if (!kDoubleFragments) load_fragments(fragment_a[0], fragment_b[0], stage_a, stage_b, k);

        // The next tile to fetch goes to the stage that was computed on last; its runs are spread over the steps.
{% if LOAD == "cpasync" %}
        constexpr int kFetchSteps = kDoubleFragments ? kBlockK - 1 : kBlockK;
{% else %}
        constexpr int kFetchSteps = kBlockK / 2;  // early, since the values are needed at the last step
{% endif %}
        if (more && k < kFetchSteps) {
#pragma unroll
          for (int i = k * TileLoader::kFetches / kFetchSteps; i < (k + 1) * TileLoader::kFetches / kFetchSteps; ++i) {
            loader.fetch(i);
          }
        }

        if (!kDoubleFragments) multiply_add(sums, fragment_a[0], fragment_b[0]);
        if (k == kBlockK - 1) {
          if (more) {
            loader.store();
            loader.next_tile();
          }
{% if LOAD == "cpasync" %}
          commit_copies();  // also where it is empty: the count of groups has to go on
          wait_copies<kStages - 2>();
{% endif %}
          __syncthreads();
          stage = stage + 1 == kStages ? 0 : stage + 1;
          stage_a = fragments_a + stage * kStageA;
          stage_b = fragments_b + stage * kStageB;
        }
        if (kDoubleFragments) {
          load_fragments(fragment_a[1 - now], fragment_b[1 - now], stage_a, stage_b, (k + 1) % kBlockK);
          multiply_add(sums, fragment_a[now], fragment_b[now]);
        }
      }
    }
  }
{% endif %}

  if (tiles == 0) epilogue.alpha = 0.0f;  // the sum is empty, even where alpha is infinite
  epilogue.move(row, column);
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
    const int i = first_m + m / kVectorM * kLanesM * kVectorM + m % kVectorM;
    if (!kGuard || i < rows_left) {
#pragma unroll
      for (int n = 0; n < kThreadN; n += kStoreC) {
        const int j = first_n + n / kVectorN * kLanesN * kVectorN + n % kVectorN;
        epilogue.store<kStoreC>(i, j, sums[m] + n, kGuard ? columns_left - j : kStoreC);
      }
    }
  }
}

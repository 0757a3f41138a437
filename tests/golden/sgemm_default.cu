// C[rows, columns] = alpha * A[rows, depth] * B[depth, columns] + beta * C in FP32, row-major, any leading dimensions.
constexpr bool kBetaZero = true;  // true: C is never read

// Moves of 1, 2 or 4 floats with one instruction; the vector side has to be aligned to the width.
template <int Width>
struct Vector;

template <>
struct Vector<1> {
  static __device__ __forceinline__ void load(float* to, const float* from) { to[0] = from[0]; }
  static __device__ __forceinline__ void store(float* to, const float* from) { to[0] = from[0]; }
};

template <>
struct Vector<2> {
  static __device__ __forceinline__ void load(float* to, const float* from) {
    const float2 value = *reinterpret_cast<const float2*>(from);
    to[0] = value.x, to[1] = value.y;
  }
  static __device__ __forceinline__ void store(float* to, const float* from) {
    float2 value;
    value.x = from[0], value.y = from[1];
    *reinterpret_cast<float2*>(to) = value;
  }
};

template <>
struct Vector<4> {
  static __device__ __forceinline__ void load(float* to, const float* from) {
    const float4 value = *reinterpret_cast<const float4*>(from);
    to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
  }
  static __device__ __forceinline__ void store(float* to, const float* from) {
    float4 value;
    value.x = from[0], value.y = from[1], value.z = from[2], value.w = from[3];
    *reinterpret_cast<float4*>(to) = value;
  }
};

// Writes `Width` floats to global memory with one instruction. Said in PTX, since the compiler splits the store of a
// float4 into four wherever it cannot tell that the rows of a pitch are aligned.
template <int Width>
__device__ __forceinline__ void store_global(float* to, const float* from) {
#ifdef AUTOTUNE_HOST
  Vector<Width>::store(to, from);
#else
  if (Width == 4) {
    asm volatile("st.global.v4.f32 [%0], { %1, %2, %3, %4 };" ::"l"(to), "f"(from[0]), "f"(from[1 % Width]),
                 "f"(from[2 % Width]), "f"(from[3 % Width])
                 : "memory");
  } else if (Width == 2) {
    asm volatile("st.global.v2.f32 [%0], { %1, %2 };" ::"l"(to), "f"(from[0]), "f"(from[1 % Width]) : "memory");
  } else {
    to[0] = from[0];
  }
#endif
}

// The first `valid` of `Width` floats, and zeros after them; reads nothing past the valid ones.
template <int Width>
__device__ __forceinline__ void load_valid(float* to, const float* from, int valid) {
  if (valid >= Width) {
    Vector<Width>::load(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < Width; ++i) to[i] = i < valid ? from[i] : 0.0f;
  }
}

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

// A block computes a tile of C; its warps, and within them the lanes, own sub-tiles of it in registers. Tiles of A (stored
// transposed, so that a thread's rows lie side by side) and of B pass through a ring of stages in shared memory.
constexpr int kBlockM = 128, kBlockN = 128, kBlockK = 16;
constexpr int kWarpM = 64, kWarpN = 64;
constexpr int kThreadM = 16, kThreadN = 8;    // results of a thread in all
constexpr int kVectorM = 4, kVectorN = 4;    // of them, how many side by side
constexpr int kLanesM = 4, kLanesN = 8;
constexpr int kThreads = 128;
constexpr int kStages = 3;
constexpr int kRunA = 4, kRunB = 4;          // consecutive elements that a thread fetches
constexpr int kLoadB = 4;
constexpr int kStoreC = 4;
constexpr int kPitchA = 128 + 4, kPitchB = 128 + 0;
constexpr int kGroupM = 8;
constexpr bool kDoubleFragments = true;
constexpr bool kSerpentine = true;
constexpr bool kGuard = false;         // false: the sizes are multiples of the tile

constexpr int kStageA = kBlockK * kPitchA, kStageB = kBlockK * kPitchB;
constexpr int kGroupsM = kThreadM / kVectorM, kGroupsN = kThreadN / kVectorN;

// The block's dynamic shared memory. One name and type for every kernel that includes this, so that several of them, and
// a caller's own array, live in one translation unit.
__device__ __forceinline__ float* dynamic_shared() {
#ifdef AUTOTUNE_HOST
  return autotune_host::dynamic_shared();
#else
  extern __shared__ float4 autotune_dynamic_shared[];
  return reinterpret_cast<float*>(autotune_dynamic_shared);
#endif
}

// How the threads of a block share out a tile of `Rows` x `Runs` runs of consecutive elements: the i-th run of a thread has
// the linear index thread + i * Threads. Where the counts divide, all runs of a thread lie on one straight walk from its
// first, so that a single pointer serves them; otherwise each is found by itself.
template <int Rows, int Runs, int Threads>
struct TileRuns {
  static constexpr int count = (Rows * Runs + Threads - 1) / Threads;
  static constexpr bool several_rows = Threads % Runs == 0;                     // a pass of the block takes whole rows
  static constexpr bool several_passes = !several_rows && Runs % Threads == 0;  // a row takes whole passes
  static constexpr bool straight = several_rows || several_passes;
  static constexpr int passes_per_row = several_passes ? Runs / Threads : 1;
  static constexpr int rows_per_step = several_rows ? Threads / Runs : 1;  // once for each `passes_per_row` runs

  static __device__ __forceinline__ int first_row(int thread) { return straight ? thread / Runs : 0; }
  static __device__ __forceinline__ int first_run(int thread) { return straight ? thread % Runs : 0; }

  // Row and run of the i-th, counted from the first; constants where the walk is straight.
  static __device__ __forceinline__ int row(int thread, int i) {
    return straight ? i / passes_per_row * rows_per_step : (thread + i * Threads) / Runs;
  }
  static __device__ __forceinline__ int run(int thread, int i) {
    return straight ? i % passes_per_row * Threads : (thread + i * Threads) % Runs;
  }
  // Whether the thread has an i-th run; the last pass may not need all threads.
  static __device__ __forceinline__ bool inside(int thread, int i) {
    return (i + 1) * Threads <= Rows * Runs || thread + i * Threads < Rows * Runs;
  }
};

// A place in shared memory in the form that the copies take; it advances by whole floats.
#ifdef AUTOTUNE_HOST
typedef float* SharedAddress;
inline SharedAddress shared_address(float* shared) { return shared; }
inline SharedAddress advanced(SharedAddress address, int floats) { return address + floats; }
#else
typedef unsigned SharedAddress;
__device__ __forceinline__ SharedAddress shared_address(float* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
__device__ __forceinline__ SharedAddress advanced(SharedAddress address, int floats) { return address + 4 * floats; }
#endif

// Copies from global to shared memory that bypass registers (compute capability 8.0 and later). Of `Width` floats the
// first `valid` are read; the rest arrive as zeros, and nothing past the valid ones is touched.
template <int Width>
__device__ __forceinline__ void copy_async(SharedAddress to, int offset, const float* from, int valid) {
#ifdef AUTOTUNE_HOST
  autotune_host::copy_async(to + offset, from, Width, valid);
#else
  const unsigned address = advanced(to, offset);
  if (Width == 4) {  // 16 bytes at a time may skip the L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(4 * valid) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(4 * Width), "r"(4 * valid)
                 : "memory");
  }
#endif
}

// Closes the group of all copies that this thread has started since the last call.
__device__ __forceinline__ void commit_copies() {
#ifdef AUTOTUNE_HOST
  autotune_host::commit_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `Pending` of this thread's youngest groups are still under way.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
#ifdef AUTOTUNE_HOST
  autotune_host::wait_copies(Pending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

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
  SharedAddress to_a, to_b;  // the thread's first elements in the stage to fill

  __device__ __forceinline__ void begin(const float* a_tile, int lda_, const float* b_tile, int ldb_, float* shared, int rows,
                                        int columns, int depth) {
    thread = threadIdx.x, stage = 0;
    lda = lda_, ldb = ldb_;
    const int row_a = RunsA::first_row(thread), k_a = RunsA::first_run(thread) * kRunA;
    const int k_b = RunsB::first_row(thread), column_b = RunsB::first_run(thread) * kRunB;
    a = a_tile + row_a * lda + k_a, b = b_tile + k_b * ldb + column_b;
    rows_a = rows - row_a, depth_a = depth - k_a, depth_b = depth - k_b, columns_b = columns - column_b;
    to_a = shared_address(shared + k_a * kPitchA + row_a);
    to_b = shared_address(shared + kStages * kStageA + k_b * kPitchB + column_b);
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

  __device__ __forceinline__ void next_tile() {
    depth_a -= kBlockK, depth_b -= kBlockK;
    const bool wraps = stage == kStages - 1;
    stage = wraps ? 0 : stage + 1;
    to_a = advanced(to_a, wraps ? -(kStages - 1) * kStageA : kStageA);
    to_b = advanced(to_b, wraps ? -(kStages - 1) * kStageB : kStageB);
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
  // Two rows of lanes interleaved: each half of a warp reads few enough distinct words for one wavefront.
  const int lane_m = lane / (2 * kLanesN) * 2 + lane % 2, lane_n = lane % (2 * kLanesN) / 2;
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
      commit_copies();
    }
    wait_copies<kStages - 2>();
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
        constexpr int kFetchSteps = kDoubleFragments ? kBlockK - 1 : kBlockK;
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
          commit_copies();  // also where it is empty: the count of groups has to go on
          wait_copies<kStages - 2>();
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

extern "C" __global__ void __launch_bounds__(128, 2)
sgemm(int rows, int columns, int depth, float alpha, const float* __restrict__ a, int lda, const float* __restrict__ b, int ldb,
      float beta, float* __restrict__ c, int ldc, float* workspace) {
  multiply(rows, columns, depth, a, lda, b, ldb, Epilogue{c, ldc, alpha, beta}, workspace);
}

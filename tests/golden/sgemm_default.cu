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
  __device__ __forceinline__ void move(long long row, long long column) {
    c += row * ldc + column;
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

// A block computes a tile of C; its warps, and within them the lanes, own sub-tiles of it in registers. Tiles of A (as
// columns, so that a thread's rows lie side by side) and of B (as rows) pass through a ring of stages in shared memory.
constexpr int kBlockM = 128, kBlockN = 128, kBlockK = 16;
constexpr int kWarpM = 64, kWarpN = 64;
constexpr int kThreadM = 16, kThreadN = 8;    // results of a thread in all
constexpr int kVectorM = 4, kVectorN = 4;    // of them, how many side by side
constexpr int kLanesM = 4, kLanesN = 8;
constexpr int kThreads = 128;
constexpr int kSlices = 1, kBlocks = 1;           // warps and blocks that own the same results
constexpr int kStages = 3;
constexpr int kSpread = 0;                      // parts in which a tile is fetched, 0 for as many as there are steps
constexpr int kRunA = 4, kRunB = 4;          // consecutive elements that a thread fetches
constexpr int kLoadA = 1, kLoadB = 4;        // at how many a time: what the alignment allows
constexpr bool kTransA = false, kTransB = false;  // true: A is stored as [K, M], B as [N, K]
constexpr int kStoreC = 4;
constexpr int kPitchA = 128 + 4, kPitchB = 128 + 0;
constexpr int kGroupM = 8;
constexpr bool kDoubleFragments = true;
constexpr bool kSerpentine = true;
constexpr bool kGuard = false;         // false: the sizes are multiples of the tile
// Of sizes that are not: false where a tile at an edge of C is moved back until it lies in C whole. It computes some results
// a second time, which nobody stores, and the loop over K needs no guards.
constexpr bool kGuardAll = false;
// The steps along K begin with the one that is not whole, so that only the filling of the pipeline has to guard for it.
constexpr bool kHeadFirst = kGuard && !kGuardAll && true;

constexpr int kDepth = kBlockK / kSlices;
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

// Which results of a tile are its to store: the first `rows` x `columns`, or where tiles are moved back, all from there on.
struct Edge {
  int rows, columns;

  __device__ __forceinline__ bool has_row(int row) const { return !kGuard || (kGuardAll ? row < rows : row >= rows); }
  // How many of `width` side by side.
  __device__ __forceinline__ int valid(int column, int width) const {
    if (!kGuard) return width;
    return kGuardAll ? columns - column : column >= columns ? width : 0;
  }
};

// Brings one operand's part of a tile into a stage, run by run, where it lies as [kBlockK][Pitch] with `Extent` of each row
// in use. In global memory it lies the same way round, or with `Turned` the other: its rows go along K then, and a run is
// scattered over the rows of the stage. `Load` is how many elements the alignment lets a thread fetch at a time.
template <bool Turned, int Extent, int Pitch, int Run, int Load>
struct OperandLoader {
  typedef TileRuns<Turned ? Extent : kBlockK, (Turned ? kBlockK : Extent) / Run, kThreads> Runs;
  static constexpr int kFetches = Runs::count;
  // The widest access to shared memory that all of the thread's runs are aligned for.
  static constexpr int kAligned = Turned || Pitch % 2 ? 1 : Pitch % 4 ? 2 : 4;
  static constexpr int kStore = Run < kAligned ? Run : kAligned;

  const float* from;                // this thread's next run
  long long ld;
  long long offsets[Runs::count];   // of the runs, where the walk is not straight
  int rows_left, elements_left;     // how much of the matrix lies beyond the thread's first element
  int thread;
  SharedAddress to;  // the thread's first element in the stage to fill

  // `first` is the tile's first element in global memory; of what the matrix has from there on, `extent` and `depth`.
  __device__ __forceinline__ void begin(const float* first, int ld_, float* stages, int extent, int depth) {
    thread = threadIdx.x, ld = ld_;
    const int row = Runs::first_row(thread), element = Runs::first_run(thread) * Run;
    from = first + row * ld + element;
    rows_left = (Turned ? extent : depth) - row, elements_left = (Turned ? depth : extent) - element;
    stages += Turned ? element * Pitch + row : row * Pitch + element;
    to = shared_address(stages);
#pragma unroll
    for (int i = 0; i < Runs::count; ++i) {
      offsets[i] = Runs::straight ? 0 : Runs::row(thread, i) * ld + Runs::run(thread, i) * Run;
    }
  }

  // Where the i-th run lies in global memory. Runs are visited in order, and `step` follows each.
  __device__ __forceinline__ const float* run(int i) const {
    return from + (Runs::straight ? Runs::run(thread, i) * Run : offsets[i]);
  }
  __device__ __forceinline__ void step(int i) {
    constexpr int kWalked = Runs::straight ? Runs::count / Runs::passes_per_row * Runs::rows_per_step : 0;
    if (Runs::straight && i % Runs::passes_per_row == Runs::passes_per_row - 1) from += Runs::rows_per_step * ld;
    if (i == Runs::count - 1) from += Turned ? kBlockK - kWalked * ld : (kBlockK - kWalked) * ld;
  }

  // How many of the `width` elements from element `skip` of a run on lie in the matrix; `Head` for the first tile.
  template <bool Head>
  __device__ __forceinline__ int valid(int i, int skip, int width) const {
    constexpr bool kExtent = kGuardAll, kDepthToo = kGuard && (Head || !kHeadFirst);
    if ((Turned ? kExtent : kDepthToo) && Runs::row(thread, i) >= rows_left) return 0;
    if (!(Turned ? kDepthToo : kExtent)) return width;
    const int left = elements_left - Runs::run(thread, i) * Run - skip;
    if (width == 1) return left > 0 ? 1 : 0;
    return left < 0 ? 0 : left < width ? left : width;
  }

  // Where a run goes, from the thread's first element in the stage on.
  __device__ __forceinline__ int target(int i) const {
    return Turned ? Runs::run(thread, i) * Run * Pitch + Runs::row(thread, i)
                  : Runs::row(thread, i) * Pitch + Runs::run(thread, i) * Run;
  }

  template <bool Head>
  __device__ __forceinline__ void fetch(int i) {
    if (Runs::inside(thread, i)) {
      constexpr int kWidth = Load < kStore ? Load : kStore;
#pragma unroll
      for (int j = 0; j < Run; j += kWidth) {
        copy_async<kWidth>(to, target(i) + (Turned ? j * Pitch : j), run(i) + j, valid<Head>(i, j, kWidth));
      }
    }
    step(i);
  }

  // Goes on from a first tile of which the matrix has only so much depth.
  __device__ __forceinline__ void pass_head(int depth) { from -= (kBlockK - depth) * (Turned ? 1 : ld); }
  __device__ __forceinline__ void next_tile(bool wraps) {
    (Turned ? elements_left : rows_left) -= kBlockK;
    constexpr int kStage = kBlockK * Pitch;
    to = advanced(to, wraps ? -(kStages - 1) * kStage : kStage);
  }
};

typedef OperandLoader<!kTransA, kBlockM, kPitchA, kRunA, kLoadA> LoaderA;
typedef OperandLoader<kTransB, kBlockN, kPitchB, kRunB, kLoadB> LoaderB;

// Fetches one tile of both operands after another for one thread.
struct TileLoader {
  LoaderA a;
  LoaderB b;
  int stage;

  __device__ __forceinline__ void begin(const float* first_a, int lda, const float* first_b, int ldb, float* shared, int rows,
                                        int columns, int depth) {
    stage = 0;
    a.begin(first_a, lda, shared, rows, depth);
    b.begin(first_b, ldb, shared + kStages * kStageA, columns, depth);
  }

  // A tile is fetched run by run, in order, so that the runs can be spread over the steps of the computation.
  static constexpr int kFetches = LoaderA::kFetches + LoaderB::kFetches;

  template <bool Head = false>
  __device__ __forceinline__ void fetch(int index) {
    if (index < LoaderA::kFetches) {
      a.template fetch<Head>(index);
    } else {
      b.template fetch<Head>(index - LoaderA::kFetches);
    }
  }

  // Ends the fetching of a tile.
  __device__ __forceinline__ void store() {
  }

  __device__ __forceinline__ void pass_head(int depth) { a.pass_head(depth), b.pass_head(depth); }
  __device__ __forceinline__ void next_tile() {
    const bool wraps = stage == kStages - 1;
    stage = wraps ? 0 : stage + 1;
    a.next_tile(wraps), b.next_tile(wraps);
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

// Adds up a thread's part of a tile of C over `tiles` tiles of A and B, of which the first begin at `a` and `b`.
__device__ __forceinline__ void accumulate(float (&sums)[kThreadM][kThreadN], const float* a, int lda, const float* b, int ldb,
                                           Edge edge, int depth_left, int tiles, float* shared,
                                           const float* fragments_a, const float* fragments_b) {
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
    for (int n = 0; n < kThreadN; ++n) sums[m][n] = 0.0f;
  }
  TileLoader loader;
  loader.begin(a, lda, b, ldb, shared, edge.rows, edge.columns, depth_left);

  if (tiles > 0) {
    // Fill all stages but the one that the first tile's steps fill.
#pragma unroll
    for (int tile = 0; tile < kStages - 1; ++tile) {
      if (tile < tiles) {
#pragma unroll
        for (int i = 0; i < TileLoader::kFetches; ++i) {
          if (tile == 0) {
            loader.fetch<true>(i);
          } else {
            loader.fetch(i);
          }
        }
        if (kHeadFirst && tile == 0) loader.pass_head(depth_left);
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
      for (int k = 0; k < kDepth; ++k) {
        const int now = kDoubleFragments ? k % 2 : 0;
        if (!kDoubleFragments) load_fragments(fragment_a[0], fragment_b[0], stage_a, stage_b, k);

        // The next tile to fetch goes to the stage that was computed on last; its runs are spread over the steps.
        constexpr int kFetchSteps = kDoubleFragments ? kDepth - 1 : kDepth;
        constexpr int kParts = kSpread == 0 || kSpread > kFetchSteps ? kFetchSteps : kSpread;
        constexpr int kEvery = kFetchSteps / kParts;
        if (more && k % kEvery == 0 && k / kEvery < kParts) {
#pragma unroll
          for (int i = k / kEvery * TileLoader::kFetches / kParts; i < (k / kEvery + 1) * TileLoader::kFetches / kParts; ++i) {
            loader.fetch(i);
          }
        }

        if (!kDoubleFragments) multiply_add(sums, fragment_a[0], fragment_b[0]);
        if (k == kDepth - 1) {
          if (more) {
            loader.store();
            loader.next_tile();
          }
          stage = stage + 1 == kStages ? 0 : stage + 1;
          commit_copies();  // also where it is empty: the count of groups has to go on
          wait_copies<kStages - 2>();
          __syncthreads();
          stage_a = fragments_a + stage * kStageA;
          stage_b = fragments_b + stage * kStageB;
        }
        if (kDoubleFragments) {
          load_fragments(fragment_a[1 - now], fragment_b[1 - now], stage_a, stage_b, (k + 1) % kDepth);
          multiply_add(sums, fragment_a[now], fragment_b[now]);
        }
      }
    }
  }
}

// Which part of C a tile is.
struct Place {
  long long row, column;
  Edge edge;

  __device__ __forceinline__ Place(unsigned number, int rows, int columns) {
    // Blocks walk down kGroupM rows of tiles before they move on to the next column, so that the L2 serves both operands.
    const unsigned tiles_m = rows / kBlockM + (rows % kBlockM != 0), tiles_n = columns / kBlockN + (columns % kBlockN != 0);
    const unsigned group = number / (kGroupM * tiles_n), in_group = number % (kGroupM * tiles_n);
    const unsigned height = tiles_m - group * kGroupM < kGroupM ? tiles_m - group * kGroupM : kGroupM;
    row = static_cast<long long>(group * kGroupM + in_group % height) * kBlockM;
    column = static_cast<long long>(in_group / height) * kBlockN;
    edge.rows = static_cast<int>(rows - row), edge.columns = static_cast<int>(columns - column);
    if (kGuard && !kGuardAll) {
      edge.rows = edge.rows < kBlockM ? kBlockM - edge.rows : 0, edge.columns = edge.columns < kBlockN ? kBlockN - edge.columns : 0;
      row -= edge.rows, column -= edge.columns;
    }
  }
};

// Writes a row of a thread's results from its registers.
__device__ __forceinline__ void store_row(const float* row, int m, int first_m, int first_n, const Epilogue& out, const Edge& edge) {
  const int i = first_m + m / kVectorM * kLanesM * kVectorM + m % kVectorM;
  if (!edge.has_row(i)) return;
#pragma unroll
  for (int n = 0; n < kThreadN; n += kStoreC) {
    const int j = first_n + n / kVectorN * kLanesN * kVectorN + n % kVectorN;
    out.store<kStoreC>(i, j, row + n, edge.valid(j, kStoreC));
  }
}

__device__ __forceinline__ void store_sums(const float (&sums)[kThreadM][kThreadN], int first_m, int first_n, const Epilogue& out,
                                           const Edge& edge) {
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) store_row(sums[m], m, first_m, first_n, out, edge);
}

// The block's share of the product.
__device__ __forceinline__ void multiply(int rows, int columns, int depth, const float* __restrict__ a, int lda,
                                         const float* __restrict__ b, int ldb, Epilogue epilogue, float*) {
  constexpr int kTileWarps = (kBlockM / kWarpM) * (kBlockN / kWarpN);
  const int warp = threadIdx.x / 32 % kTileWarps, slice = threadIdx.x / 32 / kTileWarps, lane = threadIdx.x % 32;
  // Two rows of lanes interleaved: each half of a warp reads few enough distinct words for one wavefront.
  const int lane_m = lane / (2 * kLanesN) * 2 + lane % 2, lane_n = lane % (2 * kLanesN) / 2;
  const int first_m = warp / (kBlockN / kWarpN) * kWarpM + lane_m * kVectorM;
  const int first_n = warp % (kBlockN / kWarpN) * kWarpN + lane_n * kVectorN;

  float* const shared = dynamic_shared();
  const float* const fragments_a = shared + slice * kDepth * kPitchA + first_m;
  const float* const fragments_b = shared + kStages * kStageA + slice * kDepth * kPitchB + first_n;

  // With alpha zero A and B are not read, whatever they hold.
  const int steps = epilogue.alpha == 0.0f ? 0 : depth / kBlockK + (depth % kBlockK != 0);
  if (steps == 0) epilogue.alpha = 0.0f;  // the sum is empty, even where alpha is infinite
  const int head = kHeadFirst ? depth - (steps - 1) * kBlockK : kBlockK;  // of the first step
  {
    const unsigned number = blockIdx.x / kBlocks;
    const int rank = static_cast<int>(blockIdx.x % kBlocks);
    const int first = static_cast<int>(static_cast<long long>(steps) * rank / kBlocks);
    const int last = static_cast<int>(static_cast<long long>(steps) * (rank + 1) / kBlocks);
    const Place place(number, rows, columns);
    const int k = first * kBlockK - (first > 0 ? kBlockK - head : 0);
    float sums[kThreadM][kThreadN];
    accumulate(sums, kTransA ? a + static_cast<long long>(k) * lda + place.row : a + place.row * lda + k, lda,
               kTransB ? b + place.column * ldb + k : b + static_cast<long long>(k) * ldb + place.column, ldb, place.edge,
               !kHeadFirst ? depth - k : first == 0 ? head : kBlockK, last - first, shared, fragments_a, fragments_b);

    Epilogue out = epilogue;
    out.move(place.row, place.column);
    store_sums(sums, first_m, first_n, out, place.edge);
  }
}

extern "C" __global__ void __launch_bounds__(128, 2)
sgemm(int rows, int columns, int depth, float alpha, const float* __restrict__ a, int lda, const float* __restrict__ b, int ldb,
      float beta, float* __restrict__ c, int ldc, float* workspace) {
  multiply(rows, columns, depth, a, lda, b, ldb, Epilogue{c, ldc, alpha, beta}, workspace);
}

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
{% if LOAD in ("cpasync", "tma") %}
  SharedAddress to;  // the thread's first element in the stage to fill
{% else %}
  float* to;  // the thread's first element in the stage to fill
  float held[Runs::count][Run];
{% endif %}

  // `first` is the tile's first element in global memory; of what the matrix has from there on, `extent` and `depth`.
  __device__ __forceinline__ void begin(const float* first, int ld_, float* stages, int extent, int depth) {
    thread = threadIdx.x, ld = ld_;
    const int row = Runs::first_row(thread), element = Runs::first_run(thread) * Run;
    from = first + row * ld + element;
    rows_left = (Turned ? extent : depth) - row, elements_left = (Turned ? depth : extent) - element;
    stages += Turned ? element * Pitch + row : row * Pitch + element;
{% if LOAD in ("cpasync", "tma") %}
    to = shared_address(stages);
{% else %}
    to = stages;
{% endif %}
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
{% if LOAD in ("cpasync", "tma") %}
      constexpr int kWidth = Load < kStore ? Load : kStore;
#pragma unroll
      for (int j = 0; j < Run; j += kWidth) {
        copy_async<kWidth>(to, target(i) + (Turned ? j * Pitch : j), run(i) + j, valid<Head>(i, j, kWidth));
      }
{% else %}
#pragma unroll
      for (int j = 0; j < Run; j += Load) load_valid<Load>(held[i] + j, run(i) + j, valid<Head>(i, j, Load));
{% endif %}
    }
    step(i);
  }

{% if LOAD not in ("cpasync", "tma") %}
  // Puts what `fetch` brought into registers into the stage.
  __device__ __forceinline__ void store() {
#pragma unroll
    for (int i = 0; i < Runs::count; ++i) {
      if (Runs::inside(thread, i)) {
#pragma unroll
        for (int j = 0; j < Run; j += kStore) {
          Vector<kStore>::store(to + target(i) + (Turned ? j * Pitch : j), held[i] + j);
        }
      }
    }
  }

{% endif %}
  // Goes on from a first tile of which the matrix has only so much depth.
  __device__ __forceinline__ void pass_head(int depth) { from -= (kBlockK - depth) * (Turned ? 1 : ld); }
  __device__ __forceinline__ void next_tile(bool wraps) {
    (Turned ? elements_left : rows_left) -= kBlockK;
    constexpr int kStage = kBlockK * Pitch;
{% if LOAD in ("cpasync", "tma") %}
    to = advanced(to, wraps ? -(kStages - 1) * kStage : kStage);
{% else %}
    to += wraps ? -(kStages - 1) * kStage : kStage;
{% endif %}
  }
};

{% if BULK_A or BULK_B %}
// Brings one operand's part of a tile, which lies the same way round in both memories, by bulk copies of its rows.
template <int Extent, int Pitch>
struct BulkLoader {
  static constexpr int kFetches = 0;
  const float* from;  // the row of this thread
  long long ld;
  SharedAddress to;

  __device__ __forceinline__ void begin(const float* first, int ld_, float* stages, int, int) {
    ld = ld_;
    from = first + threadIdx.x * ld, to = shared_address(stages + threadIdx.x * Pitch);
  }
  // For the first warp.
  __device__ __forceinline__ void start(SharedAddress full) {
#pragma unroll
    for (int row = 0; row < kBlockK; row += 32) {
      if (row + threadIdx.x < kBlockK) copy_bulk(advanced(to, row * Pitch), from + row * ld, 4 * Extent, full);
    }
    from += kBlockK * ld;
  }
  template <bool>
  __device__ __forceinline__ void fetch(int) {}
  __device__ __forceinline__ void pass_head(int) {}
  __device__ __forceinline__ void next_tile(bool wraps) {
    constexpr int kStage = kBlockK * Pitch;
    to = advanced(to, wraps ? -(kStages - 1) * kStage : kStage);
  }
};

{% endif %}
{% if BULK_A %}
typedef BulkLoader<kBlockM, kPitchA> LoaderA;
{% else %}
typedef OperandLoader<!kTransA, kBlockM, kPitchA, kRunA, kLoadA> LoaderA;
{% endif %}
{% if BULK_B %}
typedef BulkLoader<kBlockN, kPitchB> LoaderB;
{% else %}
typedef OperandLoader<kTransB, kBlockN, kPitchB, kRunB, kLoadB> LoaderB;
{% endif %}
{% if BULK_A or BULK_B %}
constexpr int kBulkBytes = 4 * kBlockK * ({{ "kBlockM" if BULK_A else 0 }} + {{ "kBlockN" if BULK_B else 0 }});

// A barrier for each stage, behind all that else lies in shared memory, that tells when the stage is full.
struct Barriers {
  SharedAddress first;
  unsigned phases;  // a bit for each stage: the parity of the next phase to end

  __device__ __forceinline__ explicit Barriers(float* shared) : first(shared_address(shared + {{ (smem_bytes - 8 * STAGES) // 4 }})), phases(0) {
    // All threads arrive that copy by themselves, and the one that starts the bulk copies.
    constexpr int kArrivals = (LoaderA::kFetches + LoaderB::kFetches > 0 ? kThreads : 0) + 1;
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < kStages; ++stage) begin_barrier(first + 8 * stage, kArrivals);
    }
    publish_to_copies();
    __syncthreads();
  }
  // Waits until the stage is full. To be called once for each time that it is filled.
  __device__ __forceinline__ void wait(int stage) {
    wait_barrier(first + 8 * stage, phases >> stage & 1);
    phases ^= 1u << stage;
  }
};
{% endif %}

// Fetches one tile of both operands after another for one thread.
struct TileLoader {
  LoaderA a;
  LoaderB b;
  int stage;
{% if BULK_A or BULK_B %}
  SharedAddress full;  // the barrier of the stage to fill
{% endif %}

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

{% if BULK_A or BULK_B %}
  // Starts the bulk copies of a tile.
  __device__ __forceinline__ void start_bulk() {
    if (threadIdx.x >= 32) return;
    if (threadIdx.x == 0) expect_bytes(full, kBulkBytes);
{% if BULK_A %}
    a.start(full);
{% endif %}
{% if BULK_B %}
    b.start(full);
{% endif %}
  }

{% endif %}
  // Ends the fetching of a tile.
  __device__ __forceinline__ void store() {
{% if BULK_A or BULK_B %}
    if (kFetches > 0) arrive_after_copies(full);
{% elif LOAD not in ("cpasync", "tma") %}
    a.store(), b.store();
{% endif %}
  }

  __device__ __forceinline__ void pass_head(int depth) { a.pass_head(depth), b.pass_head(depth); }
  __device__ __forceinline__ void next_tile() {
    const bool wraps = stage == kStages - 1;
    stage = wraps ? 0 : stage + 1;
    a.next_tile(wraps), b.next_tile(wraps);
{% if BULK_A or BULK_B %}
    full += wraps ? -8 * (kStages - 1) : 8;
{% endif %}
  }
};

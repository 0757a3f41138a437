// A block computes a tile of C; its warps, and within them the lanes, own sub-tiles of it in registers. Tiles of A (as
// columns, so that a thread's rows lie side by side) and of B (as rows) pass through a ring of stages in shared memory.
{% if SLICEK > 1 %}
// Each warp has {{ SLICEK - 1 }} others that own the same part of C and take other slices of the depth of each tile.
{% endif %}
{% if CLUSTER > 1 %}
// The blocks of a cluster own the same tile and share out its depth.
{% endif %}
{% if STREAM > 0 %}
// Blocks share out all steps of all tiles evenly, so that one may end in the middle of a tile that another goes on with.
{% endif %}
constexpr int kBlockM = {{ BM }}, kBlockN = {{ BN }}, kBlockK = {{ BK }};
constexpr int kWarpM = {{ WM }}, kWarpN = {{ WN }};
constexpr int kThreadM = {{ TM }}, kThreadN = {{ TN }};    // results of a thread in all
constexpr int kVectorM = {{ VM }}, kVectorN = {{ VN }};    // of them, how many side by side
constexpr int kLanesM = {{ lanes_m }}, kLanesN = {{ lanes_n }};
constexpr int kThreads = {{ threads }};
constexpr int kSlices = {{ SLICEK }}, kBlocks = {{ CLUSTER }};           // warps and blocks that own the same results
constexpr int kStages = {{ STAGES }};
constexpr int kSpread = {{ SPREAD }};                      // parts in which a tile is fetched, 0 for as many as there are steps
constexpr int kRunA = {{ VA }}, kRunB = {{ VB }};          // consecutive elements that a thread fetches
constexpr int kLoadA = {{ LOAD_A }}, kLoadB = {{ LOAD_B }};        // at how many a time: what the alignment allows
constexpr bool kTransA = {{ TRANS_A }}, kTransB = {{ TRANS_B }};  // true: A is stored as [K, M], B as [N, K]
constexpr int kStoreC = {{ STORE_C }};
constexpr int kPitchA = {{ BM }} + {{ PAD_A }}, kPitchB = {{ BN }} + {{ PAD_B }};
constexpr int kGroupM = {{ GROUP_M }};
constexpr bool kDoubleFragments = {{ REGDB }};
constexpr bool kSerpentine = {{ ORDER == "serpentine" }};
constexpr bool kGuard = {{ GUARD }};         // false: the sizes are multiples of the tile
// Of sizes that are not: false where a tile at an edge of C is moved back until it lies in C whole. It computes some results
// a second time, which nobody stores, and the loop over K needs no guards.
constexpr bool kGuardAll = {{ GUARD_ALL }};
// The steps along K begin with the one that is not whole, so that only the filling of the pipeline has to guard for it.
constexpr bool kHeadFirst = kGuard && !kGuardAll && {{ LOAD != "sync" }};

constexpr int kDepth = kBlockK / kSlices;
constexpr int kStageA = kBlockK * kPitchA, kStageB = kBlockK * kPitchB;
constexpr int kGroupsM = kThreadM / kVectorM, kGroupsN = kThreadN / kVectorN;

{% include "lib/shared.cuh" %}

{% include "lib/tile_runs.cuh" %}

{% if LOAD in ("cpasync", "tma") %}
{% include "lib/async_copy.cuh" %}

{% endif %}
{% if BULK_A or BULK_B %}
{% include "lib/bulk_copy.cuh" %}

{% endif %}
{% if CLUSTER > 1 %}
{% include "lib/cluster.cuh" %}

{% endif %}
{% if STREAM > 0 %}
{% include "lib/accumulate.cuh" %}

{% endif %}
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

{% include "sgemm/tile_loader.cuh" %}

{% include "sgemm/tile_loop.cuh" %}

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

{% include "sgemm/tile_sums.cuh" %}

{% if STREAM > 0 %}
// A block's way through the tiles. While there are as many tiles as blocks, each takes a whole one. Each of the `rest` that
// remain goes to a block that does its first `of_main` steps; the blocks that have none share out all their other steps evenly.
// Blocks come to their part of the rest at different times, so that not all of them write at once.
struct Walk {
  // What a part of a tile costs its block beside its steps, in steps: filling the pipeline, passing the sums on.
  static constexpr int kPartSteps = 2;
  unsigned number;   // of the tile
  int first, last;   // its steps that this block does
  unsigned whole, rest, helpers;
  unsigned turn, turn_of_rest, whole_turns;
  int of_tile, of_main;
  unsigned long long at, end;  // a helper's steps, counted through all tiles that remain

  __device__ __forceinline__ Walk(int rows, int columns, int steps) {
    const unsigned tiles_m = rows / kBlockM + (rows % kBlockM != 0), tiles_n = columns / kBlockN + (columns % kBlockN != 0);
    const unsigned tiles = tiles_m * tiles_n;
    whole_turns = tiles / gridDim.x;
    whole = whole_turns * gridDim.x, rest = tiles - whole;
    turn = 0, turn_of_rest = blockIdx.x % (whole_turns + 1);
    of_tile = steps, of_main = steps, helpers = 0, at = end = 0;
    if (rest == 0) return;
    const long long even = static_cast<long long>(steps) * rest / gridDim.x + 1 + kPartSteps;
    if (even < steps) of_main = static_cast<int>(even);
    const unsigned long long left = shared_steps() * rest;
    helpers = gridDim.x - rest < left ? gridDim.x - rest : static_cast<unsigned>(left);
    const unsigned helper = blockIdx.x - rest;
    if (blockIdx.x >= rest && helper < helpers) at = left * helper / helpers, end = left * (helper + 1) / helpers;
  }
  // Steps of a tile that helpers do.
  __device__ __forceinline__ unsigned long long shared_steps() const { return of_tile - of_main; }

  // Goes on to the next tile or part of one; false at the end.
  __device__ __forceinline__ bool next() {
    if (turn != turn_of_rest + 1 || at == end) {
      if (turn > whole_turns) return false;
      if (turn == turn_of_rest && blockIdx.x >= rest && at == end) ++turn;  // nothing of the rest is this block's
      if (turn > whole_turns) return false;
      const unsigned now = turn++;
      if (now != turn_of_rest) {
        number = (now - (now > turn_of_rest)) * gridDim.x + blockIdx.x, first = 0, last = of_tile;
        return true;
      }
      if (blockIdx.x < rest) {
        number = whole + blockIdx.x, first = 0, last = of_main;
        return true;
      }
    }
    const unsigned long long of_helpers = shared_steps();
    const unsigned long long within = at % of_helpers, until = of_helpers - within < end - at ? of_helpers - within : end - at;
    number = whole + static_cast<unsigned>(at / of_helpers);
    first = of_main + static_cast<int>(within), last = first + static_cast<int>(until);
    at += until;
    return true;
  }

  __device__ __forceinline__ bool shares() const { return last - first < of_tile; }

  // The helper that does a step, counted like `at`.
  __device__ __forceinline__ unsigned helper_of(unsigned long long step) const {
    return static_cast<unsigned>(((step + 1) * helpers - 1) / (shared_steps() * rest));
  }
  // Room for all parts: one of each tile that remains, then those of the helpers in the order of their steps.
  __device__ __forceinline__ Share share(float* workspace) const {
    constexpr long long kTile = kBlockM * kBlockN;
    const unsigned tile = number - whole;
    const unsigned long long begin = tile * shared_steps();
    const unsigned from = helper_of(begin), to = helper_of(begin + shared_steps() - 1);
    Share share;
    share.home = workspace + tile * kTile;
    share.others = workspace + (static_cast<long long>(rest) + tile + from - 1) * kTile;
    share.counter = reinterpret_cast<unsigned*>(workspace + 2 * gridDim.x * kTile) + tile;
    share.part = first == 0 ? 0 : 1 + (blockIdx.x - rest) - from;
    share.parts = 2 + to - from;
    return share;
  }
};

{% endif %}
// The block's share of the product.
__device__ __forceinline__ void multiply(int rows, int columns, int depth, const float* __restrict__ a, int lda,
                                         const float* __restrict__ b, int ldb, Epilogue epilogue, float*{{ " workspace" if STREAM > 0 else "" }}) {
  constexpr int kTileWarps = (kBlockM / kWarpM) * (kBlockN / kWarpN);
  const int warp = threadIdx.x / 32 % kTileWarps, slice = threadIdx.x / 32 / kTileWarps, lane = threadIdx.x % 32;
{% if LANES == "z" %}
  // Two rows of lanes interleaved: each half of a warp reads few enough distinct words for one wavefront.
  const int lane_m = lane / (2 * kLanesN) * 2 + lane % 2, lane_n = lane % (2 * kLanesN) / 2;
{% else %}
  const int lane_m = lane / kLanesN, lane_n = lane % kLanesN;
{% endif %}
  const int first_m = warp / (kBlockN / kWarpN) * kWarpM + lane_m * kVectorM;
  const int first_n = warp % (kBlockN / kWarpN) * kWarpN + lane_n * kVectorN;

  float* const shared = dynamic_shared();
  const float* const fragments_a = shared + slice * kDepth * kPitchA + first_m;
  const float* const fragments_b = shared + kStages * kStageA + slice * kDepth * kPitchB + first_n;
{% if BULK_A or BULK_B %}
  Barriers barriers(shared);
{% endif %}

  // With alpha zero A and B are not read, whatever they hold.
  const int steps = epilogue.alpha == 0.0f ? 0 : depth / kBlockK + (depth % kBlockK != 0);
  if (steps == 0) epilogue.alpha = 0.0f;  // the sum is empty, even where alpha is infinite
  const int head = kHeadFirst ? depth - (steps - 1) * kBlockK : kBlockK;  // of the first step
{% if STREAM > 0 %}

  Walk walk(rows, columns, steps > 0 ? steps : 1);
#pragma unroll 1
  while (walk.next()) {
    const unsigned number = walk.number;
    const int first = walk.first, last = walk.last;
{% else %}
  {
    const unsigned number = blockIdx.x / kBlocks;
    const int rank = static_cast<int>(blockIdx.x % kBlocks);
    const int first = static_cast<int>(static_cast<long long>(steps) * rank / kBlocks);
    const int last = static_cast<int>(static_cast<long long>(steps) * (rank + 1) / kBlocks);
{% endif %}
    const Place place(number, rows, columns);
    const int k = first * kBlockK - (first > 0 ? kBlockK - head : 0);
    float sums[kThreadM][kThreadN];
{% if STREAM > 0 %}
{% if BULK_A or BULK_B %}
    publish_to_copies();  // what sums were written to the stages
{% endif %}
    __syncthreads();  // nobody reads the stages of the tile before any more
{% endif %}
    accumulate(sums, kTransA ? a + static_cast<long long>(k) * lda + place.row : a + place.row * lda + k, lda,
               kTransB ? b + place.column * ldb + k : b + static_cast<long long>(k) * ldb + place.column, ldb, place.edge,
               !kHeadFirst ? depth - k : first == 0 ? head : kBlockK, {{ "steps > 0 ? last - first : 0" if STREAM > 0 else "last - first" }}, shared, fragments_a, fragments_b{{ ", barriers" if BULK_A or BULK_B else "" }});

    Epilogue out = epilogue;
    out.move(place.row, place.column);
{% if STREAM > 0 %}
{% if SLICEK > 1 %}
    if (walk.shares()) {
      share_sums(sums, walk.share(workspace), shared, slice, first_m, first_n, out, place.edge);
      continue;
    }
{% else %}
    if (walk.shares() && !gather_sums(sums, walk.share(workspace), shared, place.edge)) continue;
{% endif %}
{% endif %}
{% if SLICEK > 1 or CLUSTER > 1 %}
    join_sums(sums, shared, slice, first_m, first_n, {{ "rank" if CLUSTER > 1 else 0 }}, out, place.edge);
{% else %}
    store_sums(sums, first_m, first_n, out, place.edge);
{% endif %}
  }
}

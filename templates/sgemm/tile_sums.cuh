{% if STREAM > 0 %}
// Up to so many blocks leave their parts of a tile side by side, and the last to arrive adds them up. More of them add to one
// total, since reading them one by one would take the last too long.
constexpr unsigned kGathered = 4;

// A block's part of a tile that it shares with others.
struct Share {
  float* home;        // the first block's part, or the total
  float* others;      // the parts of the others follow, beginning with 1
  unsigned* counter;  // of the blocks that have arrived
  unsigned part, parts;

  __device__ __forceinline__ bool gathered() const { return parts <= kGathered; }
  __device__ __forceinline__ float* at(unsigned number) const {
    return number == 0 ? home : others + static_cast<long long>(number) * (kBlockM * kBlockN);
  }
  __device__ __forceinline__ float* own() const { return gathered() ? at(part) : home; }
};

{% endif %}
{% if SLICEK > 1 or CLUSTER > 1 or STREAM > 0 %}
// Copies of sums that the compiler keeps in other registers. Sums that were stored by wide accesses as they are would have
// to lie in registers in order, and most of them then in the same bank as the element of B that the main loop multiplies.
template <int Width>
__device__ __forceinline__ void set_apart(float* to, const float* sums, float one) {
#pragma unroll
  for (int i = 0; i < Width; ++i) to[i] = sums[i] * one;
}
// 1, which the compiler cannot know.
__device__ __forceinline__ float hidden_one(const Edge& edge) { return edge.rows >= 0 ? 1.0f : 0.0f; }

{% endif %}
{% if SLICEK == 1 and CLUSTER == 1 %}
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
{% if STREAM > 0 %}

// Brings the sums of the blocks that share a tile together, in those of the last to arrive; whether this block is it. In
// memory a warp's lanes have theirs side by side, whatever their place in C.
__device__ __forceinline__ bool gather_sums(float (&sums)[kThreadM][kThreadN], const Share& share, float* shared,
                                            const Edge& edge) {
  const bool early = !(share.gathered() && others_arrived(share.counter, share.parts, shared));
  if (early) {
    float* const own = share.own() + threadIdx.x * kVectorN;
    const float one = hidden_one(edge);
#pragma unroll
    for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
      for (int n = 0; n < kThreadN; n += kVectorN) {
        float part[kVectorN];
        set_apart<kVectorN>(part, sums[m] + n, one);
        if (share.gathered()) {
          store_global<kVectorN>(own + (m * kThreadN + n) * kThreads, part);
        } else {
          add_global<kVectorN>(own + (m * kThreadN + n) * kThreads, part);
        }
      }
    }
    if (!last_to_arrive(share.counter, share.parts, shared)) return false;
  }
  if (!share.gathered()) {  // then this block's own is in the total
#pragma unroll
    for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
      for (int n = 0; n < kThreadN; ++n) sums[m][n] = 0.0f;
    }
  }
#pragma unroll 1
  for (unsigned number = 0; number < (share.gathered() ? share.parts : 1); ++number) {
    const bool mine = share.gathered() && number == share.part;
    if (mine && !early) continue;  // it was never left
    float* const from = share.at(number) + threadIdx.x * kVectorN;
#pragma unroll
    for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
      for (int n = 0; n < kThreadN; n += kVectorN) {
        if (mine) {
          leave_zeros<kVectorN>(from + (m * kThreadN + n) * kThreads);
        } else {
          take_global<kVectorN>(sums[m] + n, from + (m * kThreadN + n) * kThreads);
        }
      }
    }
  }
  return true;
}
{% endif %}
{% else %}
// Where the sums of several warps or blocks meet: a tile of C for each slice, in the place of the stages.
constexpr int kPitchC = kBlockN + 4;  // lanes that lie below each other write to other banks
constexpr int kVectors = kBlockM * kBlockN / 4;

__device__ __forceinline__ void stage_sums(const float (&sums)[kThreadM][kThreadN], float* shared, int slice, int first_m,
                                           int first_n, const Edge& edge) {
  __syncthreads();  // nobody reads the stages any more
  float* const tile = shared + slice * kBlockM * kPitchC;
  const float one = hidden_one(edge);
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
    const int i = first_m + m / kVectorM * kLanesM * kVectorM + m % kVectorM;
#pragma unroll
    for (int n = 0; n < kThreadN; n += kVectorN) {
      float part[kVectorN];
      set_apart<kVectorN>(part, sums[m] + n, one);
      Vector<kVectorN>::store(tile + i * kPitchC + first_n + n / kVectorN * kLanesN * kVectorN, part);
    }
  }
}

// The vector of results with this number, row by row, from all slices of this block.
__device__ __forceinline__ void sum_slices(float (&total)[4], const float* shared, int number) {
  const float* const from = shared + number / (kBlockN / 4) * kPitchC + number % (kBlockN / 4) * 4;
  Vector<4>::load(total, from);
#pragma unroll
  for (int s = 1; s < kSlices; ++s) {
    float part[4];
    Vector<4>::load(part, from + s * kBlockM * kPitchC);
#pragma unroll
    for (int q = 0; q < 4; ++q) total[q] += part[q];
  }
}

__device__ __forceinline__ void store_vector(const float (&total)[4], int number, const Epilogue& out, const Edge& edge) {
  const int i = number / (kBlockN / 4), j = number % (kBlockN / 4) * 4;
  if (!edge.has_row(i)) return;
#pragma unroll
  for (int q = 0; q < 4; q += kStoreC) out.store<kStoreC>(i, j + q, total + q, edge.valid(j + q, kStoreC));
}

// Adds up the sums of all warps and blocks that own the same results and writes them; all threads of all blocks take part.
__device__ __forceinline__ void join_sums(const float (&sums)[kThreadM][kThreadN], float* shared, int slice, int first_m,
                                          int first_n, int rank, const Epilogue& out, const Edge& edge) {
  stage_sums(sums, shared, slice, first_m, first_n, edge);
{% if CLUSTER > 1 %}
  cluster_wait();
  for (int number = rank * kThreads + threadIdx.x; number < kVectors; number += kBlocks * kThreads) {
    const float* const from = shared + number / (kBlockN / 4) * kPitchC + number % (kBlockN / 4) * 4;
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int part = 0; part < kBlocks * kSlices; ++part) {
      float loaded[4];
      load_cluster_vector(loaded, from + part % kSlices * kBlockM * kPitchC, part / kSlices);
#pragma unroll
      for (int q = 0; q < 4; ++q) total[q] += loaded[q];
    }
    store_vector(total, number, out, edge);
  }
  cluster_wait();  // a block that left would take its shared memory with it
{% else %}
  __syncthreads();
  for (int number = threadIdx.x; number < kVectors; number += kThreads) {
    float total[4];
    sum_slices(total, shared, number);
    store_vector(total, number, out, edge);
  }
{% endif %}
}
{% if STREAM > 0 %}

// Brings the sums of the blocks that share a tile together; the last to arrive writes the result.
__device__ __forceinline__ void share_sums(const float (&sums)[kThreadM][kThreadN], const Share& share, float* shared, int slice,
                                           int first_m, int first_n, const Epilogue& out, const Edge& edge) {
  // Behind the staged sums: a word that nobody uses.
  float* const word = shared + kSlices * kBlockM * kPitchC - 1;
  stage_sums(sums, shared, slice, first_m, first_n, edge);
  __syncthreads();
  const bool early = !(share.gathered() && others_arrived(share.counter, share.parts, word));
  if (early) {
    float* const own = share.own();
    for (int number = threadIdx.x; number < kVectors; number += kThreads) {
      float part[4];
      sum_slices(part, shared, number);
      if (share.gathered()) {
        store_global<4>(own + number * 4, part);
      } else {
        add_global<4>(own + number * 4, part);
      }
    }
    if (!last_to_arrive(share.counter, share.parts, word)) return;
  }
  constexpr int kPasses = (kVectors + kThreads - 1) / kThreads;
  float total[kPasses][4];
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int number = pass * kThreads + threadIdx.x;
#pragma unroll
    for (int q = 0; q < 4; ++q) total[pass][q] = 0.0f;
    if (share.gathered() && (kVectors % kThreads == 0 || number < kVectors)) sum_slices(total[pass], shared, number);
  }
#pragma unroll 1
  for (unsigned number = 0; number < (share.gathered() ? share.parts : 1); ++number) {
    const bool mine = share.gathered() && number == share.part;
    if (mine && !early) continue;  // it was never left
    float* const from = share.at(number);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int vector = pass * kThreads + threadIdx.x;
      if (kVectors % kThreads == 0 || vector < kVectors) {
        if (mine) {
          leave_zeros<4>(from + vector * 4);
        } else {
          take_global<4>(total[pass], from + vector * 4);
        }
      }
    }
  }
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int number = pass * kThreads + threadIdx.x;
    if (kVectors % kThreads == 0 || number < kVectors) store_vector(total[pass], number, out, edge);
  }
}
{% endif %}
{% endif %}

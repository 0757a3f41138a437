{% if STREAM > 0 %}
// Where a part of a tile lies, from the first: each block has room for the tile that it begins, then for the one that it
// goes on with.
__device__ __forceinline__ long long part_offset(unsigned part) { return (2LL * part + (part > 0)) * (kBlockM * kBlockN); }

{% endif %}
{% if SLICEK > 1 or CLUSTER > 1 or STREAM > 0 %}
// Copies of sums that the compiler keeps in other registers. Sums that were stored by wide accesses as they are would have
// to lie in registers in order, and most of them then in the same bank as the element of B that the main loop multiplies.
template <int Width>
__device__ __forceinline__ void set_apart(float* to, const float* sums, float one) {
#pragma unroll
  for (int i = 0; i < Width; ++i) to[i] = sums[i] * one;
}
// 1, which the compiler cannot know, since every tile has rows.
__device__ __forceinline__ float hidden_one(int rows_left) { return rows_left > 0 ? 1.0f : 0.0f; }

{% endif %}
{% if SLICEK == 1 and CLUSTER == 1 %}
// Writes a row of a thread's results from its registers.
__device__ __forceinline__ void store_row(const float* row, int m, int first_m, int first_n, const Epilogue& out, int rows_left,
                                          int columns_left) {
  const int i = first_m + m / kVectorM * kLanesM * kVectorM + m % kVectorM;
  if (kGuard && i >= rows_left) return;
#pragma unroll
  for (int n = 0; n < kThreadN; n += kStoreC) {
    const int j = first_n + n / kVectorN * kLanesN * kVectorN + n % kVectorN;
    out.store<kStoreC>(i, j, row + n, kGuard ? columns_left - j : kStoreC);
  }
}

__device__ __forceinline__ void store_sums(const float (&sums)[kThreadM][kThreadN], int first_m, int first_n, const Epilogue& out,
                                           int rows_left, int columns_left) {
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) store_row(sums[m], m, first_m, first_n, out, rows_left, columns_left);
}
{% if STREAM > 0 %}

// Leaves a thread's part of a tile to the last of the `parts` blocks that share it, which adds up and writes the result. A
// warp's lanes have theirs side by side, whatever their place in C.
__device__ __forceinline__ void share_sums(const float (&sums)[kThreadM][kThreadN], float* home, unsigned* counter,
                                           unsigned part, unsigned parts, float* shared, int, int first_m, int first_n,
                                           const Epilogue& out, int rows_left, int columns_left) {
  const bool gathered = parts <= kGathered;
  home += threadIdx.x * kVectorN;
  float* const mine = home + (gathered ? part_offset(part) : 0);
  const float one = hidden_one(rows_left);
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
    for (int n = 0; n < kThreadN; n += kVectorN) {
      float own[kVectorN];
      set_apart<kVectorN>(own, sums[m] + n, one);
      if (gathered) {
        store_global<kVectorN>(mine + (m * kThreadN + n) * kThreads, own);
      } else {
        add_global<kVectorN>(mine + (m * kThreadN + n) * kThreads, own);
      }
    }
  }
  if (!last_to_arrive(counter, parts, shared)) return;
  // Some rows at a time, whose loads are under way together: all of them would take more registers than the main loop.
  constexpr int kRows = kThreadM * kThreadN <= 32 ? kThreadM : kThreadN >= 32 ? 1 : 32 / kThreadN;
#pragma unroll
  for (int first = 0; first < kThreadM; first += kRows) {
    float total[kRows][kThreadN];
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int n = 0; n < kThreadN; ++n) total[m][n] = 0.0f;
    }
#pragma unroll 1
    for (unsigned p = 0; p < (gathered ? parts : 1); ++p) {
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
#pragma unroll
        for (int n = 0; n < kThreadN; n += kVectorN) {
          if (first + m < kThreadM) take_global<kVectorN>(total[m] + n, home + part_offset(p) + ((first + m) * kThreadN + n) * kThreads);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      if (first + m < kThreadM) store_row(total[m], first + m, first_m, first_n, out, rows_left, columns_left);
    }
  }
}
{% endif %}
{% else %}
// Where the sums of several warps or blocks meet: a tile of C for each slice, in the place of the stages.
constexpr int kPitchC = kBlockN + 4;  // lanes that lie below each other write to other banks
constexpr int kVectors = kBlockM * kBlockN / 4;

__device__ __forceinline__ void stage_sums(const float (&sums)[kThreadM][kThreadN], float* shared, int slice, int first_m,
                                           int first_n, int rows_left) {
  __syncthreads();  // nobody reads the stages any more
  float* const tile = shared + slice * kBlockM * kPitchC;
  const float one = hidden_one(rows_left);
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

__device__ __forceinline__ void store_vector(const float (&total)[4], int number, const Epilogue& out, int rows_left,
                                             int columns_left) {
  const int i = number / (kBlockN / 4), j = number % (kBlockN / 4) * 4;
  if (kGuard && i >= rows_left) return;
#pragma unroll
  for (int q = 0; q < 4; q += kStoreC) out.store<kStoreC>(i, j + q, total + q, kGuard ? columns_left - j - q : kStoreC);
}

// Adds up the sums of all warps and blocks that own the same results and writes them; all threads of all blocks take part.
__device__ __forceinline__ void join_sums(const float (&sums)[kThreadM][kThreadN], float* shared, int slice, int first_m,
                                          int first_n, int rank, const Epilogue& out, int rows_left, int columns_left) {
  stage_sums(sums, shared, slice, first_m, first_n, rows_left);
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
    store_vector(total, number, out, rows_left, columns_left);
  }
  cluster_wait();  // a block that left would take its shared memory with it
{% else %}
  __syncthreads();
  for (int number = threadIdx.x; number < kVectors; number += kThreads) {
    float total[4];
    sum_slices(total, shared, number);
    store_vector(total, number, out, rows_left, columns_left);
  }
{% endif %}
}
{% if STREAM > 0 %}

// Leaves the block's part of a tile to the last of the `parts` blocks that share it, which adds up and writes the result.
__device__ __forceinline__ void share_sums(const float (&sums)[kThreadM][kThreadN], float* home, unsigned* counter,
                                           unsigned part, unsigned parts, float* shared, int slice, int first_m, int first_n,
                                           const Epilogue& out, int rows_left, int columns_left) {
  constexpr int kPasses = (kVectors + kThreads - 1) / kThreads;
  const bool gathered = parts <= kGathered;
  float* const mine = home + (gathered ? part_offset(part) : 0);
  stage_sums(sums, shared, slice, first_m, first_n, rows_left);
  __syncthreads();
  for (int number = threadIdx.x; number < kVectors; number += kThreads) {
    float own[4];
    sum_slices(own, shared, number);
    if (gathered) {
      store_global<4>(mine + number * 4, own);
    } else {
      add_global<4>(mine + number * 4, own);
    }
  }
  if (!last_to_arrive(counter, parts, shared)) return;
  float total[kPasses][4];
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
    for (int q = 0; q < 4; ++q) total[pass][q] = 0.0f;
  }
#pragma unroll 1
  for (unsigned p = 0; p < (gathered ? parts : 1); ++p) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int number = pass * kThreads + threadIdx.x;
      if (kVectors % kThreads == 0 || number < kVectors) take_global<4>(total[pass], home + part_offset(p) + number * 4);
    }
  }
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int number = pass * kThreads + threadIdx.x;
    if (kVectors % kThreads == 0 || number < kVectors) store_vector(total[pass], number, out, rows_left, columns_left);
  }
}
{% endif %}
{% endif %}

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
{% if ORDER == "zigzag2" %}
  // Down and up again through two rows at a time: each multiply-add shares an operand with the one before it, in turns.
#pragma unroll
  for (int step = 0; step < kThreadM * kThreadN; ++step) {
    const int pair = step / (2 * kThreadN), across = step % (2 * kThreadN) / 2;
    const int n = pair % 2 == 1 ? kThreadN - 1 - across : across;
    const int m = 2 * pair + (step + across + pair * kThreadN) % 2;
    sums[m][n] += a[m] * b[n];
  }
{% else %}
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
    for (int step = 0; step < kThreadN; ++step) {
      // Turning back at the end of each row keeps an operand in the register cache.
      const int n = kSerpentine && m % 2 == 1 ? kThreadN - 1 - step : step;
      sums[m][n] += a[m] * b[n];
    }
  }
{% endif %}
}

// Adds up a thread's part of a tile of C over `tiles` tiles of A and B, of which the first begin at `a` and `b`.
__device__ __forceinline__ void accumulate(float (&sums)[kThreadM][kThreadN], const float* a, int lda, const float* b, int ldb,
                                           Edge edge, int depth_left, int tiles, float* shared,
                                           const float* fragments_a, const float* fragments_b{% if BULK_A or BULK_B %},
                                           Barriers& barriers{% endif %}) {
#pragma unroll
  for (int m = 0; m < kThreadM; ++m) {
#pragma unroll
    for (int n = 0; n < kThreadN; ++n) sums[m][n] = 0.0f;
  }
  TileLoader loader;
  loader.begin(a, lda, b, ldb, shared, edge.rows, edge.columns, depth_left);
{% if BULK_A or BULK_B %}
  loader.full = barriers.first;
{% endif %}

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
    for (int k = 0; k < kDepth; ++k) {
      const int now = kDoubleFragments ? k % 2 : 0;
      if (!kDoubleFragments) load_fragments(fragment_a[0], fragment_b[0], fragments_a, fragments_b, k);
      if (kDoubleFragments && k + 1 < kDepth) load_fragments(fragment_a[1 - now], fragment_b[1 - now], fragments_a, fragments_b, k + 1);
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
{% if BULK_A or BULK_B %}
        loader.start_bulk();
{% endif %}
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
{% if LOAD in ("cpasync", "tma") and not (BULK_A or BULK_B) %}
      commit_copies();
{% endif %}
    }
{% if BULK_A or BULK_B %}
    barriers.wait(0);
{% elif LOAD in ("cpasync", "tma") %}
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
{% if BULK_A or BULK_B %}
      if (more) loader.start_bulk();
{% endif %}
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        const int now = kDoubleFragments ? k % 2 : 0;
        if (!kDoubleFragments) load_fragments(fragment_a[0], fragment_b[0], stage_a, stage_b, k);

        // The next tile to fetch goes to the stage that was computed on last; its runs are spread over the steps.
{% if LOAD in ("cpasync", "tma") %}
        constexpr int kFetchSteps = kDoubleFragments ? kDepth - 1 : kDepth;
{% else %}
        constexpr int kFetchSteps = kDepth / 2;  // early, since the values are needed at the last step
{% endif %}
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
{% if BULK_A or BULK_B %}
          if (tile + 1 < tiles) barriers.wait(stage);
{% elif LOAD in ("cpasync", "tma") %}
          commit_copies();  // also where it is empty: the count of groups has to go on
          wait_copies<kStages - 2>();
{% endif %}
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
{% endif %}
}

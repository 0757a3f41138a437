// Sums of several blocks in global memory that is zero before and after, finished by the last of them to arrive.

// Adds `Width` floats, aligned to as many, to what other blocks may be adding to.
template <int Width>
__device__ __forceinline__ void add_global(float* to, const float* from) {
#ifdef AUTOTUNE_HOST
  for (int i = 0; i < Width; ++i) to[i] += from[i];
#elif __CUDA_ARCH__ >= 900
  if (Width == 4) {
    asm volatile("red.global.add.v4.f32 [%0], { %1, %2, %3, %4 };" ::"l"(to), "f"(from[0]), "f"(from[1 % Width]),
                 "f"(from[2 % Width]), "f"(from[3 % Width])
                 : "memory");
  } else if (Width == 2) {
    asm volatile("red.global.add.v2.f32 [%0], { %1, %2 };" ::"l"(to), "f"(from[0]), "f"(from[1 % Width]) : "memory");
  } else {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(from[0]) : "memory");
  }
#else
#pragma unroll
  for (int i = 0; i < Width; ++i) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to + i), "f"(from[i]) : "memory");
#endif
}

template <int Width>
__device__ __forceinline__ void leave_zeros(float* to) {
  const float zeros[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  store_global<Width>(to, zeros);
}

// Adds a part, past the L1, to `to` and leaves zeros in its place.
template <int Width>
__device__ __forceinline__ void take_global(float* to, float* from) {
  float part[Width];
#ifdef AUTOTUNE_HOST
  for (int i = 0; i < Width; ++i) part[i] = from[i];
#else
  if (Width == 4) {
    asm volatile("ld.global.cg.v4.f32 { %0, %1, %2, %3 }, [%4];"
                 : "=f"(part[0]), "=f"(part[1 % Width]), "=f"(part[2 % Width]), "=f"(part[3 % Width])
                 : "l"(from)
                 : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < Width; ++i) asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(part[i]) : "l"(from + i) : "memory");
  }
#endif
#pragma unroll
  for (int i = 0; i < Width; ++i) to[i] += part[i];
  leave_zeros<Width>(from);
}

// For all threads of a block: whether all others of `expected` blocks have arrived already. `shared` is a word that nobody
// uses. The counter is then zero again.
__device__ __forceinline__ bool others_arrived(unsigned* counter, unsigned expected, float* shared) {
  int* const all = reinterpret_cast<int*>(shared);
  __syncthreads();
  if (threadIdx.x == 0) {
#ifdef AUTOTUNE_HOST
    const unsigned before = *counter;
#else
    const unsigned before = atomicAdd(counter, 0u);
    __threadfence();
#endif
    *all = before == expected - 1;
    if (*all) *counter = 0;
  }
  __syncthreads();
  return *all != 0;
}

// For all threads of a block, after their additions: whether it is the last of `expected` blocks. `shared` is a word that
// nobody uses. The counter is zero again after the last.
__device__ __forceinline__ bool last_to_arrive(unsigned* counter, unsigned expected, float* shared) {
  int* const last = reinterpret_cast<int*>(shared);
  __syncthreads();
  if (threadIdx.x == 0) {
#ifdef AUTOTUNE_HOST
    const unsigned before = (*counter)++;
#else
    // One fence stands for the whole block: what its threads added came before the barrier.
    __threadfence();
    const unsigned before = atomicAdd(counter, 1u);
    __threadfence();
#endif
    *last = before == expected - 1;
    if (*last) *counter = 0;
  }
  __syncthreads();
  return *last != 0;
}

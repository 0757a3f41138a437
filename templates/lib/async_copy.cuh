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

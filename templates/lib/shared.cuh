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

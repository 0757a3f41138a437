// Blocks of one cluster (compute capability 9.0 and later) see each other's shared memory.

// Waits until all threads of the cluster are here, and have what the others wrote before.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The float that lies at `shared` in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ float load_cluster(const float* shared, unsigned rank) {
  const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  unsigned there;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
  return value;
}

// Blocks of one cluster (compute capability 9.0 and later) see each other's shared memory.

// Waits until all threads of the cluster are here, and have what the others wrote before.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
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

// The same for four floats that lie at a multiple of 16 bytes.
__device__ __forceinline__ void load_cluster_vector(float (&to)[4], const float* shared, unsigned rank) {
  const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 { %0, %1, %2, %3 }, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(there)
               : "memory");
}

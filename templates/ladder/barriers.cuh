// Barriers in shared memory that count bytes as well as arrivals (compute capability 9.0 and later). A phase of one ends when its
// single arrival is in and all bytes that this arrival announced have been written; the barrier is then ready for the next phase.
__device__ __forceinline__ unsigned barrier_address(unsigned long long* barrier) {
  return static_cast<unsigned>(__cvta_generic_to_shared(barrier));
}

__device__ __forceinline__ void init_barrier(unsigned long long* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_address(barrier)) : "memory");
}

// Makes fresh barriers known to the unit that copies.
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// The phase's one arrival: it announces how many bytes the copies will write.
__device__ __forceinline__ void arrive_expecting(unsigned long long* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier_address(barrier)), "r"(bytes) : "memory");
}

// Returns when the phase of this parity has ended. The instruction itself sleeps for a while before it says no.
__device__ __forceinline__ void wait_phase(unsigned long long* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier_address(barrier)),
      "r"(parity)
      : "memory");
}

// Copies `bytes` that lie side by side, both ends and the size multiples of 16 bytes; the barrier counts them as they arrive.
__device__ __forceinline__ void copy_bulk(float* to, const float* from, unsigned bytes, unsigned long long* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(bytes), "r"(barrier_address(barrier))
               : "memory");
}

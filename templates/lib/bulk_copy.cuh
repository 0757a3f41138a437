// Bulk copies from global to shared memory (compute capability 9.0 and later), and the barriers in shared memory that tell
// when they have arrived. A barrier goes through phases; one ends when all expected arrivals and bytes are there.

__device__ __forceinline__ void begin_barrier(SharedAddress barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes what this thread has written to shared memory, barriers included, known to bulk copies that start later.
__device__ __forceinline__ void publish_to_copies() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

// One arrival, and so many bytes to come.
__device__ __forceinline__ void expect_bytes(SharedAddress barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// One arrival, as soon as all asynchronous copies that this thread has started are complete.
__device__ __forceinline__ void arrive_after_copies(SharedAddress barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Copies `bytes` that lie together; addresses and size are multiples of 16.
__device__ __forceinline__ void copy_bulk(SharedAddress to, const float* from, int bytes, SharedAddress barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

// Waits until the phase of this parity has ended.
__device__ __forceinline__ void wait_barrier(SharedAddress barrier, unsigned parity) {
  __syncwarp();  // all that this warp is to start has been started
  unsigned done;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

// Lets a rendered CUDA kernel compile and run on the CPU, unchanged, to find wrong results, races and stray accesses.
// For tests, not for speed.
//
// One block runs at a time. By default its threads are fibers that run in turn until each reaches a barrier, so that a
// missing barrier gives the same wrong result every time. With AUTOTUNE_THREADS they are OS threads, for ThreadSanitizer.
// Shared memory starts as NaN. Asynchronous copies arrive as late as the kernel's waits allow, or with AUTOTUNE_THREADS at
// once, so that both kinds of mistake show.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>
#ifdef AUTOTUNE_THREADS
#include <condition_variable>
#include <mutex>
#include <thread>
#define AUTOTUNE_LOCAL thread_local
#else
#include <ucontext.h>
#define AUTOTUNE_LOCAL
#endif

#define AUTOTUNE_HOST 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) double2 { double x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline AUTOTUNE_LOCAL uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T __ldg(const T* from) { return *from; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }

namespace autotune_host {

[[noreturn]] inline void fail(const char* message) {
  std::fprintf(stderr, "autotune: %s in block (%u, %u, %u)\n", message, blockIdx.x, blockIdx.y, blockIdx.z);
  std::exit(3);
}

struct Copy { float* to; const float* from; int width, valid; };

struct Thread {
  uint3 index{};
  std::vector<Copy> open;                 // copies of the group that is not yet committed
  std::deque<std::vector<Copy>> groups;   // committed, oldest first
#ifndef AUTOTUNE_THREADS
  ucontext_t context;
  enum { ready, at_warp, at_block, done } state = ready;
#endif
};

inline std::vector<Thread> threads;
inline AUTOTUNE_LOCAL Thread* current;
inline std::vector<std::array<std::uint64_t, 32>> exchange;  // one slot a lane, for shuffles
inline float* shared_memory;

inline unsigned linear_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline float* dynamic_shared() { return shared_memory; }

// --- asynchronous copies

inline void perform(const Copy& copy) {
  for (int i = 0; i < copy.width; ++i) copy.to[i] = i < copy.valid ? copy.from[i] : 0.0f;
}
inline void copy_async(float* to, const float* from, int width, int valid) {
  const auto bytes = static_cast<std::uintptr_t>(4 * width);
  if (reinterpret_cast<std::uintptr_t>(to) % bytes || reinterpret_cast<std::uintptr_t>(from) % bytes) {
    fail("asynchronous copy is not aligned to its width");
  }
  if (valid < 0 || valid > width) fail("asynchronous copy of a wrong length");
#ifdef AUTOTUNE_THREADS
  perform({to, from, width, valid});
#else
  current->open.push_back({to, from, width, valid});
#endif
}
inline void commit_copies() {
  current->groups.push_back(std::move(current->open));
  current->open.clear();
}
inline void wait_copies(int pending) {
  while (current->groups.size() > static_cast<std::size_t>(pending)) {
    for (const Copy& copy : current->groups.front()) perform(copy);
    current->groups.pop_front();
  }
}

// --- barriers and the life of a block

#ifdef AUTOTUNE_THREADS

class Barrier {
 public:
  void reset(unsigned members) { members_ = members, arrived_ = 0; }
  void wait() {
    std::unique_lock lock(mutex_);
    const unsigned long phase = phase_;
    if (++arrived_ == members_) return release();
    changed_.wait(lock, [&] { return phase_ != phase; });
  }
  void leave() {
    std::unique_lock lock(mutex_);
    if (--members_ > 0 && arrived_ == members_) release();
  }

 private:
  void release() { arrived_ = 0, ++phase_, changed_.notify_all(); }
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned members_ = 0, arrived_ = 0;
  unsigned long phase_ = 0;
};

inline Barrier block_barrier;
inline std::deque<Barrier> warp_barriers;

inline void wait_block() { block_barrier.wait(); }
inline void wait_warp() { warp_barriers[linear_thread() / 32].wait(); }

template <class Body>
void run_block(const Body& body) {
  const unsigned count = static_cast<unsigned>(threads.size());
  block_barrier.reset(count);
  warp_barriers.resize((count + 31) / 32);
  for (unsigned w = 0; w < warp_barriers.size(); ++w) warp_barriers[w].reset(min(32u, count - 32 * w));
  std::vector<std::thread> running;
  for (Thread& thread : threads) {
    running.emplace_back([&thread, &body] {
      current = &thread, threadIdx = thread.index;
      body();
      warp_barriers[linear_thread() / 32].leave();
      block_barrier.leave();
    });
  }
  for (std::thread& thread : running) thread.join();
}

#else

inline ucontext_t scheduler;
inline const void* block_body;

inline void yield_as(decltype(Thread::state) state) {
  current->state = state;
  swapcontext(&current->context, &scheduler);
}
inline void wait_block() { yield_as(Thread::at_block); }
inline void wait_warp() { yield_as(Thread::at_warp); }

// Makes ready the threads [first, last) if all that still run wait in `state`.
inline bool release(std::size_t first, std::size_t last, decltype(Thread::state) state) {
  bool any = false;
  for (std::size_t t = first; t < last; ++t) {
    if (threads[t].state != state && threads[t].state != Thread::done) return false;
    any |= threads[t].state == state;
  }
  for (std::size_t t = first; t < last; ++t) {
    if (threads[t].state == state) threads[t].state = Thread::ready;
  }
  return any;
}

template <class Body>
void run_block(const Body& body) {
  constexpr std::size_t stack_bytes = 256 * 1024;
  static std::vector<char*> stacks;
  while (stacks.size() < threads.size()) stacks.push_back(static_cast<char*>(std::malloc(stack_bytes)));
  block_body = &body;
  for (std::size_t t = 0; t < threads.size(); ++t) {
    getcontext(&threads[t].context);
    threads[t].context.uc_stack.ss_sp = stacks[t];
    threads[t].context.uc_stack.ss_size = stack_bytes;
    threads[t].context.uc_link = &scheduler;
    makecontext(&threads[t].context, +[] {
      (*static_cast<const Body*>(block_body))();
      current->state = Thread::done;
    }, 0);
  }
  for (bool released = true; released;) {
    for (Thread& thread : threads) {
      if (thread.state != Thread::ready) continue;
      current = &thread, threadIdx = thread.index;
      swapcontext(&scheduler, &thread.context);
    }
    released = release(0, threads.size(), Thread::at_block);
    for (std::size_t t = 0; t < threads.size(); t += 32) {
      released |= release(t, min(t + 32, threads.size()), Thread::at_warp);
    }
  }
  for (const Thread& thread : threads) {
    if (thread.state != Thread::done) fail("threads wait at barriers that the others never reach");
  }
}

#endif

template <class T>
T shuffle(T value, unsigned from_lane) {
  static_assert(sizeof(T) <= 8);
  const unsigned warp = linear_thread() / 32, lane = linear_thread() % 32;
  std::memcpy(&exchange[warp][lane], &value, sizeof(T));
  wait_warp();
  std::memcpy(&value, &exchange[warp][from_lane % 32], sizeof(T));
  wait_warp();
  return value;
}

// Runs all blocks of a launch, in order; each has shared memory of exactly the size asked for.
template <class Body>
void run_grid(dim3 grid, dim3 block, std::size_t smem_bytes, const Body& body) {
  gridDim = grid, blockDim = block;
  const unsigned count = block.x * block.y * block.z;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        void* memory = nullptr;
        if (posix_memalign(&memory, 128, smem_bytes)) fail("no memory");
        std::memset(memory, 0xff, smem_bytes);
        shared_memory = static_cast<float*>(memory);
        threads.assign(count, Thread());
        exchange.assign((count + 31) / 32, {});
        for (unsigned t = 0; t < count; ++t) threads[t].index = {t % block.x, t / block.x % block.y, t / block.x / block.y};
        run_block(body);
        std::free(memory);
      }
    }
  }
}

}  // namespace autotune_host

inline void __syncthreads() { autotune_host::wait_block(); }
inline void __syncwarp(unsigned = ~0u) { autotune_host::wait_warp(); }
template <class T> T __shfl_sync(unsigned, T value, int lane) { return autotune_host::shuffle(value, lane); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
  return autotune_host::shuffle(value, (autotune_host::linear_thread() % 32) ^ mask);
}
template <class T> T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = autotune_host::linear_thread() % 32;
  return autotune_host::shuffle(value, lane + delta < 32 ? lane + delta : lane);
}

// How the threads of a block share out a tile of `Rows` x `Runs` runs of consecutive elements: the i-th run of a thread has
// the linear index thread + i * Threads. Where the counts divide, all runs of a thread lie on one straight walk from its
// first, so that a single pointer serves them; otherwise each is found by itself.
template <int Rows, int Runs, int Threads>
struct TileRuns {
  static constexpr int count = (Rows * Runs + Threads - 1) / Threads;
  static constexpr bool several_rows = Threads % Runs == 0;                     // a pass of the block takes whole rows
  static constexpr bool several_passes = !several_rows && Runs % Threads == 0;  // a row takes whole passes
  static constexpr bool straight = several_rows || several_passes;
  static constexpr int passes_per_row = several_passes ? Runs / Threads : 1;
  static constexpr int rows_per_step = several_rows ? Threads / Runs : 1;  // once for each `passes_per_row` runs

  static __device__ __forceinline__ int first_row(int thread) { return straight ? thread / Runs : 0; }
  static __device__ __forceinline__ int first_run(int thread) { return straight ? thread % Runs : 0; }

  // Row and run of the i-th, counted from the first; constants where the walk is straight.
  static __device__ __forceinline__ int row(int thread, int i) {
    return straight ? i / passes_per_row * rows_per_step : (thread + i * Threads) / Runs;
  }
  static __device__ __forceinline__ int run(int thread, int i) {
    return straight ? i % passes_per_row * Threads : (thread + i * Threads) % Runs;
  }
  // Whether the thread has an i-th run; the last pass may not need all threads.
  static __device__ __forceinline__ bool inside(int thread, int i) {
    return (i + 1) * Threads <= Rows * Runs || thread + i * Threads < Rows * Runs;
  }
};

// Reads a launch from a file, runs the kernel on buffers laid out as on the GPU, and writes the buffers back.
// The file holds 64-bit integers and raw data, as `autotune.cpu.run` writes them.
#pragma once

#include <sys/mman.h>

#include <string>
#include <type_traits>

#include "host.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace autotune_host {

inline std::int64_t read_integer(std::FILE* file) {
  std::int64_t value;
  if (std::fread(&value, sizeof value, 1, file) != 1) fail("launch file ends early");
  return value;
}

// Rows of `pitch` bytes of which the first `width` belong to the array; the allocation ends with the last element.
// What lies between rows holds 0xff, must stay so, and may not be touched under AddressSanitizer. Beyond 1 GiB it takes no
// memory and is not looked at: such pitches are there to test the arithmetic of addresses.
struct Buffer {
  std::size_t rows, width, pitch, offset;
  bool sparse;
  char* memory;

  explicit Buffer(std::FILE* file) {
    rows = read_integer(file), width = read_integer(file), pitch = read_integer(file), offset = read_integer(file);
    const std::size_t bytes = offset + (rows && width ? (rows - 1) * pitch + width : 0);
    sparse = bytes >> 30;
    void* allocated = nullptr;
    if (sparse) {
      allocated = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (allocated == MAP_FAILED) fail("no address space");
    } else {
      if (posix_memalign(&allocated, 256, bytes)) fail("no memory");
      std::memset(allocated, 0xff, bytes);
    }
    memory = static_cast<char*>(allocated);
    for (std::size_t r = 0; width && r < rows; ++r) {
      if (std::fread(row(r), 1, width, file) != width) fail("launch file ends early");
    }
    guard(true);
  }
  char* row(std::size_t r) { return memory + offset + r * pitch; }

  void guard(bool on) {
    if (!width || sparse) return;
    for (std::size_t r = 0; r + 1 < rows; ++r) {
      if (on) ASAN_POISON_MEMORY_REGION(row(r) + width, pitch - width);
      else ASAN_UNPOISON_MEMORY_REGION(row(r) + width, pitch - width);
    }
    if (on) ASAN_POISON_MEMORY_REGION(memory, offset);
    else ASAN_UNPOISON_MEMORY_REGION(memory, offset);
  }
  void write(std::FILE* file) {
    guard(false);
    bool intact = true;
    for (std::size_t i = 0; !sparse && i < offset; ++i) intact &= memory[i] == static_cast<char>(0xff);
    for (std::size_t r = 0; width && r < rows; ++r) {
      std::fwrite(row(r), 1, width, file);
      for (std::size_t i = width; !sparse && r + 1 < rows && i < pitch; ++i) intact &= row(r)[i] == static_cast<char>(0xff);
    }
    if (!intact) fail("the kernel wrote between the rows of an array");
  }
};

// Scratch memory: zero before the launch, and the kernel has to leave it so. A null pointer where it has no bytes.
struct Scratch {
  std::size_t bytes;
  char* memory = nullptr;

  explicit Scratch(std::FILE* file) : bytes(read_integer(file)) {
    void* allocated = nullptr;
    if (bytes && posix_memalign(&allocated, 256, bytes)) fail("no memory");
    if (bytes) std::memset(allocated, 0, bytes);
    memory = static_cast<char*>(allocated);
  }
  void check() const {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (memory[i]) fail(("the kernel left its scratch memory dirty at byte " + std::to_string(i)).c_str());
    }
  }
};

template <class... Arguments, std::size_t... I>
void run(void (*kernel)(Arguments...), const std::vector<void*>& values, dim3 grid, dim3 block, std::size_t smem_bytes,
         std::index_sequence<I...>) {
  run_grid(grid, block, smem_bytes, [&] { kernel(*static_cast<std::remove_cv_t<Arguments>*>(values[I])...); });
}

template <class... Arguments>
int launch_from_file(void (*kernel)(Arguments...), const char* input, const char* output) {
  std::FILE* file = std::fopen(input, "rb");
  if (!file) fail("cannot open the launch file");
  dim3 grid, block;
  for (unsigned* size : {&grid.x, &grid.y, &grid.z, &block.x, &block.y, &block.z}) *size = read_integer(file);
  const std::size_t smem_bytes = read_integer(file), count = read_integer(file);
  if (count != sizeof...(Arguments)) fail("the kernel takes another number of arguments than the launch gives");

  std::deque<Buffer> buffers;
  std::deque<Scratch> scratch;
  std::deque<std::int64_t> scalars;  // as raw bits
  std::deque<char*> pointers;
  std::vector<void*> values;
  for (std::size_t i = 0; i < count; ++i) {
    switch (read_integer(file)) {
      case 0: values.push_back(&scalars.emplace_back(read_integer(file))); break;
      case 1:
        buffers.emplace_back(file);
        values.push_back(&pointers.emplace_back(buffers.back().row(0)));
        break;
      default:
        scratch.emplace_back(file);
        values.push_back(&pointers.emplace_back(scratch.back().memory));
    }
  }
  std::fclose(file);
  run(kernel, values, grid, block, smem_bytes, std::index_sequence_for<Arguments...>());
  for (const Scratch& each : scratch) each.check();

  file = std::fopen(output, "wb");
  if (!file) fail("cannot open the result file");
  for (Buffer& buffer : buffers) buffer.write(file);
  return std::fclose(file);
}

}  // namespace autotune_host

// Stands in for the CUDA runtime, so that an exported header and the C++ example run on the CPU: device memory is host
// memory, a launch runs at once, and what was launched is kept for a test to look at.
#pragma once

#include "host.hpp"

#include <map>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNotSupported = 801
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
typedef struct Stream* cudaStream_t;
typedef double* cudaEvent_t;

namespace fake_cuda {

struct Launch {
    const void* function;
    dim3 grid, block;
    std::size_t smem_bytes;
};
inline std::vector<Launch> launches;
inline std::map<std::pair<const void*, int>, int> allowed;  // shared memory by function and device
inline int device = 0, attribute_calls = 0;
inline int streamed = 0, held = 0;  // allocations from a stream in all, and those not given back
inline bool run = true;

// The one signature that is run here.
#ifndef FAKE_CUDA_SIGNATURE
#define FAKE_CUDA_SIGNATURE int, int, int, float, const float*, int, const float*, int, float, float*, int, float*
#endif

template <class... T, std::size_t... I>
void call(const void* function, void** arguments, std::index_sequence<I...>) {
    auto* const kernel = reinterpret_cast<void (*)(T...)>(reinterpret_cast<std::uintptr_t>(function));
    kernel(*static_cast<T*>(arguments[I])...);
}
template <class... T>
void call(const void* function, void** arguments) {
    call<T...>(function, arguments, std::index_sequence_for<T...>());
}

}  // namespace fake_cuda

inline const char* cudaGetErrorString(cudaError_t status) { return status == cudaSuccess ? "success" : "error"; }
inline cudaError_t cudaGetDevice(int* device) { return *device = fake_cuda::device, cudaSuccess; }
inline cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int bytes) {
    ++fake_cuda::attribute_calls;
    fake_cuda::allowed[{function, fake_cuda::device}] = bytes;
    return bytes > 99 * 1024 ? cudaErrorInvalidValue : cudaSuccess;
}
inline cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t smem_bytes,
                                    cudaStream_t) {
    if (smem_bytes > 48 * 1024 && fake_cuda::allowed[{function, fake_cuda::device}] < static_cast<int>(smem_bytes)) {
        return cudaErrorInvalidValue;
    }
    fake_cuda::launches.push_back({function, grid, block, smem_bytes});
    if (!fake_cuda::run) return cudaSuccess;
    autotune_host::run_grid(grid, block, smem_bytes, [&] { fake_cuda::call<FAKE_CUDA_SIGNATURE>(function, arguments); });
    return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    return posix_memalign(memory, 256, bytes + 1) ? cudaErrorInvalidValue : cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
// Memory of a stream is dirty when it comes, and counted.
inline cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t) {
    const cudaError_t status = cudaMalloc(memory, bytes);
    if (status == cudaSuccess) std::memset(*memory, 0x5a, bytes), ++fake_cuda::streamed, ++fake_cuda::held;
    return status;
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t) { return --fake_cuda::held, cudaFree(memory); }
inline cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
    return std::memset(memory, value, bytes), cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new double(0), cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1.0f, cudaSuccess; }

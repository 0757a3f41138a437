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
inline bool run = true;

// The one signature that is run here.
typedef void Sgemm(int, int, int, float, const float*, int, const float*, int, float, float*, int);

template <class T> T& argument(void** arguments, int i) { return *static_cast<T*>(arguments[i]); }

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
    using fake_cuda::argument;
    if (smem_bytes > 48 * 1024 && fake_cuda::allowed[{function, fake_cuda::device}] < static_cast<int>(smem_bytes)) {
        return cudaErrorInvalidValue;
    }
    fake_cuda::launches.push_back({function, grid, block, smem_bytes});
    if (!fake_cuda::run) return cudaSuccess;
    auto* const kernel = reinterpret_cast<fake_cuda::Sgemm*>(reinterpret_cast<std::uintptr_t>(function));
    autotune_host::run_grid(grid, block, smem_bytes, [&] {
        kernel(argument<int>(arguments, 0), argument<int>(arguments, 1), argument<int>(arguments, 2),
               argument<float>(arguments, 3), argument<const float*>(arguments, 4), argument<int>(arguments, 5),
               argument<const float*>(arguments, 6), argument<int>(arguments, 7), argument<float>(arguments, 8),
               argument<float*>(arguments, 9), argument<int>(arguments, 10));
    });
    return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    return posix_memalign(memory, 256, bytes + 1) ? cudaErrorInvalidValue : cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new double(0), cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1.0f, cudaSuccess; }

// Checks an exported sgemm against the CPU at sizes that suit no tile, then times it.
//
//     sgemm_check [--check] [--size 4096 | MxNxK] [--calls 20] [--json]
//
// --check leaves the timing out. --json prints one JSON object on the last line instead of text.
// Exits with 1 where a result is wrong, 2 on a bad argument, 3 where CUDA reports an error.

#include AUTOTUNE_HEADER

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

using autotune::AUTOTUNE_SCOPE::sgemm;
using autotune::AUTOTUNE_SCOPE::sgemm_choose;
using autotune::AUTOTUNE_SCOPE::sgemm_config;

cudaError_t sgemm_of_second_file(cudaStream_t stream, int m, int n, int k, float alpha, const float* a, int lda,
                                 const float* b, int ldb, float beta, float* c, int ldc);

namespace {

// The header's function with its default workspace.
cudaError_t sgemm_of_this_file(cudaStream_t stream, int m, int n, int k, float alpha, const float* a, int lda, const float* b,
                               int ldb, float beta, float* c, int ldc) {
    return sgemm(stream, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void require(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(3);
}

// Values in [-1, 1), the same at every run.
class Random {
public:
    float next() {
        state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<float>(state_ >> 40) / static_cast<float>(1 << 23) - 1.0f;
    }

private:
    unsigned long long state_ = 1;
};

// An array on the device, `offset` elements past the start of its allocation.
class DeviceArray {
public:
    DeviceArray(const std::vector<float>& host, size_t offset) : offset_(offset) {
        require(cudaMalloc(reinterpret_cast<void**>(&memory_), (host.size() + offset + 1) * sizeof(float)), "cudaMalloc");
        if (!host.empty()) {
            require(cudaMemcpy(data(), host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
        }
    }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() { cudaFree(memory_); }

    float* data() const { return memory_ + offset_; }

    void read(std::vector<float>& host) const {
        if (!host.empty()) {
            require(cudaMemcpy(host.data(), data(), host.size() * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
        }
    }

private:
    float* memory_ = nullptr;
    size_t offset_;
};

struct Case {
    int m, n, k;
    int extra_a, extra_b, extra_c;  // beyond the packed pitches
    int offset;                     // of all pointers, in elements
    float alpha, beta;
    bool second;  // through the other translation unit
};

constexpr float kUntouched = 12345.0f;

std::vector<float> matrix(Random& random, int rows, int columns, int pitch, float padding) {
    std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(pitch), padding);
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) values[static_cast<size_t>(i) * pitch + j] = random.next();
    }
    return values;
}

// The largest error over the tolerance for sums of k products; above 1 is wrong, as is a touched gap between rows.
double worst_error(const Case& test) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const int lda = test.k + test.extra_a, ldb = test.n + test.extra_b, ldc = test.n + test.extra_c;
    Random random;
    // Gaps between rows are NaN: reading them shows in the result.
    const std::vector<float> a = matrix(random, test.m, test.k, lda, nan);
    const std::vector<float> b = matrix(random, test.k, test.n, ldb, nan);
    std::vector<float> c = matrix(random, test.m, test.n, ldc, kUntouched);
    if (test.beta == 0.0f) {
        for (int i = 0; i < test.m; ++i) {
            for (int j = 0; j < test.n; ++j) c[static_cast<size_t>(i) * ldc + j] = nan;
        }
    }
    const size_t offset = static_cast<size_t>(test.offset);
    const DeviceArray device_a(a, offset), device_b(b, offset), device_c(c, offset);
    const auto product = test.second ? sgemm_of_second_file : sgemm_of_this_file;
    require(product(nullptr, test.m, test.n, test.k, test.alpha, device_a.data(), lda, device_b.data(), ldb, test.beta,
                    device_c.data(), ldc),
            "sgemm");
    require(cudaDeviceSynchronize(), "sgemm");
    std::vector<float> result(c.size());
    device_c.read(result);

    double worst = 0;
    for (int i = 0; i < test.m; ++i) {
        for (int j = 0; j < ldc; ++j) {
            const size_t at = static_cast<size_t>(i) * ldc + j;
            if (j >= test.n) {
                if (result[at] != kUntouched) return HUGE_VAL;
                continue;
            }
            double sum = 0, magnitude = 0;
            for (int k = 0; k < test.k; ++k) {
                const double product =
                    static_cast<double>(a[static_cast<size_t>(i) * lda + k]) * b[static_cast<size_t>(k) * ldb + j];
                sum += product;
                magnitude += std::fabs(product);
            }
            double expected = test.alpha * sum;
            double scale = std::fabs(test.alpha) * magnitude;
            if (test.beta != 0.0f) {
                expected += static_cast<double>(test.beta) * c[at];
                scale += std::fabs(static_cast<double>(test.beta) * c[at]);
            }
            const double tolerance = (2 + std::sqrt(static_cast<double>(test.k))) * 1.2e-7 * scale;
            const double error = std::fabs(result[at] - expected);
            const double ratio = error == 0 ? 0 : error / tolerance;
            if (!(ratio <= worst)) worst = std::isnan(ratio) ? HUGE_VAL : ratio;
        }
    }
    return worst;
}

// How many of the checks failed.
int check() {
    const int sizes[][3] = {{1, 1, 1},      {7, 5, 3},      {33, 65, 17},   {127, 129, 31}, {128, 128, 128}, {256, 128, 64},
                            {200, 260, 72}, {1, 300, 70},   {300, 1, 70},   {96, 40, 257},  {64, 64, 0},     {0, 8, 8},
                            {8, 0, 8},      {130, 132, 40}};
    const int layouts[][4] = {{0, 0, 0, 0}, {4, 8, 4, 0}, {1, 3, 5, 0}, {2, 2, 2, 2}, {0, 0, 0, 1}};
    const float factors[][2] = {{1, 0}, {0.5f, 1}, {-2, 0.5f}, {0, 0}, {0, 2}};
    int number = 0, failed = 0;
    for (const auto& size : sizes) {
        for (const auto& layout : layouts) {
            // Each layout meets each pair of factors over the sizes.
            const auto& factor = factors[(number + number / 5) % 5];
            const Case test = {size[0],   size[1],   size[2],   layout[0], layout[1], layout[2],
                               layout[3], factor[0], factor[1], number % 2 == 1};
            const double worst = worst_error(test);
            if (worst > 1) {
                std::fprintf(stderr, "WRONG %dx%dx%d, pitches +%d +%d +%d, offset %d, alpha %g, beta %g: %g x tolerance\n",
                             test.m, test.n, test.k, test.extra_a, test.extra_b, test.extra_c, test.offset, test.alpha,
                             test.beta, worst);
                ++failed;
            }
            ++number;
        }
    }

    // Arguments without meaning are refused, with nothing launched.
    const DeviceArray array(std::vector<float>(64, 1.0f), 0);
    float* const p = array.data();
    const cudaError_t refused[] = {
        sgemm(nullptr, -1, 8, 8, 1, p, 8, p, 8, 0, p, 8),      sgemm(nullptr, 8, 8, 8, 1, p, 7, p, 8, 0, p, 8),
        sgemm(nullptr, 8, 8, 8, 1, p, 8, p, 7, 0, p, 8),       sgemm(nullptr, 8, 8, 8, 1, p, 8, p, 8, 0, p, 7),
        sgemm(nullptr, 8, 8, 8, 1, nullptr, 8, p, 8, 0, p, 8), sgemm(nullptr, 8, 8, 8, 1, p, 8, p, 8, 0, nullptr, 8),
    };
    for (const cudaError_t status : refused) {
        if (status != cudaErrorInvalidValue) {
            std::fprintf(stderr, "WRONG: arguments without meaning gave %s\n", cudaGetErrorString(status));
            ++failed;
        }
        ++number;
    }
    std::fprintf(stderr, "%d of %d checks passed\n", number - failed, number);
    return failed;
}

// Milliseconds of one call: the least of several runs of `calls` calls, all from a warm cache.
double time_ms(int m, int n, int k, int calls) {
    Random random;
    const DeviceArray a(matrix(random, m, k, k, 0), 0), b(matrix(random, k, n, n, 0), 0);
    const DeviceArray c(std::vector<float>(static_cast<size_t>(m) * static_cast<size_t>(n)), 0);
    cudaEvent_t begin, end;
    require(cudaEventCreate(&begin), "cudaEventCreate");
    require(cudaEventCreate(&end), "cudaEventCreate");
    double best = HUGE_VAL;
    for (int run = 0; run < 6; ++run) {  // the first one warms up
        require(cudaEventRecord(begin, nullptr), "cudaEventRecord");
        for (int call = 0; call < calls; ++call) {
            require(sgemm(nullptr, m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n), "sgemm");
        }
        require(cudaEventRecord(end, nullptr), "cudaEventRecord");
        require(cudaEventSynchronize(end), "cudaEventSynchronize");
        float elapsed = 0;
        require(cudaEventElapsedTime(&elapsed, begin, end), "cudaEventElapsedTime");
        if (run > 0 && elapsed / calls < best) best = elapsed / calls;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best;
}

[[noreturn]] void usage(const char* argument) {
    std::fprintf(stderr, "bad argument '%s'\nsgemm_check [--check] [--size 4096 | MxNxK] [--calls 20] [--json]\n", argument);
    std::exit(2);
}

}  // namespace

int main(int count, char** arguments) {
    bool only_check = false, json = false;
    int m = 4096, n = 4096, k = 4096, calls = 20;
    for (int i = 1; i < count; ++i) {
        char rest;
        if (!std::strcmp(arguments[i], "--check")) {
            only_check = true;
        } else if (!std::strcmp(arguments[i], "--json")) {
            json = true;
        } else if (!std::strcmp(arguments[i], "--size") && i + 1 < count) {
            const char* text = arguments[++i];
            if (std::sscanf(text, "%dx%dx%d%c", &m, &n, &k, &rest) != 3) {
                if (std::sscanf(text, "%d%c", &m, &rest) != 1) usage(text);
                n = k = m;
            }
            if (m < 1 || n < 1 || k < 1) usage(text);
        } else if (!std::strcmp(arguments[i], "--calls") && i + 1 < count) {
            calls = std::atoi(arguments[++i]);
            if (calls < 1) usage(arguments[i]);
        } else {
            usage(arguments[i]);
        }
    }

    const int failed = check();
    if (failed || only_check) {
        if (json) std::printf("{\"failed\": %d}\n", failed);
        return failed ? 1 : 0;
    }

    const double ms = time_ms(m, n, k, calls);
    const double gflops = 2.0 * m * n * k / ms / 1e6;
    float* const aligned = reinterpret_cast<float*>(256);  // never followed
    const auto choice = sgemm_choose(m, n, k, 1, aligned, k, aligned, n, 0, aligned, n);
    if (json) {
        std::printf("{\"failed\": 0, \"m\": %d, \"n\": %d, \"k\": %d, \"ms\": %.6g, \"gflops\": %.6g, \"exact\": %s, "
                    "\"config\": \"%s\"}\n",
                    m, n, k, ms, gflops, choice.exact ? "true" : "false", sgemm_config(choice.kernel));
    } else {
        std::printf("%dx%dx%d: %.4g ms, %.0f GFLOP/s (warm, best of 5 runs of %d calls)\nkernel %d%s: %s\n", m, n, k, ms,
                    gflops, calls, choice.kernel, choice.exact ? "" : ", of the nearest tuned size",
                    sgemm_config(choice.kernel));
    }
    return 0;
}

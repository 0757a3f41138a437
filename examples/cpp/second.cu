// The same header in a second translation unit: everything in it has internal linkage, so that this links.
#include AUTOTUNE_HEADER

cudaError_t sgemm_of_second_file(cudaStream_t stream, int m, int n, int k, float alpha, const float* a, int lda,
                                 const float* b, int ldb, float beta, float* c, int ldc) {
    return autotune::AUTOTUNE_SCOPE::sgemm(stream, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// What kernels most often use of CUDA's half-precision header, for running them on the CPU. Arithmetic rounds after each
// operation, as on the GPU.
#pragma once

#include "host.hpp"

struct __half {
  _Float16 value;
  __half() = default;
  __half(float x) : value(static_cast<_Float16>(x)) {}
  __half(double x) : value(static_cast<_Float16>(x)) {}
  __half(int x) : value(static_cast<_Float16>(x)) {}
  operator float() const { return static_cast<float>(value); }
};
struct alignas(4) __half2 { __half x, y; };
using half = __half;
using half2 = __half2;

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __int2half_rn(int x) { return __half(x); }
inline float2 __half22float2(__half2 x) { return {float(x.x), float(x.y)}; }
inline __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }

// Sums and products of two halves are exact in double, so that each result is rounded once.
inline __half __hadd(__half a, __half b) { return __half(double(float(a)) + double(float(b))); }
inline __half __hsub(__half a, __half b) { return __half(double(float(a)) - double(float(b))); }
inline __half __hmul(__half a, __half b) { return __half(double(float(a)) * double(float(b))); }
inline __half __hdiv(__half a, __half b) { return __half(float(a) / float(b)); }
inline __half __hfma(__half a, __half b, __half c) { return __half(double(float(a)) * double(float(b)) + double(float(c))); }
inline __half __hneg(__half a) { return __half(-float(a)); }
inline __half2 __hadd2(__half2 a, __half2 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }

inline __half operator+(__half a, __half b) { return __hadd(a, b); }
inline __half operator-(__half a, __half b) { return __hsub(a, b); }
inline __half operator*(__half a, __half b) { return __hmul(a, b); }
inline __half operator/(__half a, __half b) { return __hdiv(a, b); }
inline __half operator-(__half a) { return __hneg(a); }
inline __half& operator+=(__half& a, __half b) { return a = a + b; }
inline __half& operator-=(__half& a, __half b) { return a = a - b; }
inline __half& operator*=(__half& a, __half b) { return a = a * b; }

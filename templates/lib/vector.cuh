// Moves of 1, 2 or 4 floats with one instruction; the vector side has to be aligned to the width.
template <int Width>
struct Vector;

template <>
struct Vector<1> {
  static __device__ __forceinline__ void load(float* to, const float* from) { to[0] = from[0]; }
  static __device__ __forceinline__ void store(float* to, const float* from) { to[0] = from[0]; }
};

template <>
struct Vector<2> {
  static __device__ __forceinline__ void load(float* to, const float* from) {
    const float2 value = *reinterpret_cast<const float2*>(from);
    to[0] = value.x, to[1] = value.y;
  }
  static __device__ __forceinline__ void store(float* to, const float* from) {
    float2 value;
    value.x = from[0], value.y = from[1];
    *reinterpret_cast<float2*>(to) = value;
  }
};

template <>
struct Vector<4> {
  static __device__ __forceinline__ void load(float* to, const float* from) {
    const float4 value = *reinterpret_cast<const float4*>(from);
    to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
  }
  static __device__ __forceinline__ void store(float* to, const float* from) {
    float4 value;
    value.x = from[0], value.y = from[1], value.z = from[2], value.w = from[3];
    *reinterpret_cast<float4*>(to) = value;
  }
};

// Writes `Width` floats to global memory with one instruction. Said in PTX, since the compiler splits the store of a
// float4 into four wherever it cannot tell that the rows of a pitch are aligned.
template <int Width>
__device__ __forceinline__ void store_global(float* to, const float* from) {
#ifdef AUTOTUNE_HOST
  Vector<Width>::store(to, from);
#else
  if (Width == 4) {
    asm volatile("st.global.v4.f32 [%0], { %1, %2, %3, %4 };" ::"l"(to), "f"(from[0]), "f"(from[1 % Width]),
                 "f"(from[2 % Width]), "f"(from[3 % Width])
                 : "memory");
  } else if (Width == 2) {
    asm volatile("st.global.v2.f32 [%0], { %1, %2 };" ::"l"(to), "f"(from[0]), "f"(from[1 % Width]) : "memory");
  } else {
    to[0] = from[0];
  }
#endif
}

// The first `valid` of `Width` floats, and zeros after them; reads nothing past the valid ones.
template <int Width>
__device__ __forceinline__ void load_valid(float* to, const float* from, int valid) {
  if (valid >= Width) {
    Vector<Width>::load(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < Width; ++i) to[i] = i < valid ? from[i] : 0.0f;
  }
}

// The first `valid` of `Width` floats, and what was there before after them, of data that is read once: it does not displace
// others from the L1. Reads nothing past the valid ones. `from` is aligned to the width. Predicates in place of branches:
// a compiler moves the multiply-adds that should hide the loads in front of a branch.
template <int Width>
__device__ __forceinline__ void load_streamed(float* to, const float* from, int valid) {
#ifdef AUTOTUNE_HOST
  for (int i = 0; i < Width; ++i) {
    if (i < valid) to[i] = from[i];
  }
#else
  if (Width == 4) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ge.s32 p, %5, 4;\n\t"
        "@p ld.global.nc.L1::no_allocate.v4.f32 { %0, %1, %2, %3 }, [%4];\n\t}"
        : "+f"(to[0]), "+f"(to[1 % Width]), "+f"(to[2 % Width]), "+f"(to[3 % Width])
        : "l"(from), "r"(valid));
  } else if (Width == 2) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ge.s32 p, %3, 2;\n\t@p ld.global.nc.L1::no_allocate.v2.f32 { %0, %1 }, [%2];\n\t}"
        : "+f"(to[0]), "+f"(to[1 % Width])
        : "l"(from), "r"(valid));
  }
  if (Width == 1 || kGuard) {
#pragma unroll
    for (int i = 0; i < (Width == 1 ? 1 : Width - 1); ++i) {
      const int some = (Width == 1 || valid < Width) && i < valid;
      asm volatile(
          "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t@p ld.global.nc.L1::no_allocate.f32 %0, [%1];\n\t}"
          : "+f"(to[i])
          : "l"(from + i), "r"(some));
    }
  }
#endif
}

// Whether the processor has tiles, and whether the system saves them when it switches threads.
#include "weft/kernels/cpu/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft::cpu::amx {

#if defined(__x86_64__) && defined(__linux__)
namespace {

bool processor_has_tiles() {
  // Intel's manual, volume 2, CPUID: leaf 7, EDX.
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  return (edx & (kBf16 | kTile | kInt8)) == (kBf16 | kTile | kInt8);
}

// A thread's 8 KiB of tiles are saved only for processes that asked (Linux 5.16, Documentation/arch/x86/xstate).
bool system_allows_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool can_use() {
  static const bool can = processor_has_tiles() && system_allows_tiles();
  return can;
}
#else
bool can_use() { return false; }
#endif

}  // namespace weft::cpu::amx

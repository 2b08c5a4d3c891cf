// The part of CUDA's runtime and of its C++ dialect that weft's kernels use, on the CPU: the sources of the backend
// are compiled by the host's compiler against this header, and their kernels run, thread by thread, where no GPU is.
// The threads of a block are fibers that change places at barriers and shuffles; what is left out does not compile.
// Contracts: CUDA C++ Programming Guide, 13.0, and CUDA Runtime API.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define WEFT_EMULATED_CUDA
#define __global__
#define __device__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks of a thread of the host run one after another.
#define __shared__ static thread_local
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: as in CUDA
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace emulated {

void sync_block();
void sync_warp();
// Every lane gives 8 bytes and takes those of another lane, when all of the warp's live lanes have given theirs.
uint64_t exchange(uint64_t mine, int from_lane);
unsigned votes_of_warp(bool mine);  // a bit to each lane
int lane();
void* warp_memory(size_t bytes);  // of this thread's warp, at most 4 KiB

// How many asynchronous copies so far were to or from memory of the host that is not pinned: on a card the host
// waits.
int64_t num_pageable_copies();
// And how often it waited for work that was not done yet.
int64_t num_waits();

// Of a kernel that follows another every thread says so.
void run_grid(dim3 grid, dim3 block, bool follows, const std::function<void()>& body);
void follow();

template <class T>
T shuffle(T mine, int from_lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &mine, sizeof(T));
  bits = exchange(bits, from_lane);
  std::memcpy(&mine, &bits, sizeof(T));
  return mine;
}

}  // namespace emulated

// Of the thread that runs.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

// ---- inside kernels ----
inline void __syncthreads() { emulated::sync_block(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulated::sync_warp(); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::shuffle(value, emulated::lane() ^ mask);
}
inline int __any_sync(unsigned, int predicate) { return emulated::votes_of_warp(predicate != 0) != 0; }
inline unsigned __ballot_sync(unsigned, int predicate) { return emulated::votes_of_warp(predicate != 0); }
inline int __popc(unsigned x) { return std::popcount(x); }
// Threads of a grid take turns.
inline int atomicAdd(int* p, int x) { return std::exchange(*p, *p + x); }
inline unsigned atomicOr(unsigned* p, unsigned x) { return std::exchange(*p, *p | x); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline float __expf(float x) { return std::exp(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline int __float2int_rn(float x) { return int(std::nearbyint(x)); }
// Sums of products of four signed bytes.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned picks) {
  const uint64_t both = uint64_t(high) << 32 | low;
  unsigned bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= unsigned(both >> 8 * (picks >> 4 * i & 7) & 0xff) << 8 * i;
  return bytes;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += int(int8_t(a >> (8 * i))) * int(int8_t(b >> (8 * i)));
  return c;
}
using std::max;
using std::min;

// ---- the runtime ----
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorECCUncorrectable = 214,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901
};
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                         ? "no error"
         : error == cudaErrorInvalidResourceHandle    ? "invalid resource handle"
         : error == cudaErrorNotSupported             ? "operation not supported"
         : error >= cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
                                                      : "out of memory";
}
cudaError_t cudaGetLastError();

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int multiProcessorCount, major, minor;
};
cudaError_t cudaGetDeviceCount(int* count);                                   // 1, or what WEFT_EMULATED_DEVICES says
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);  // its name: WEFT_EMULATED_NAME
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
// 9.0, or what WEFT_EMULATED_CAPABILITY says: 89 is 8.9
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** p, size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaMallocHost(void** p, size_t bytes);
// Pinned memory; that of cudaHostAlloc is refused beyond WEFT_EMULATED_PINNED_BYTES in all.
inline constexpr unsigned cudaHostAllocPortable = 1;
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* p);

using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0,
                          cudaEventDisableTiming = 2;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);
// Streams run when they are called, so copies are made now.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream);

// Graphs: a capture records what is queued on its stream, in order, and a launch does it as it was recorded. While a
// thread captures, it may not allocate nor wait for that stream; what it does all the same makes the capture invalid.
using cudaGraph_t = struct EmulatedGraph*;
using cudaGraphExec_t = struct EmulatedGraph*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
// Refused while WEFT_EMULATED_NO_GRAPHS is set.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);  // refused as long as it is "launch"
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
namespace emulated {
// Does the work, now or when somebody waits for it, or records it where the stream captures.
cudaError_t queue(cudaStream_t stream, std::function<void()> work);
// All that was queued, in a stream and in those that the calling thread made.
void finish(cudaStream_t stream);
void finish_streams();
cudaError_t refuse_in_capture();                  // what may not be done while this thread captures
bool count_copy(const void* host, size_t bytes);  // whether that memory is pinned
}  // namespace emulated

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
struct cudaFuncAttributes {
  int ptxVersion = 0;
};
template <class... Params>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)(Params...)) {
  attributes->ptxVersion = 90;
  return cudaSuccess;
}
template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  const std::tuple<Params...> params(std::forward<Args>(args)...);
  const bool follows = config->numAttrs > 0 && config->attrs[0].val.programmaticStreamSerializationAllowed;
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  if (follows && major < 9) return cudaErrorNotSupported;
  return emulated::queue(config->stream, [grid = config->gridDim, block = config->blockDim, follows, kernel, params] {
    emulated::run_grid(grid, block, follows, [&] { std::apply(kernel, params); });
  });
}

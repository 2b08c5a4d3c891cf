// FusedPlan by cuDNN: plans of a device, and what runs them.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "weft/kernels/cuda/fused_graph_cudnn.h"
#include "weft/tensor/cuda/check_cuda.h"

namespace weft::cuda {
namespace {

constexpr size_t kOldestVersion = 91000;  // 9.10: devices are described apart, and masks may be infinite

// A thread's for its device, since a handle has one stream at a time. Lives until the process ends: the driver may be
// gone before destructors of a thread run.
cudnnHandle_t handle_of_this_thread() {
  thread_local std::map<int, cudnnHandle_t> handles;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tell its device");
  cudnnHandle_t& handle = handles[device];
  if (!handle) check_cudnn(cudnnCreate(&handle), "start");
  return handle;
}

class PlanOfCudnn final : public FusedPlan {
 public:
  PlanOfCudnn(CudnnPlan plan, int window) : plan_(std::move(plan)), window_(float(window)) {}

  size_t workspace_bytes() const override { return plan_.workspace_bytes; }

  void queue(cudaStream_t stream, const FusedCall& call) const override {
    float scale = call.scale, one = 1, window = window_;
    float padding = -std::numeric_limits<float>::infinity(), unseen = padding, passed = padding;
    std::array<int64_t, kPassed> ids;
    std::array<void*, kPassed> pointers;
    int64_t count = 0;
    const auto give = [&](int64_t id, const void* p) {
      if (!takes(id)) return;
      check(p, "attention by cuDNN: tensor {} is missing", id);
      ids[size_t(count)] = id, pointers[size_t(count++)] = const_cast<void*>(p);
    };
    give(kQ, call.q), give(kK, call.k), give(kV, call.v), give(kY, call.y), give(kLse, call.lse), give(kDy, call.dy);
    give(kDq, call.dq), give(kDk, call.dk), give(kDv, call.dv), give(kRowSums, call.row_sums);
    give(kQBegin, call.q_begin), give(kKBegin, call.k_begin), give(kVBegin, call.v_begin),
        give(kYBegin, call.y_begin), give(kLseBegin, call.lse_begin);
    give(kNumQueries, call.num_queries), give(kNumKeys, call.num_keys);
    give(kScale, &scale), give(kOne, &one), give(kPadding, &padding), give(kUnseen, &unseen), give(kWindow, &window),
        give(kPassed, &passed);
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, call.workspace);
    pack.finish("take pointers");
    const cudnnHandle_t handle = handle_of_this_thread();
    check_cudnn(cudnnSetStream(handle, stream), "take a stream");
    check_cudnn(cudnnBackendExecute(handle, plan_.descriptor.raw(), pack.raw()), "run attention");
  }

 private:
  bool takes(int64_t id) const { return std::find(plan_.ids.begin(), plan_.ids.end(), id) != plan_.ids.end(); }

  CudnnPlan plan_;
  float window_;
};

}  // namespace

bool has_fused_plans() { return cudnnGetVersion() >= kOldestVersion; }

std::shared_ptr<const FusedPlan> make_fused_plan(const FusedKey& key) {
  if (!has_fused_plans()) return nullptr;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tell its device");
  std::optional<CudnnPlan> plan = fused_graph(key).plan(cudnn_device(device));
  return plan ? std::make_shared<PlanOfCudnn>(std::move(*plan), key.window) : nullptr;
}

}  // namespace weft::cuda

// CudnnGraph: operations on tensors of four dims as cuDNN's library takes them, and the plan that it makes of them.
// Source: NVIDIA, "cuDNN Backend API", 9.19.
#pragma once
#include <cudnn.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace weft::cuda {

// Throws Error with what the library says of it.
void check_cudnn(cudnnStatus_t status, const char* what);

// One of the library's objects.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  // How many elements there are; at most `count` of them are written.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, void* values) const;
  cudnnStatus_t try_to_finish() { return cudnnBackendFinalize(raw()); }
  void finish(const char* what) { check_cudnn(try_to_finish(), what); }
  cudnnBackendDescriptor_t raw() const { return raw_.get(); }

 private:
  std::shared_ptr<void> raw_;
};

// Which device a plan is for: one of this machine, or one that a text in JSON describes.
CudnnDescriptor cudnn_device(int device);
CudnnDescriptor cudnn_device(std::string_view json);

// A plan that is finished and can run.
struct CudnnPlan {
  CudnnDescriptor descriptor;
  size_t workspace_bytes = 0;
  std::vector<int64_t> ids;  // of what it is given when it runs: no more and no less
};

class CudnnGraph {
 public:
  using Tensor = size_t;  // an index
  struct Layout {
    std::array<int64_t, 4> dims, strides;  // in elements
  };
  // Row-major.
  static Layout packed(std::array<int64_t, 4> dims);

  // What the caller gives when the plan runs, by its id: device memory, or a float of the host. Ragged: where the
  // first dim's entries begin, in elements, as i32.
  Tensor memory(int64_t id, cudnnDataType_t type, const Layout& layout, std::optional<Tensor> ragged = {});
  Tensor number(int64_t id);
  // How many rows, columns and terms of each entry of the first dim there are, where not all.
  struct Sizes {
    std::optional<Tensor> m, n, k;
  };

  // Each is of the type given, and goes to `into` where that is given.
  Tensor matmul(Tensor a, Tensor b, const Sizes& sizes, cudnnDataType_t type = CUDNN_DATA_FLOAT,
                std::optional<Tensor> into = {});
  Tensor pointwise(cudnnPointwiseMode_t mode, std::span<const Tensor> inputs, cudnnDataType_t type = CUDNN_DATA_FLOAT,
                   std::optional<Tensor> into = {});
  Tensor pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT, std::optional<Tensor> into = {}) {
    return pointwise(mode, std::span(inputs.begin(), inputs.size()), type, into);
  }
  // The index along a dim.
  Tensor index(Tensor like, int64_t dim);
  // Sums or maxima; dims of `layout` are those of x or 1, or fewer heads, whose groups are joined.
  Tensor reduce(cudnnReduceTensorOp_t op, Tensor x, const std::array<int64_t, 4>& dims,
                std::optional<Tensor> into = {});
  // The same elements with the last two dims exchanged.
  Tensor transpose(Tensor x, cudnnDataType_t type);

  // The first way that cuDNN proposes, can make, and that adds up in a fixed order. None: it has no such way.
  std::optional<CudnnPlan> plan(const CudnnDescriptor& device);
  // Ways that it proposes.
  std::vector<CudnnDescriptor> configurations(const CudnnDescriptor& device);

 private:
  struct Node {
    CudnnDescriptor descriptor;
    cudnnDataType_t type;
    Layout layout;
    std::optional<Tensor> ragged;
  };
  Tensor add(int64_t id, cudnnDataType_t type, const Layout& layout, bool is_virtual, bool is_number,
             std::optional<Tensor> ragged);
  Tensor intermediate(cudnnDataType_t type, const Layout& layout, std::optional<Tensor> ragged = {});
  void add_operation(CudnnDescriptor operation, const char* what);
  void add_pointwise(CudnnDescriptor math, std::span<const Tensor> inputs, Tensor y);

  std::vector<Node> tensors_;
  std::vector<int64_t> given_;  // ids of what is no intermediate result
  std::vector<CudnnDescriptor> operations_;
  std::optional<CudnnDescriptor> graph_;
  int64_t last_id_ = 1000;  // of intermediate results
};

}  // namespace weft::cuda

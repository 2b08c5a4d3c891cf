// CudnnGraph: descriptors of tensors, operations and plans.
#include "weft/kernels/cuda/cudnn_graph.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::cuda {

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw Error("cuDNN could not {}: {}", what, cudnnGetErrorString(status));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  check_cudnn(cudnnBackendCreateDescriptor(type, &raw), "make a descriptor");
  raw_ = std::shared_ptr<void>(raw, [](void* p) { cudnnBackendDestroyDescriptor(p); });
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  check_cudnn(cudnnBackendSetAttribute(raw(), name, type, count, values), "set an attribute");
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.raw());
}

int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                             void* values) const {
  int64_t found = 0;
  check_cudnn(cudnnBackendGetAttribute(raw(), name, type, count, &found, values), "tell an attribute");
  return found;
}

CudnnDescriptor cudnn_device(int device) {
  CudnnDescriptor d(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  d.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, int32_t(device));
  d.finish("describe a device");
  return d;
}

CudnnDescriptor cudnn_device(std::string_view json) {
  CudnnDescriptor d(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  d.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, int64_t(json.size()), json.data());
  d.finish("read a device's description");
  return d;
}

CudnnGraph::Layout CudnnGraph::packed(std::array<int64_t, 4> dims) {
  return {dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}};
}

CudnnGraph::Tensor CudnnGraph::add(int64_t id, cudnnDataType_t type, const Layout& layout, bool is_virtual,
                                   bool is_number, std::optional<Tensor> ragged) {
  // Single floats are read one by one, wherever a head's begin.
  const int64_t alignment = type == CUDNN_DATA_FLOAT && !is_virtual ? 4 : 16;
  CudnnDescriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dims.data());
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.strides.data());
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_number);
  if (ragged) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, tensors_[*ragged].descriptor);
  d.finish("describe a tensor");
  tensors_.push_back({std::move(d), type, layout, ragged});
  if (!is_virtual) given_.push_back(id);
  return tensors_.size() - 1;
}

CudnnGraph::Tensor CudnnGraph::memory(int64_t id, cudnnDataType_t type, const Layout& layout,
                                      std::optional<Tensor> ragged) {
  return add(id, type, layout, false, false, ragged);
}

CudnnGraph::Tensor CudnnGraph::number(int64_t id) {
  return add(id, CUDNN_DATA_FLOAT, packed({1, 1, 1, 1}), false, true, {});
}

CudnnGraph::Tensor CudnnGraph::intermediate(cudnnDataType_t type, const Layout& layout,
                                            std::optional<Tensor> ragged) {
  return add(++last_id_, type, layout, true, false, ragged);
}

void CudnnGraph::add_operation(CudnnDescriptor operation, const char* what) {
  operation.finish(what);
  operations_.push_back(std::move(operation));
}

CudnnGraph::Tensor CudnnGraph::matmul(Tensor a, Tensor b, const Sizes& sizes, cudnnDataType_t type,
                                      std::optional<Tensor> into) {
  const auto &left = tensors_[a].layout.dims, &right = tensors_[b].layout.dims;
  const Tensor c = into ? *into : intermediate(type, packed({left[0], left[1], left[2], right[3]}));
  CudnnDescriptor math(CUDNN_BACKEND_MATMUL_DESCRIPTOR), op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  math.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  math.finish("describe a product");
  op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, math);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a].descriptor);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b].descriptor);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[c].descriptor);
  if (sizes.m) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, tensors_[*sizes.m].descriptor);
  if (sizes.n) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, tensors_[*sizes.n].descriptor);
  if (sizes.k) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, tensors_[*sizes.k].descriptor);
  add_operation(std::move(op), "describe a product");
  return c;
}

void CudnnGraph::add_pointwise(CudnnDescriptor math, std::span<const Tensor> inputs, Tensor y) {
  constexpr cudnnBackendAttributeName_t kInputs[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  math.finish("describe an operation");
  CudnnDescriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, math);
  for (size_t i = 0; i < inputs.size(); ++i) op.set(kInputs[i], tensors_[inputs[i]].descriptor);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[y].descriptor);
  add_operation(std::move(op), "describe an operation");
}

CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, std::span<const Tensor> inputs,
                                         cudnnDataType_t type, std::optional<Tensor> into) {
  const Tensor y = into ? *into : intermediate(type, packed(tensors_[inputs[0]].layout.dims));
  const bool is_of_truth = tensors_[y].type == CUDNN_DATA_BOOLEAN;
  CudnnDescriptor math(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  math.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  math.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, is_of_truth ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  add_pointwise(std::move(math), inputs, y);
  return y;
}

CudnnGraph::Tensor CudnnGraph::index(Tensor like, int64_t dim) {
  const Tensor y = intermediate(CUDNN_DATA_INT32, packed(tensors_[like].layout.dims));
  CudnnDescriptor math(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  math.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  math.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_INT32);
  math.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, dim);
  add_pointwise(std::move(math), std::span(&like, 1), y);
  return y;
}

CudnnGraph::Tensor CudnnGraph::reduce(cudnnReduceTensorOp_t op_, Tensor x, const std::array<int64_t, 4>& dims,
                                      std::optional<Tensor> into) {
  const Tensor y = into ? *into : intermediate(CUDNN_DATA_FLOAT, packed(dims));
  CudnnDescriptor math(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  math.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op_);
  math.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  math.finish("describe a reduction");
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, math);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[x].descriptor);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[y].descriptor);
  add_operation(std::move(op), "describe a reduction");
  return y;
}

CudnnGraph::Tensor CudnnGraph::transpose(Tensor x, cudnnDataType_t type) {
  Layout layout = tensors_[x].layout;
  std::swap(layout.dims[2], layout.dims[3]);
  std::swap(layout.strides[2], layout.strides[3]);
  const Tensor y = intermediate(type, layout, tensors_[x].ragged);
  CudnnDescriptor op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[x].descriptor);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[y].descriptor);
  add_operation(std::move(op), "describe a transposed tensor");
  return y;
}

std::vector<CudnnDescriptor> CudnnGraph::configurations(const CudnnDescriptor& device) {
  if (!graph_) {
    graph_.emplace(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const CudnnDescriptor& op : operations_) raw.push_back(op.raw());
    graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(raw.size()), raw.data());
    if (graph_->try_to_finish() != CUDNN_STATUS_SUCCESS) return graph_.reset(), std::vector<CudnnDescriptor>();
  }
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph_);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  if (heuristics.try_to_finish() != CUDNN_STATUS_SUCCESS) return {};
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  const int64_t count = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  for (int64_t i = 0; i < count; ++i) raw.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  const int64_t written =
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data());
  found.erase(found.begin() + std::min(count, written), found.end());
  return found;
}

namespace {

// Whether results may differ from run to run.
bool is_in_any_order(const CudnnDescriptor& configuration) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const int64_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, int64_t(notes.size()), notes.data());
  const auto end = notes.begin() + std::min<int64_t>(count, int64_t(notes.size()));
  return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != end;
}

}  // namespace

std::optional<CudnnPlan> CudnnGraph::plan(const CudnnDescriptor& device) {
  for (const CudnnDescriptor& configuration : configurations(device)) {
    if (is_in_any_order(configuration)) continue;
    CudnnPlan plan{.descriptor = CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), .ids = given_};
    plan.descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (plan.descriptor.try_to_finish() != CUDNN_STATUS_SUCCESS) continue;
    int64_t bytes = 0;
    plan.descriptor.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    plan.workspace_bytes = size_t(bytes);
    return plan;
  }
  return {};
}

}  // namespace weft::cuda
